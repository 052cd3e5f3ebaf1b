"""The curves of a run (learning, speed, hardware), and each episode with the means of the hardware meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import numpy as np

from redline.jsonl import Row
from redline.monitor.hardware import COUNTERS, flat
from redline.report.hardware_use import Doubles, spending
from redline.report.rows import as_moment, moment, number, role_of
from redline.report.run_clock import LEAST_S, Span, run_clock
from redline.report.run_files import RunFiles

Axis = Literal["steps", "minutes", "cpu_s", "gpu_s"]
Role = Literal["actor", "greedy"]
WINDOW_EPISODES = 20
MAX_POINTS = 1_000
EPISODES_AT_ONCE = 4_096  # bounds the memory that many episodes take
NO_CURVES = frozenset({"unix_s", "elapsed_s", "interval_s"})


@dataclass(frozen=True)
class Series:
    """Points of a curve, at most 1,000, by rising x; all numbers are finite."""

    x: list[float]
    y: list[float]


@dataclass(frozen=True)
class Evaluation:
    """Greedy episodes that were played at once."""

    last: Row  # its last episode, at the steps that the weights had learnt from
    mean_return: float
    episodes: int


def learning_curve(run: RunFiles, axis: Axis, role: Role = "actor") -> Series:
    """Return the moving mean of the last 20 returns; of `greedy`, the mean of each evaluation.

    Minutes are training minutes where the run tells them, and minutes since its start otherwise. An evaluation stands
    at the steps that its weights had learnt from, and else at the moment of its last episode.
    """
    if role == "actor":
        rows = episodes_of(run, role)
        return thin(_places(run, rows, axis), moving_means([float(row["return"]) for row in rows]))
    evaluations = evaluations_of(run)
    places = _places(run, [evaluation.last for evaluation in evaluations], axis)
    return thin(places, [evaluation.mean_return for evaluation in evaluations])


def speed_series(run: RunFiles) -> dict[str, Series]:
    """Return `steps_per_s` and `updates_per_s` over minutes since the start; without what the run does not tell."""
    clock = run_clock(run)
    if clock is None:
        return {}
    return metric_series(run, ("steps_per_s", "updates_per_s"), lambda row: clock.minutes(row["unix_s"]))


def metric_series(run: RunFiles, names: Iterable[str], place: Callable[[Row], float | None]) -> dict[str, Series]:
    """Return numbers of metrics.jsonl, each at the place of its row; without what the run does not tell."""
    found = {}
    for name in names:
        points = [(place(row), value) for row in run.metrics if (value := number(row, name)) is not None]
        if points:
            found[name] = thin([x for x, _ in points], [y for _, y in points])
    return found


def hardware_series(run: RunFiles) -> dict[str, Series]:
    """Return every number of hardware.jsonl by its flat name, over minutes since the start, pauses left out."""
    clock = run_clock(run)
    if clock is None:
        return {}
    points: dict[str, tuple[list[float], list[float]]] = {}
    for row in run.hardware:
        minutes = clock.minutes(row["unix_s"])
        for name, value in flat(row).items():
            if name not in NO_CURVES:
                x, y = points.setdefault(name, ([], []))
                x.append(minutes)
                y.append(value)
    return {name: thin(x, y) for name, (x, y) in points.items()}


def episodes_of(run: RunFiles, role: Role) -> list[Row]:
    """Return the episodes of training, or those of evaluations."""
    return [row for row in run.episodes if role_of(row) == role]


def moving_means(values: Sequence[float]) -> list[float]:
    """Return the mean of the last 20 values at each, of fewer where there are fewer."""
    recent: deque[float] = deque(maxlen=WINDOW_EPISODES)
    found = []
    for value in values:
        recent.append(value)
        found.append(sum(recent) / len(recent))
    return found


def steps_of(rows: Sequence[Row]) -> list[float | None]:
    """Return the steps at the end of each episode: as told, else the lengths so far where all are told."""
    told = [number(row, "steps") for row in rows]
    if any(steps is not None for steps in told):
        return told
    lengths = [number(row, "length_steps") for row in rows]
    if any(length is None for length in lengths):
        return told
    return [float(total) for total in np.cumsum([length or 0.0 for length in lengths])]


def thin(x: Sequence[float | None], y: Sequence[float], *, most: int = MAX_POINTS) -> Series:
    """Return points by rising x, without those that have none, as means of neighbours where there are many."""
    points = [(place, value) for place, value in zip(x, y, strict=True) if place is not None]
    points.sort(key=lambda point: point[0])
    if len(points) <= most:
        return Series([place for place, _ in points], [value for _, value in points])
    buckets = [bucket.mean(0) for bucket in np.array_split(np.asarray(points, dtype=np.float64), most)]
    return Series([float(bucket[0]) for bucket in buckets], [float(bucket[1]) for bucket in buckets])


def _places(run: RunFiles, rows: Sequence[Row], axis: Axis) -> Sequence[float | None]:
    if axis == "steps":
        return steps_of(rows)
    if axis == "minutes":
        return _minutes(run, rows)
    spent = spending(run.hardware).at(axis, [row["unix_s"] for row in rows])
    return [None] * len(rows) if spent is None else [float(value) for value in spent]


def _minutes(run: RunFiles, rows: Sequence[Row]) -> list[float | None]:
    times_s = [number(row, "time_s") for row in rows]
    if all(time_s is not None for time_s in times_s):
        return [None if time_s is None else time_s / 60.0 for time_s in times_s]
    clock = run_clock(run)
    return [None if clock is None else clock.minutes(row["unix_s"]) for row in rows]


def evaluations_of(run: RunFiles) -> list[Evaluation]:
    """Return the evaluations in the order of time; a greedy episode without a number is one of its own."""
    found: dict[object, list[Row]] = {}
    for place, row in enumerate(episodes_of(run, "greedy")):
        told = number(row, "evaluation")
        found.setdefault(("alone", place) if told is None else told, []).append(row)
    return [_evaluation(rows) for rows in found.values()]


def _evaluation(rows: Sequence[Row]) -> Evaluation:
    steps = number(rows[-1], "weights_steps")
    last = rows[-1] if steps is None else {**rows[-1], "steps": steps}
    return Evaluation(last, fmean(row["return"] for row in rows), len(rows))


def joined_rows(run: RunFiles) -> Iterator[Row]:
    """Yield each row of episodes.jsonl with `begun_unix_s` and `hardware`: means by flat name, {} where none was read.

    An episode shorter than a sample has the values of that sample. Means that were written with the episode stay where
    hardware.jsonl has none for it.
    """
    integrals = Integrals(run.hardware)
    spans = episode_spans(run)
    for start in range(0, len(spans), EPISODES_AT_ONCE):
        rows, over = run.episodes[start : start + EPISODES_AT_ONCE], spans[start : start + EPISODES_AT_ONCE]
        for row, (begun_unix_s, _), means in zip(rows, over, integrals.means(over), strict=True):
            written = row.get("hardware")
            kept = written if isinstance(written, dict) else {}
            yield {**row, "begun_unix_s": begun_unix_s, "hardware": means or kept}


def episode_spans(run: RunFiles) -> list[Span]:
    """Return when each episode began and ended, by the wall clock.

    It began when it says so; a greedy one with its evaluation, because its rows are all written at the end; any other
    when the one before in its lane ended, or the run was started or resumed.
    """
    clock = run_clock(run)
    evaluations = _evaluation_spans(run.events)
    begins = sorted(
        unix_s for row in run.events if row["event"] in ("start", "resume") and (unix_s := moment(row)) is not None
    )
    ended: dict[tuple[str, float | None], float] = {}
    spans = []
    for row in run.episodes:
        end_s = float(row["unix_s"])
        lane = (role_of(row), number(row, "lane"))
        begin_s = ended.get(lane, end_s if clock is None else clock.begin_unix_s)
        before = np.searchsorted(begins, end_s)
        if before:
            begin_s = max(begin_s, begins[before - 1])
        told_s = as_moment(row.get("begun_unix_s"))
        evaluation = _nearest(evaluations.get(number(row, "evaluation"), []), end_s)
        if told_s is not None:
            begin_s = told_s
        elif lane[0] == "greedy" and evaluation is not None:
            begin_s = evaluation
        spans.append((min(begin_s, end_s), end_s))
        ended[lane] = end_s
    return spans


class Integrals:
    """The integral of each number of hardware.jsonl over time, from which a mean over any span is two look-ups away."""

    def __init__(self, hardware: Sequence[Row]) -> None:
        """Take samples whose intervals are disjoint and in order."""
        self._origin_s = hardware[0]["unix_s"] if hardware else 0.0
        edges: dict[str, list[float]] = {}
        values: dict[str, list[float]] = {}
        for row in hardware:
            end_s = row["unix_s"] - self._origin_s
            for name, value in flat(row).items():
                if name not in COUNTERS:
                    edges.setdefault(name, []).extend((end_s - row["interval_s"], end_s))
                    values.setdefault(name, []).append(value)
        # name → edges of the samples that hold it [2n], seconds covered [2n] and integral [2n] up to each edge
        self._by_name = {name: _sum_up(edges[name], values[name]) for name in values}

    def means(self, spans: Sequence[Span]) -> list[dict[str, float]]:
        """Return the means over each span, by the share of it that each sample covers; {} where none does."""
        times_s = np.asarray(spans, dtype=np.float64).reshape(-1, 2) - self._origin_s  # [N, begin and end]
        found: list[dict[str, float]] = [{} for _ in spans]
        for name, (edges, covered, integral) in self._by_name.items():
            covered_s = np.diff(np.interp(times_s, edges, covered))[:, 0]  # [N]
            totals = np.diff(np.interp(times_s, edges, integral))[:, 0]  # [N]
            for place in np.flatnonzero(covered_s > LEAST_S):
                found[place][name] = float(totals[place] / covered_s[place])
        return found


def _sum_up(edges: Sequence[float], values: Sequence[float]) -> tuple[Doubles, Doubles, Doubles]:
    at = np.asarray(edges, dtype=np.float64)
    widths = np.diff(at)[::2]  # [n]
    grown = np.zeros((2, 2 * len(widths)))
    grown[:, 1::2] = widths, widths * np.asarray(values)
    covered, integral = np.cumsum(grown, axis=1)
    return at, covered, integral


def _evaluation_spans(events: Sequence[Row]) -> Mapping[float | None, list[Span]]:
    """Return when the evaluations of each number began and ended; a resume may have played one again."""
    found: dict[float | None, list[Span]] = {}
    for row in events:
        end_s, duration_s, told = moment(row), number(row, "duration_s"), number(row, "number")
        if row["event"] == "evaluation" and end_s is not None and duration_s is not None and told is not None:
            found.setdefault(told, []).append((end_s - max(duration_s, 0.0), end_s))
    return found


def _nearest(spans: Sequence[Span], end_s: float) -> float | None:
    """Return the beginning of the evaluation whose end is nearest."""
    return min(spans, key=lambda span: abs(span[1] - end_s))[0] if spans else None

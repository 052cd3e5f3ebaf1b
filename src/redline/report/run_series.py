"""The curves of a run (learning, speed, hardware), and each episode with the means of the hardware meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import numpy as np

from redline.jsonl import Row
from redline.report.hardware_use import Span
from redline.report.rows import moment, number, part, role_of
from redline.report.run_files import RunFiles

Axis = Literal["steps", "minutes", "cpu_s", "gpu_s"]
Role = Literal["actor", "greedy"]
WINDOW_EPISODES = 20
EPISODES_AT_ONCE = 4_096  # bounds the memory that many episodes take


@dataclass(frozen=True)
class Series:
    """Points of a curve sorted by x; all numbers are finite."""

    x: list[float]
    y: list[float]


@dataclass(frozen=True)
class Evaluation:
    """One evaluation: the mean of its greedy episodes."""

    last: Row  # its last episode, placed at the steps of the evaluated weights
    mean_return: float
    episodes: int


def learning_curve(run: RunFiles, axis: Axis, role: Role = "actor") -> Series:
    """Return the moving mean of the last 20 returns; of `greedy`, the mean of each evaluation.

    Minutes are training minutes if the run has them, else minutes since its start. An evaluation is placed at the steps
    of its weights, or at the end of its last episode.
    """
    if role == "actor":
        rows = run.episodes_of(role)
        return _series(_places(run, rows, axis), moving_means([float(row["return"]) for row in rows]))
    evaluations = evaluations_of(run)
    places = _places(run, [evaluation.last for evaluation in evaluations], axis)
    return _series(places, [evaluation.mean_return for evaluation in evaluations])


def speed_series(run: RunFiles) -> dict[str, Series]:
    """Return `steps_per_s` and `updates_per_s` over minutes since the start, where the run has them."""
    return metric_series(run, ("steps_per_s", "updates_per_s"), lambda row: run.clock.minutes(row["unix_s"]))


def metric_series(run: RunFiles, names: Iterable[str], place: Callable[[Row], float | None]) -> dict[str, Series]:
    """Return fields of metrics.jsonl, each value at the `place` of its row; fields without values are left out."""
    places = [place(row) for row in run.metrics]
    found = {name: _series(places, [number(row, name) for row in run.metrics]) for name in names}
    return {name: series for name, series in found.items() if series.x}


def hardware_series(run: RunFiles) -> dict[str, Series]:
    """Return every number of hardware.jsonl by its flat name, over minutes since the start, pauses left out."""
    minutes = np.asarray([run.clock.minutes(row["unix_s"]) for row in run.hardware])
    return {
        name: Series(minutes[places].tolist(), values.tolist())
        for name, (places, values) in run.samples.columns.items()
    }


def moving_means(values: Sequence[float]) -> list[float]:
    """Return for each value the mean of the last 20 up to it, or of all if there are fewer."""
    return [fmean(values[max(0, end - WINDOW_EPISODES) : end]) for end in range(1, len(values) + 1)]


def steps_of(rows: Sequence[Row]) -> list[float | None]:
    """Return the steps at the end of each episode: as recorded, or the sum of lengths if all are known."""
    told = [number(row, "steps") for row in rows]
    lengths = [length for row in rows if (length := number(row, "length_steps")) is not None]
    if any(steps is not None for steps in told) or len(lengths) < len(rows):
        return told
    return [float(total) for total in np.cumsum(lengths)]


def _series(x: Sequence[float | None], y: Sequence[float | None]) -> Series:
    """Return points sorted by x, without those with an unknown side."""
    points = [(a, b) for a, b in zip(x, y, strict=True) if a is not None and b is not None]
    points.sort(key=lambda point: point[0])
    return Series([a for a, _ in points], [b for _, b in points])


def _places(run: RunFiles, rows: Sequence[Row], axis: Axis) -> Sequence[float | None]:
    if axis == "steps":
        return steps_of(rows)
    if axis == "minutes":
        times_s = [time_s for row in rows if (time_s := number(row, "time_s")) is not None]
        if len(times_s) == len(rows):
            return [time_s / 60.0 for time_s in times_s]
        return [run.clock.minutes(row["unix_s"]) for row in rows]
    spent = run.samples.spent(axis, [row["unix_s"] for row in rows])
    return [None] * len(rows) if spent is None else [float(value) for value in spent]


def evaluations_of(run: RunFiles) -> list[Evaluation]:
    """Return the evaluations in order of time; a greedy episode without a number counts as one."""
    found: dict[object, list[Row]] = {}
    for place, row in enumerate(run.episodes_of("greedy")):
        told = number(row, "evaluation")
        found.setdefault(("alone", place) if told is None else told, []).append(row)
    evaluations = []
    for rows in found.values():
        steps = number(rows[-1], "weights_steps")
        last = rows[-1] if steps is None else {**rows[-1], "steps": steps}
        evaluations.append(Evaluation(last, fmean(row["return"] for row in rows), len(rows)))
    return evaluations


def joined_rows(run: RunFiles) -> Iterator[Row]:
    """Yield each row of episodes.jsonl with `begun_unix_s` and `hardware`: means by flat name, {} where none was read.

    An episode shorter than a sample has the values of that sample. Means that were written with the episode stay where
    hardware.jsonl has none for it.
    """
    spans = episode_spans(run)
    for start in range(0, len(spans), EPISODES_AT_ONCE):
        rows, over = run.episodes[start : start + EPISODES_AT_ONCE], spans[start : start + EPISODES_AT_ONCE]
        for row, (begun_unix_s, _), means in zip(rows, over, run.samples.means(over), strict=True):
            yield {**row, "begun_unix_s": begun_unix_s, "hardware": means or part(row, "hardware")}


def episode_spans(run: RunFiles) -> list[Span]:
    """Return when each episode began and ended, by the wall clock.

    It began when it says so; a greedy one with its evaluation, because its rows are all written at the end; any other
    when the one before in its lane ended, or the run was started or resumed.
    """
    evaluations = _evaluation_spans(run.events)
    begins = [unix_s for unix_s, _ in run.moments_of("start", "resume")]
    ended: dict[tuple[str, float | None], float] = {}
    spans = []
    for row in run.episodes:
        end_s = float(row["unix_s"])
        lane = (role_of(row), number(row, "lane"))
        begin_s = ended.get(lane, run.clock.begin_unix_s)
        if before := np.searchsorted(begins, end_s):
            begin_s = max(begin_s, begins[before - 1])
        told_s = moment(row, "begun_unix_s")
        played = evaluations.get(number(row, "evaluation"), [])
        if told_s is not None:
            begin_s = told_s
        elif lane[0] == "greedy" and played:  # a resume may have played one again
            begin_s, _ = min(played, key=lambda span: abs(span[1] - end_s))
        spans.append((min(begin_s, end_s), end_s))
        ended[lane] = end_s
    return spans


def _evaluation_spans(events: Sequence[Row]) -> Mapping[float | None, list[Span]]:
    """Return when the evaluations of each number began and ended."""
    found: dict[float | None, list[Span]] = {}
    for row in events:
        end_s, duration_s, told = moment(row), number(row, "duration_s"), number(row, "number")
        if row["event"] == "evaluation" and end_s is not None and duration_s is not None and told is not None:
            found.setdefault(told, []).append((end_s - max(duration_s, 0.0), end_s))
    return found

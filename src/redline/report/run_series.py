"""The curves of a run: learning, speed, hardware."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from redline.monitor.hardware import flat
from redline.records import Row
from redline.report.row_values import number, role_of
from redline.report.run_clock import run_clock
from redline.report.run_files import RunFiles
from redline.report.spending import spending

Axis = Literal["steps", "minutes", "cpu_s", "gpu_s"]
Role = Literal["actor", "greedy"]
WINDOW_EPISODES = 20
MAX_POINTS = 1_000
NO_CURVES = frozenset({"unix_s", "elapsed_s", "interval_s"})


@dataclass(frozen=True)
class Series:
    """Points of a curve, at most 1,000, by rising x; all numbers are finite."""

    x: list[float]
    y: list[float]


def learning_curve(run: RunFiles, axis: Axis, role: Role = "actor") -> Series:
    """Return the moving mean of the last 20 returns; of `greedy`, the mean of each evaluation.

    Minutes are training minutes where the run tells them, and minutes since its start otherwise. An evaluation stands
    at the steps that its weights had learnt from, and else at the moment of its last episode.
    """
    rows = episodes_of(run, role)
    if role == "actor":
        return thin(_places(run, rows, axis), moving_means([float(row["return"]) for row in rows]))
    ends, means = [], []
    for evaluation in _evaluations(rows):
        steps = number(evaluation[-1], "weights_steps")
        ends.append({**evaluation[-1], **({} if steps is None else {"steps": steps})})
        means.append(sum(row["return"] for row in evaluation) / len(evaluation))
    return thin(_places(run, ends, axis), means)


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


def thin(x: Sequence[float | None], y: Sequence[float]) -> Series:
    """Return points by rising x, without those that have none, as means of neighbours where there are many."""
    points = [(place, value) for place, value in zip(x, y, strict=True) if place is not None]
    points.sort(key=lambda point: point[0])
    if len(points) <= MAX_POINTS:
        return Series([place for place, _ in points], [value for _, value in points])
    buckets = [bucket.mean(0) for bucket in np.array_split(np.asarray(points, dtype=np.float64), MAX_POINTS)]
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


def _evaluations(rows: Sequence[Row]) -> list[list[Row]]:
    """Return the greedy episodes of each evaluation; without a number each stands alone."""
    found: dict[object, list[Row]] = {}
    for place, row in enumerate(rows):
        told = number(row, "evaluation")
        found.setdefault(("alone", place) if told is None else told, []).append(row)
    return list(found.values())

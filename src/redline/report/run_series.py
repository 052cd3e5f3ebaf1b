"""The curves of a run: learning, speed, hardware."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from redline.report.run_files import RunFiles

Axis = Literal["steps", "minutes", "cpu_s", "gpu_s"]
Role = Literal["actor", "greedy"]


@dataclass(frozen=True)
class Series:
    """Points of a curve, at most 1,000, by rising x; all numbers are finite."""

    x: list[float]
    y: list[float]


def learning_curve(run: RunFiles, axis: Axis, role: Role = "actor") -> Series:
    """Return the moving mean of the last 20 returns; of `greedy`, the mean of each evaluation.

    Minutes are training minutes where the run tells them, and minutes since its start otherwise.
    """
    raise NotImplementedError


def speed_series(run: RunFiles) -> dict[str, Series]:
    """Return `steps_per_s` and `updates_per_s` over minutes; {} for foreign code, which tells neither."""
    raise NotImplementedError


def hardware_series(run: RunFiles) -> dict[str, Series]:
    """Return every number of hardware.jsonl by its flat name, over minutes since the start, pauses left out."""
    raise NotImplementedError

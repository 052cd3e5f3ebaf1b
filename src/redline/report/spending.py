"""What a run has spent up to a moment: CPU seconds, GPU seconds and the GPUs' energy, over all its recordings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from redline.records import Row
from redline.report.clean_samples import SAME_RECORDING_S, recordings
from redline.report.row_values import as_number, members, number

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Spending:
    """Running totals at moments between which they grow evenly; None for what no sample tells."""

    unix_s: Doubles  # [K]
    totals: dict[str, Doubles]  # cpu_s, gpu_s, energy_j, and power_s: seconds that energy_j is of; each [K]

    def at(self, name: str, unix_s: Sequence[float]) -> Doubles | None:
        """Return what was spent up to each moment; before the first sample nothing, after the last all."""
        totals = self.totals.get(name)
        return None if totals is None else np.interp(np.asarray(unix_s, dtype=np.float64), self.unix_s, totals)

    def total(self, name: str) -> float | None:
        """Return what was spent in all."""
        totals = self.totals.get(name)
        return None if totals is None else float(totals[-1])


def spending(hardware: Sequence[Row]) -> Spending:
    """Sum up the samples, whose intervals are disjoint and in order."""
    rows = list(hardware)
    parts: dict[str, list[float | None]] = {
        "cpu_s": _cpu_steps(rows),
        "gpu_s": [_summed(row, "utilisation_percent", lambda percent: percent / 100.0) for row in rows],
        "energy_j": [_summed(row, "power_w", lambda watts: watts) for row in rows],
    }
    parts["power_s"] = [
        None if joules is None else row["interval_s"] for row, joules in zip(rows, parts["energy_j"], strict=True)
    ]
    knots = [edge for row in rows for edge in (row["unix_s"] - row["interval_s"], row["unix_s"])]
    totals = {}
    for name, steps in parts.items():
        if any(step is not None for step in steps):
            ends = np.cumsum([step or 0.0 for step in steps])
            begins = np.concatenate([[0.0], ends[:-1]])
            totals[name] = np.stack([begins, ends], axis=1).ravel()
    return Spending(np.asarray(knots, dtype=np.float64), totals)


def _summed(row: Row, key: str, rate: Callable[[float], float]) -> float | None:
    values = [value for gpu in members(row, "gpus") if (value := number(gpu, key)) is not None]
    return sum(rate(value) for value in values) * float(row["interval_s"]) if values else None


def _cpu_steps(rows: list[Row]) -> list[float | None]:
    """Return the CPU seconds of each sample; the counter begins anew with each recording."""
    steps: dict[int, float] = {}
    for recording in recordings(rows):
        before_s = _before_first(recording[0])
        for row in recording:
            now_s = as_number(row.get("cpu_s"))
            if now_s is not None:
                # less than before: a recording whose start does not tell it from the one before
                steps[id(row)] = now_s - before_s if now_s >= before_s else now_s
                before_s = now_s
    return [steps.get(id(row)) for row in rows]


def _before_first(row: Row) -> float:
    """Return the counter before a recording's first sample: where earlier ones are lost, what they counted."""
    counted_s, elapsed_s = number(row, "cpu_s"), number(row, "elapsed_s")
    interval_s = float(row["interval_s"])
    if counted_s is None or elapsed_s is None or elapsed_s <= interval_s + SAME_RECORDING_S:
        return 0.0
    cores = number(row, "cpu_cores_used")
    used_s = counted_s * interval_s / elapsed_s if cores is None else cores * interval_s
    return max(counted_s - used_s, 0.0)

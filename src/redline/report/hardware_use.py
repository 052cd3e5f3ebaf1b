"""The hardware that a run used: means over any span, CPU seconds, GPU seconds, energy, and the processes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from redline.jsonl import Row
from redline.monitor.hardware import COUNTERS
from redline.report.rows import SAME_RECORDING_S, THROTTLED, members, number, text

MAX_PROCESSES = 20_000  # a program may start a process for every command
LARGEST = 8  # by each of CPU, memory and GPU memory
LEAST_S = 1e-6  # what the wall clock, as a double, can tell apart
CLOCKS = frozenset({"unix_s", "elapsed_s", "interval_s"})

Doubles = npt.NDArray[np.float64]
Span = tuple[float, float]  # begin and end by the wall clock


class Samples:
    """The samples of hardware.jsonl by column, integrated over time: a mean over any span takes two look-ups."""

    def __init__(self, rows: Sequence[Row]) -> None:
        """Take flat samples in order, whose intervals do not overlap."""
        self.rows = rows
        self.interval_s = np.asarray([row["interval_s"] for row in rows], dtype=np.float64)  # [N]
        self.end_s = np.asarray([row["unix_s"] for row in rows], dtype=np.float64)  # [N]
        found: dict[str, tuple[list[int], list[float]]] = {}
        for place, row in enumerate(rows):
            for name, value in row.items():
                if name not in CLOCKS and not name.startswith(THROTTLED):
                    places, values = found.setdefault(name, ([], []))
                    places.append(place)
                    values.append(value)
        # name → which samples hold it [n], and its values [n]
        self.columns = {name: (np.asarray(places), np.asarray(values)) for name, (places, values) in found.items()}
        self._integrals = {name: self._integral(*column) for name, column in self.columns.items()}
        if "cpu_s" in self.columns:
            told, _ = self.columns["cpu_s"]
            self._integrals["cpu_s"] = self._integral(told, (_cpu_steps(rows) / self.interval_s)[told])

    def _integral(self, places: npt.NDArray[np.int64], values: Doubles) -> tuple[Doubles, Doubles, Doubles]:
        """Return the edges of samples [2n], and the seconds covered [2n] and the integral [2n] up to each edge."""
        widths, ends = self.interval_s[places], self.end_s[places] - self.end_s[0]
        grown = np.zeros((2, 2 * len(places)))
        grown[:, 1::2] = widths, widths * values
        covered, integral = np.cumsum(grown, axis=1)
        return np.stack([ends - widths, ends], axis=1).ravel(), covered, integral

    def means(self, spans: Sequence[Span]) -> list[dict[str, float]]:
        """Return the means over each span, each sample weighted by its share of the span; {} where there is none."""
        found: list[dict[str, float]] = [{} for _ in spans]
        for name, (edges, covered, integral) in self._integrals.items():
            if name in COUNTERS:
                continue
            times_s = np.asarray(spans, dtype=np.float64).reshape(-1, 2) - self.end_s[0]  # [N, begin and end]
            covered_s = np.diff(np.interp(times_s, edges, covered))[:, 0]  # [N]
            totals = np.diff(np.interp(times_s, edges, integral))[:, 0]  # [N]
            for place in np.flatnonzero(covered_s > LEAST_S):
                found[place][name] = float(totals[place] / covered_s[place])
        return found

    def covered_s(self, name: str, span: Span) -> float:
        """Return for how many seconds of a span a field was sampled."""
        if name not in self._integrals:
            return 0.0
        edges, covered, _ = self._integrals[name]
        begun_s, ended_s = np.interp(np.asarray(span) - self.end_s[0], edges, covered)
        return float(ended_s - begun_s)

    def of_gpus(self, field: str) -> list[str]:
        """Return the names of the columns with this field of any GPU."""
        return sorted(name for name in self.columns if re.fullmatch(rf"gpus\..+\.{field}", name))

    def spent(self, what: str, unix_s: Sequence[float]) -> Doubles | None:
        """Return what was spent up to each moment; None where no sample says.

        That is CPU seconds (`cpu_s`), GPU seconds (`gpu_s`) or the energy of the GPUs (`energy_j`).
        """
        scale = 0.01 if what == "gpu_s" else 1.0
        names = {"cpu_s": ["cpu_s"], "gpu_s": self.of_gpus("utilisation_percent"), "energy_j": self.of_gpus("power_w")}
        known = [self._integrals[name] for name in names[what] if name in self._integrals]
        if not known:
            return None
        times_s = np.asarray(unix_s, dtype=np.float64) - self.end_s[0]
        total: Doubles = scale * np.sum([np.interp(times_s, edges, integral) for edges, _, integral in known], axis=0)
        return total

    def total(self, what: str) -> float | None:
        """Return what was spent in total."""
        spent = self.spent(what, [np.inf])
        return None if spent is None else float(spent[0])

    def power_s(self) -> float | None:
        """Return the seconds that the energy covers: those of samples with a power."""
        places = [self.columns[name][0] for name in self.of_gpus("power_w")]
        return float(self.interval_s[np.unique(np.concatenate(places))].sum()) if places else None


def recordings(rows: Sequence[Row]) -> list[list[int]]:
    """Return the indices of each recording's samples, which share one start, `unix_s` − `elapsed_s`."""
    if not all("elapsed_s" in row for row in rows):
        return [list(range(len(rows)))]
    found: list[list[int]] = []
    last_s = -float("inf")
    for start_s, place in sorted((row["unix_s"] - row["elapsed_s"], place) for place, row in enumerate(rows)):
        if start_s - last_s > SAME_RECORDING_S:
            found.append([])
        found[-1].append(place)
        last_s = start_s
    return [sorted(places) for places in found]


def _cpu_steps(rows: Sequence[Row]) -> Doubles:
    """Return the CPU seconds of each sample, NaN where it has none; each recording's counter starts at 0."""
    steps = np.full(len(rows), np.nan)
    for recording in recordings(rows):
        before_s = _before_first(rows[recording[0]])
        for place in recording:
            if (now_s := rows[place].get("cpu_s")) is not None:
                # less than before: another recording with nearly the same start
                steps[place] = now_s - before_s if now_s >= before_s else now_s
                before_s = now_s
    return steps


def _before_first(row: Row) -> float:
    """Return the counter before a recording's first sample, estimated if earlier samples are lost."""
    counted_s, elapsed_s, interval_s = row.get("cpu_s"), row.get("elapsed_s"), row["interval_s"]
    if counted_s is None or elapsed_s is None or elapsed_s <= interval_s + SAME_RECORDING_S:
        return 0.0
    used_s = row.get("cpu_cores_used", counted_s / elapsed_s) * interval_s
    return float(max(counted_s - used_s, 0.0))


@dataclass
class ProcessUse:
    """One process while it was watched."""

    pid: int
    role: str | None = None  # None: not watched, only seen on a GPU
    name: str | None = None
    watched_s: float = 0.0
    cpu_s: float = 0.0
    rss_peak_bytes: float = 0.0
    gpu_peak_bytes: float = 0.0  # over all GPUs at one time

    @property
    def cores(self) -> float:
        """Return the mean number of cores it used while it was watched."""
        return self.cpu_s / self.watched_s if self.watched_s else 0.0


class Processes:
    """Every process of a recording."""

    def __init__(self) -> None:
        self.found: dict[tuple[int, str | None, str | None], ProcessUse] = {}

    def add(self, row: Row) -> None:
        """Add a sample as it was recorded."""
        interval_s = max(number(row, "interval_s") or 0.0, 0.0)
        by_pid: dict[int, ProcessUse] = {}
        for process in members(row, "watched"):
            if (use := self._use(process, text(process, "role") or "other")) is None:
                continue
            by_pid[use.pid] = use
            cores = number(process, "cpu_cores_used")
            if cores is not None and cores >= 0:
                use.watched_s += interval_s
                use.cpu_s += cores * interval_s
            use.rss_peak_bytes = max(use.rss_peak_bytes, number(process, "rss_bytes") or 0.0)
        held: dict[int, float] = {}
        for process in (process for gpu in members(row, "gpus") for process in members(gpu, "processes")):
            pid, size_bytes = number(process, "pid"), number(process, "memory_bytes")
            if pid is None or size_bytes is None:
                continue
            if (known := by_pid.get(int(pid)) or self._use(process, None)) is not None:
                by_pid[known.pid] = known
                held[known.pid] = held.get(known.pid, 0.0) + size_bytes
                known.gpu_peak_bytes = max(known.gpu_peak_bytes, held[known.pid])

    def _use(self, process: Mapping[str, Any], role: str | None) -> ProcessUse | None:
        pid = number(process, "pid")
        if pid is None:
            return None
        key = int(pid), role, text(process, "name")
        if key not in self.found and len(self.found) >= MAX_PROCESSES:
            return None
        return self.found.setdefault(key, ProcessUse(*key))

    def largest(self) -> list[ProcessUse]:
        """Return the processes that used most CPU, memory or GPU memory, by CPU."""
        chosen: dict[int, ProcessUse] = {}
        for size in ("cores", "rss_peak_bytes", "gpu_peak_bytes"):
            ranked = sorted(self.found.values(), key=attrgetter(size), reverse=True)[:LARGEST]
            chosen |= {id(use): use for use in ranked if getattr(use, size) > 0}
        return sorted(chosen.values(), key=attrgetter("cpu_s", "rss_peak_bytes"), reverse=True)

"""What a run took of the machine: CPU seconds, GPU seconds and energy over time, by process, and by the monitor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from redline.jsonl import RecordTail, Row
from redline.report.rows import SAME_RECORDING_S, as_number, members, moment, number, recordings, text
from redline.report.run_files import RunFiles

SAME_STOP_S = 2.0  # by which the start that a monitor-stop tells may differ from that of the samples
MAX_READ_BYTES = 64_000_000  # of the end of a long recording: about a second of reading
MAX_PROCESSES = 20_000  # a program may start a process for every command
LARGEST = 8  # by each of CPU, memory and GPU memory

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


def monitor_share(run: RunFiles) -> float | None:
    """Return the monitor's own CPU time ÷ (wall × cores) over all recordings: as told at their ends, or sampled."""
    told = [
        (share, wall_s, unix_s - wall_s)
        for row in run.events
        if row["event"] == "monitor-stop"
        and (share := number(row, "monitor_cpu_share")) is not None
        and (wall_s := number(row, "elapsed_s") or 0.0) > 0
        and (unix_s := moment(row)) is not None
    ]
    parts = [(share, wall_s) for share, wall_s, _ in told]
    for rows in recordings(run.hardware):
        begun_s = rows[0]["unix_s"] - (number(rows[0], "elapsed_s") or 0.0)
        sampled = _sampled_share(rows, monitored_cores(run))
        if sampled is not None and not any(abs(begun_s - start_s) < SAME_STOP_S for *_, start_s in told):
            parts.append(sampled)
    wall_s = sum(wall_s for _, wall_s in parts)
    return max(sum(share * wall_s for share, wall_s in parts), 0.0) / wall_s if wall_s > 0 else None


def _sampled_share(rows: Sequence[Row], cores: int | None) -> tuple[float, float] | None:
    """Return the monitor's share by its counter in the samples of a recording, and over how many seconds."""
    told = [row for row in rows if number(row, "monitor_cpu_s") is not None and number(row, "elapsed_s")]
    wall_s = float(told[-1]["elapsed_s"] - told[0]["elapsed_s"]) if len(told) > 1 else 0.0
    if not cores or wall_s <= 0:
        return None
    return float(told[-1]["monitor_cpu_s"] - told[0]["monitor_cpu_s"]) / (wall_s * cores), wall_s


def monitored_cores(run: RunFiles) -> int | None:
    """Return the cores of the machine, as the monitor tells them."""
    told = [number(row, "cores") for row in run.events if row["event"] == "monitor-start"]
    busy = run.hardware[-1].get("core_busy") if run.hardware else None
    return int(told[-1]) if told and told[-1] else len(busy) if isinstance(busy, list) and busy else None


@dataclass
class ProcessUse:
    """One process while it was watched; grows with each sample."""

    pid: int
    role: str | None = None  # None: not watched, only seen on a GPU
    name: str | None = None
    watched_s: float = 0.0
    cpu_s: float = 0.0
    rss_peak_bytes: float | None = None
    gpu_peak_bytes: float | None = None  # over all GPUs at a time

    @property
    def cores(self) -> float | None:
        """Return the mean of the cores that it used while it was watched."""
        return self.cpu_s / self.watched_s if self.watched_s else None


@dataclass(frozen=True)
class Processes:
    """The largest processes, by CPU; how many there were, and over how many samples."""

    largest: list[ProcessUse]
    count: int
    samples: int
    is_whole: bool  # all samples were read


def largest_processes(path: Path, *, max_bytes: int = MAX_READ_BYTES) -> Processes:
    """Read the samples of a recording, of a long one the newest, and return the processes that used most."""
    found: dict[tuple[int, str | None, str | None], ProcessUse] = {}
    samples = 0
    for row in _rows(path, max_bytes):
        samples += 1
        _add(found, row)
    chosen: dict[int, ProcessUse] = {}
    sizes: tuple[Callable[[ProcessUse], float], ...] = (
        lambda use: use.cores or 0.0,
        lambda use: use.rss_peak_bytes or 0.0,
        lambda use: use.gpu_peak_bytes or 0.0,
    )
    for key in sizes:
        ranked = sorted(found.values(), key=key, reverse=True)[:LARGEST]
        chosen |= {id(use): use for use in ranked if key(use) > 0}
    largest = sorted(chosen.values(), key=lambda use: (use.cpu_s, use.rss_peak_bytes or 0.0), reverse=True)
    return Processes(largest, count=len(found), samples=samples, is_whole=_size_bytes(path) <= max_bytes)


def _size_bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _rows(path: Path, max_bytes: int) -> Iterator[Row]:
    tail = RecordTail(path, last_bytes=max_bytes)
    while rows := tail.new_rows():
        yield from rows


def _add(found: dict[tuple[int, str | None, str | None], ProcessUse], row: Row) -> None:
    interval_s = max(number(row, "interval_s") or 0.0, 0.0)
    by_pid: dict[int, ProcessUse] = {}
    for process in members(row, "watched"):
        if (use := _use(found, process, text(process, "role") or "other")) is None:
            continue
        by_pid[use.pid] = use
        cores = number(process, "cpu_cores_used")
        if cores is not None and cores >= 0:
            use.watched_s += interval_s
            use.cpu_s += cores * interval_s
        use.rss_peak_bytes = _larger(use.rss_peak_bytes, number(process, "rss_bytes"))
    held: dict[int, float] = {}
    for gpu in members(row, "gpus"):
        for process in members(gpu, "processes"):
            pid, size_bytes = number(process, "pid"), number(process, "memory_bytes")
            if pid is None or size_bytes is None:
                continue
            known = by_pid.get(int(pid)) or _use(found, process, None)
            if known is not None:
                by_pid[known.pid] = known
                held[known.pid] = held.get(known.pid, 0.0) + size_bytes
    for pid, size_bytes in held.items():
        by_pid[int(pid)].gpu_peak_bytes = _larger(by_pid[int(pid)].gpu_peak_bytes, size_bytes)


def _use(
    found: dict[tuple[int, str | None, str | None], ProcessUse], process: Mapping[str, Any], role: str | None
) -> ProcessUse | None:
    pid = number(process, "pid")
    if pid is None:
        return None
    key = int(pid), role, text(process, "name")
    if key not in found and len(found) >= MAX_PROCESSES:
        return None
    return found.setdefault(key, ProcessUse(*key))


def _larger(known: float | None, value: float | None) -> float | None:
    return known if value is None else max(known or 0.0, value)

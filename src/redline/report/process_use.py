"""Which processes used most: their CPU, their memory and what they hold on GPUs, over the samples of a recording."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redline.records import RecordTail, Row
from redline.report.row_values import members, number, text

MAX_READ_BYTES = 64_000_000  # of the end of a long recording: about a second of reading
MAX_PROCESSES = 20_000  # a program may start a process for every command
LARGEST = 8  # by each of CPU, memory and GPU memory


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

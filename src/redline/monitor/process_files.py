"""What the kernel tells of a process under /proc, by reading a few small files, 15 µs each.

psutil needs several reads for the same and has no cheap way to find children; at 20 samples a second that shows.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
ENDED = frozenset("ZXx")  # zombies count: their parent has not yet waited for them
MIN_INTERVAL_S = 0.1


@dataclass(frozen=True)
class ProcessStat:
    """One reading of /proc/<pid>/stat."""

    pid: int
    name: str
    state: str
    parent: int
    started_ticks: int  # since the machine was started; with the number, this tells processes apart
    cpu_s: float  # its own
    ended_children_cpu_s: float  # of the children it has waited for, and of theirs
    threads: int
    rss_bytes: int

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self.state in ENDED

    @property
    def started_unix_s(self) -> float:
        """When it was started, by today's wall clock."""
        since_s = time.clock_gettime(time.CLOCK_BOOTTIME) - self.started_ticks * TICK_S
        return time.time() - since_s

    @property
    def identity(self) -> tuple[int, int]:
        """Number and start, which tell it from a later process with the same number."""
        return self.pid, self.started_ticks


def read_stat(pid: int) -> ProcessStat | None:
    """Return a reading, or None where there is no such process."""
    content = _read(pid, "stat")
    if content is None:
        return None
    # the name is in parentheses and may hold any character, parentheses and spaces too
    head, _, tail = content.rpartition(b")")
    fields = tail.split()
    user, system, children_user, children_system = (int(ticks) for ticks in fields[11:15])
    return ProcessStat(
        pid=pid,
        name=head.partition(b"(")[2].decode(errors="replace"),
        state=fields[0].decode(),
        parent=int(fields[1]),
        started_ticks=int(fields[19]),
        cpu_s=(user + system) * TICK_S,
        ended_children_cpu_s=(children_user + children_system) * TICK_S,
        threads=int(fields[17]),
        rss_bytes=int(fields[21]) * PAGE_BYTES,
    )


def read_shared_bytes(pid: int) -> int | None:
    """Return the resident memory that is shared or backed by files; None where the kernel does not tell."""
    content = _read(pid, "statm")
    return None if content is None else int(content.split()[2]) * PAGE_BYTES


def read_pss_bytes(pid: int) -> int | None:
    """Return the resident memory with shared pages divided among their users; the kernel walks the page tables."""
    content = _read(pid, "smaps_rollup")
    for line in (content or b"").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return None


def read_storage_bytes(pid: int) -> tuple[int, int] | None:
    """Return bytes read from and written to storage, ended children included; None where the kernel does not tell."""
    content = _read(pid, "io")
    if not content:
        return None
    counts = dict(line.split(b": ") for line in content.splitlines())
    return int(counts[b"read_bytes"]), int(counts[b"write_bytes"])


def list_pids() -> set[int]:
    """Return the numbers of all processes."""
    return {int(name) for name in os.listdir(PROC) if name.isdecimal()}  # noqa: PTH208 - five times as fast


def _read(pid: int, name: str) -> bytes | None:
    try:
        descriptor = os.open(f"/proc/{pid}/{name}", os.O_RDONLY)
    except OSError:  # gone, or another user's
        return None
    try:
        return os.read(descriptor, 65_536)
    except OSError:
        return None
    finally:
        os.close(descriptor)


@dataclass(frozen=True)
class Usage:
    """One sample; the percentage is over the time since the last one."""

    interval_s: float
    cpu_percent: float  # 250: two and a half cores busy
    rss_bytes: int


class ProcessUsage:
    """Samples processor and memory of one process, by default the calling one, without children; never fails."""

    def __init__(self, pid: int | None = None) -> None:
        self._pid = os.getpid() if pid is None else pid
        self._last = read_stat(self._pid)
        self._sampled_s = time.monotonic()

    def sample(self) -> Usage | None:
        """Return the use since the last sample, or since construction; None if the process is gone."""
        last, now = self._last, self._read()
        if last is None or now is None:
            return None
        now_s = time.monotonic()
        interval_s, self._last, self._sampled_s = now_s - self._sampled_s, now, now_s
        # the kernel counts in ticks of 10 ms: over a few of them a percentage means nothing
        percent = 100.0 * (now.cpu_s - last.cpu_s) / interval_s if interval_s >= MIN_INTERVAL_S else 0.0
        return Usage(interval_s=interval_s, cpu_percent=percent, rss_bytes=now.rss_bytes)

    def _read(self) -> ProcessStat | None:
        """Return a reading; None if the process has ended, even if another has its number."""
        now = read_stat(self._pid)
        if now is None or now.has_ended or self._last is None or now.identity != self._last.identity:
            return None
        return now

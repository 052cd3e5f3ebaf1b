"""A process and its descendants: what they use of processors, memory and storage, in total, by role and each.

/proc is read by hand: a few small files, 15 µs each. psutil needs several reads for the same and has no cheap way to
find children; at 20 samples a second that shows.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from redline.jsonl import Row
from redline.monitor.machine import without_absent

PROC = Path("/proc")
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
ENDED = frozenset("ZXx")  # zombies included
MIN_INTERVAL_S = 0.1


@dataclass(frozen=True)
class ProcessStat:
    """One reading of /proc/<pid>/stat."""

    pid: int
    name: str
    state: str
    parent: int
    session: int  # id of the process that began it
    started_ticks: int  # since boot; with the id, this identifies a process
    cpu_s: float  # its own
    ended_children_cpu_s: float  # of children it has waited for, and theirs
    threads: int
    rss_bytes: int

    @property
    def has_ended(self) -> bool:
        """Whether it has ended."""
        return self.state in ENDED

    @property
    def started_unix_s(self) -> float:
        """When it was started, by the wall clock."""
        since_s = time.clock_gettime(time.CLOCK_BOOTTIME) - self.started_ticks * TICK_S
        return time.time() - since_s

    @property
    def identity(self) -> tuple[int, int]:
        """Id and start, which tell it from a later process with the same id."""
        return self.pid, self.started_ticks


def read_stat(pid: int) -> ProcessStat | None:
    """Return a reading, or None if there is no such process."""
    content = _read(pid, "stat")
    if content is None:
        return None
    # the name is in parentheses and may itself hold parentheses and spaces
    head, _, tail = content.rpartition(b")")
    fields = tail.split()
    user, system, children_user, children_system = (int(ticks) for ticks in fields[11:15])
    return ProcessStat(
        pid=pid,
        name=head.partition(b"(")[2].decode(errors="replace"),
        state=fields[0].decode(),
        parent=int(fields[1]),
        session=int(fields[3]),
        started_ticks=int(fields[19]),
        cpu_s=(user + system) * TICK_S,
        ended_children_cpu_s=(children_user + children_system) * TICK_S,
        threads=int(fields[17]),
        rss_bytes=int(fields[21]) * PAGE_BYTES,
    )


def read_shared_bytes(pid: int) -> int | None:
    """Return the resident memory that is shared or file-backed; None if unknown."""
    content = _read(pid, "statm")
    return None if content is None else int(content.split()[2]) * PAGE_BYTES


def read_pss_bytes(pid: int) -> int | None:
    """Return the resident memory with shared pages divided among their users; slow, the kernel walks page tables."""
    content = _read(pid, "smaps_rollup")
    for line in (content or b"").splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return None


def read_storage_bytes(pid: int) -> tuple[int, int] | None:
    """Return bytes read from and written to storage, ended children included; None if unknown."""
    content = _read(pid, "io")
    if not content:
        return None
    counts = dict(line.split(b": ") for line in content.splitlines())
    return int(counts[b"read_bytes"]), int(counts[b"write_bytes"])


def list_pids() -> set[int]:
    """Return the ids of all processes."""
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
    """Samples CPU and memory of one process, by default this one, without children; never fails."""

    def __init__(self, pid: int | None = None) -> None:
        self._pid = os.getpid() if pid is None else pid
        self._last = read_stat(self._pid)
        self._sampled_s = time.monotonic()

    def sample(self) -> Usage | None:
        """Return the use since the last sample or construction; None if the process is gone."""
        last, now = self._last, self._read()
        if last is None or now is None:
            return None
        now_s = time.monotonic()
        interval_s, self._last, self._sampled_s = now_s - self._sampled_s, now, now_s
        # the kernel counts ticks of 10 ms: over a few of them a percentage means nothing
        percent = 100.0 * (now.cpu_s - last.cpu_s) / interval_s if interval_s >= MIN_INTERVAL_S else 0.0
        return Usage(interval_s=interval_s, cpu_percent=percent, rss_bytes=now.rss_bytes)

    def _read(self) -> ProcessStat | None:
        """Return a reading; None if the process has ended, even if another has its id."""
        now = read_stat(self._pid)
        if now is None or now.has_ended or self._last is None or now.identity != self._last.identity:
            return None
        return now


# A tree of processes

Identity = tuple[int, int]  # id of a process, and when it started
MAIN, OTHER = "main", "other"  # roles of unnamed processes
MOST_LISTED = 500  # the largest processes in a row, whose length is limited
PSS_INTERVAL_S = 10.0
PSS_MOST_OF_TIME = 0.005  # it is slow for large processes, which are read less often


@dataclass(frozen=True)
class Count:
    """A counter of one process."""

    parent: int
    own: float  # its own use; 0 where the kernel gives one sum
    handed: float  # use of ended children; of both where the kernel gives one sum


@dataclass
class Total:
    """A counter summed over a tree, whose processes come and go. Parents must be read before their children.

    When a parent waits for an ended child, the kernel adds the child's counts to the parent's. What a parent gained
    this way, less what was known of the children that are gone, is what they used since they were last read.
    """

    value: float = 0.0
    last: Mapping[Identity, Count] | None = None  # None: the first reading is the baseline
    _late: dict[Identity, float] = field(default_factory=dict)

    def advance(self, now: Mapping[Identity, Count]) -> float:
        """Add a reading of all processes, and return the growth of the sum."""
        last, self.last = self.last, now
        if last is None:
            return 0.0
        gone = _gone_by_heir(last, now)
        growth = 0.0
        late: dict[Identity, float] = {}
        for process, count in now.items():
            before = last.get(process, Count(count.parent, 0.0, 0.0))
            handed, known = count.handed - before.handed, gone.get(process, 0.0)
            growth += max(0.0, count.own - before.own)
            growth += max(0.0, handed - known - self._late.get(process, 0.0))
            # a child that ended after its parent was read appears in the parent's next reading
            late[process] = max(0.0, known - handed)
        self._late = late
        self.value += growth
        return growth


def _gone_by_heir(last: Mapping[Identity, Count], now: Mapping[Identity, Count]) -> dict[Identity, float]:
    """Return the known use of ended processes, by the living process that inherits it."""
    by_pid = {process[0]: process for process in last}
    found: dict[Identity, float] = {}
    for process, count in last.items():
        if process in now:
            continue
        heir = by_pid.get(count.parent)
        while heir is not None and heir not in now:
            heir = by_pid.get(last[heir].parent)
        if heir is not None:
            found[heir] = found.get(heir, 0.0) + count.own + count.handed
    return found


class ProcessTree:
    """Follows a process and its descendants; orphans stay watched."""

    def __init__(self, pid: int, *, excluded_pid: int | None = None, is_new: bool = False) -> None:
        self.pid = pid
        self._excluded_pid = excluded_pid  # of the monitor itself
        # a monitor that started the process inherits its orphans
        self._adopts = is_new
        self._root: Identity | None = None
        self._members: list[Identity] = []  # parents before their children
        self._known: set[int] = set()  # processes whose parent was checked already
        # everything counts for a process that was started to be watched
        self._cpu, self._read, self._written = (Total(last={} if is_new else None) for _ in range(3))
        self._own_cpu_s: dict[Identity, float] | None = None
        self._next_pss_s = 0.0  # monotonic

    def sample(self, interval_s: float, roles: Mapping[Identity, str]) -> Row | None:
        """Return the use since the last sample; None if the process has ended and been waited for.

        The first sample is the baseline of the next: its rates are zero.
        """
        stats = self._look()
        if stats is None:
            return None
        seconds = max(interval_s, 1e-9)
        counts = {stat.identity: Count(stat.parent, stat.cpu_s, stat.ended_children_cpu_s) for stat in stats}
        cpu_s = self._cpu.advance({**self._heir(), **counts})
        cores = self._cores_used(stats, seconds)
        watched: list[Row] = [
            {
                "pid": stat.pid,
                "role": roles.get(stat.identity, MAIN if stat.pid == self.pid else OTHER),
                "name": stat.name,
                "cpu_cores_used": cores[stat.identity],
                "rss_bytes": stat.rss_bytes,
                "threads": stat.threads,
                **without_absent(shared_bytes=read_shared_bytes(stat.pid)),
            }
            for stat in stats
            if not stat.has_ended
        ]
        if interval_s > 0:
            self._add_pss(watched)
        return {
            "cpu_cores_used": cpu_s / seconds,
            "cpu_s": self._cpu.value,
            **_sums(watched, "rss_bytes", "shared_bytes", "pss_bytes", "threads"),
            "processes": len(watched),
            **self._storage(stats, seconds),
            "roles": _by_role(watched),
            "watched": sorted(watched, key=lambda process: -process["rss_bytes"])[:MOST_LISTED],
        }

    @property
    def has_ended(self) -> bool:
        """Whether the process itself has ended."""
        root = read_stat(self.pid)
        return root is None or root.has_ended or self._root not in (None, root.identity)

    def _cores_used(self, stats: list[ProcessStat], seconds: float) -> dict[Identity, float]:
        before, now = self._own_cpu_s, {stat.identity: stat.cpu_s for stat in stats}
        self._own_cpu_s = now
        if before is None:
            return dict.fromkeys(now, 0.0)
        return {process: max(0.0, cpu_s - before.get(process, 0.0)) / seconds for process, cpu_s in now.items()}

    def _look(self) -> list[ProcessStat] | None:
        """Read every process of the tree, including new ones."""
        root = read_stat(self.pid)
        if self._root is None and root is not None:
            self._root = root.identity
        if root is None or root.identity != self._root:
            return None
        pids = list_pids()
        stats = {root.pid: root}
        for identity in self._members:
            stat = read_stat(identity[0])
            if stat is not None and stat.identity == identity:
                stats[stat.pid] = stat
        self._add_descendants(stats, pids - self._known)
        self._known = pids
        self._members = [stat.identity for stat in stats.values() if stat.pid != self.pid]
        return list(stats.values())

    def _add_descendants(self, stats: dict[int, ProcessStat], new_pids: set[int]) -> None:
        """Add the new processes whose ancestors are in the tree."""
        strangers = [stat for pid in new_pids - stats.keys() - {self._excluded_pid} if (stat := read_stat(pid))]
        while found := [stat for stat in strangers if stat.parent in stats or self._is_adopted(stat)]:
            stats.update({stat.pid: stat for stat in found})
            strangers = [stat for stat in strangers if stat.pid not in stats]

    def _heir(self) -> dict[Identity, Count]:
        """Return the monitor's counter of adopted processes, without its own time."""
        monitor = read_stat(self._excluded_pid) if self._adopts and self._excluded_pid else None
        return {} if monitor is None else {monitor.identity: Count(0, 0.0, monitor.ended_children_cpu_s)}

    def _is_adopted(self, stat: ProcessStat) -> bool:
        return self._adopts and stat.parent == self._excluded_pid

    def _add_pss(self, watched: list[Row]) -> None:
        begun_s = time.monotonic()
        if begun_s < self._next_pss_s:
            return
        for process in watched:
            process.update(without_absent(pss_bytes=read_pss_bytes(process["pid"])))
        now_s = time.monotonic()
        self._next_pss_s = begun_s + max(PSS_INTERVAL_S, (now_s - begun_s) / PSS_MOST_OF_TIME)

    def _storage(self, stats: list[ProcessStat], seconds: float) -> dict[str, float]:
        """Return the rates of storage I/O, if known."""
        counts = {stat: count for stat in stats if (count := read_storage_bytes(stat.pid))}
        if not counts:
            return {}
        # the kernel gives one sum with ended children here
        read, written = (
            total.advance({stat.identity: Count(stat.parent, 0.0, count[place]) for stat, count in counts.items()})
            for place, total in enumerate((self._read, self._written))
        )
        return {"read_bytes_per_s": read / seconds, "write_bytes_per_s": written / seconds}


def _sums(watched: list[Row], *names: str) -> dict[str, int]:
    """Sum each field over the processes that have it."""
    return {
        name: sum(process.get(name, 0) for process in watched)
        for name in names
        if any(name in process for process in watched)
    }


def _by_role(watched: list[Row]) -> dict[str, Row]:
    roles: dict[str, Row] = {}
    for process in watched:
        role = roles.setdefault(process["role"], {"cpu_cores_used": 0.0, "rss_bytes": 0, "processes": 0})
        role["cpu_cores_used"] += process["cpu_cores_used"]
        role["rss_bytes"] += process["rss_bytes"]
        role["processes"] += 1
    return roles

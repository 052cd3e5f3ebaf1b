"""All processes of this machine at one moment, and which of them belong to a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from redline.monitor.processes import ProcessStat, list_pids, read_shared_bytes, read_stat


@dataclass(frozen=True)
class ProcessTable:
    """What one look at the processes tells."""

    by_pid: Mapping[int, ProcessStat]
    _children: dict[int, list[int]] = field(default_factory=dict)
    _sessions: dict[int, list[ProcessStat]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for stat in self.by_pid.values():
            self._children.setdefault(stat.parent, []).append(stat.pid)
            if not stat.has_ended:
                self._sessions.setdefault(stat.session, []).append(stat)

    def is_living(self, pid: int) -> bool:
        """Tell whether there is a process of this number that has not ended."""
        return pid in self.by_pid and not self.by_pid[pid].has_ended

    def tree(self, pid: int) -> list[ProcessStat]:
        """Return a process and its descendants, those that have ended left out."""
        found, places = [], [pid]
        while places:
            if (stat := self.by_pid.get(place := places.pop())) is None:
                continue
            found.append(stat)
            places += self._children.get(place, ())
        return [stat for stat in found if not stat.has_ended]

    def session(self, pid: int) -> list[ProcessStat]:
        """Return the living processes of the session that a process began."""
        return self._sessions.get(pid, [])

    def living(self, processes: Iterable[tuple[int, int]]) -> list[ProcessStat]:
        """Return those of some processes, known by their identities, that still live."""
        found = ((self.by_pid.get(identity[0]), identity) for identity in processes)
        return [stat for stat, identity in found if stat and stat.identity == identity and not stat.has_ended]


def read_processes() -> ProcessTable:
    """Look at all processes."""
    return ProcessTable({pid: stat for pid in list_pids() if (stat := read_stat(pid)) is not None})


def private_bytes(processes: Iterable[ProcessStat]) -> int:
    """Return the memory that processes hold for themselves: without files, and without a shared replay memory."""
    return sum(max(0, stat.rss_bytes - (read_shared_bytes(stat.pid) or 0)) for stat in processes)

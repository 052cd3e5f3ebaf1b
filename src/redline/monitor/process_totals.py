"""Counts over processes that come and go: the kernel hands what an ended process counted to its parent.

It does so when the parent waits for it. So what a parent was handed, less what was known of the children that are gone,
is what they counted since they were last seen, or at all if they were never seen.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Identity = tuple[int, int]  # number of a process, and when it started


@dataclass(frozen=True)
class Count:
    """One process, as it was read."""

    parent: int
    own: float  # counted by itself, where that is told apart
    handed: float  # by ended children, and by itself where it is not told apart


@dataclass
class Total:
    """The sum over a tree. Parents must be read before their children."""

    value: float = 0.0
    last: Mapping[Identity, Count] | None = None  # None: the first reading is the base
    _late: dict[Identity, float] = field(default_factory=dict)

    def advance(self, now: Mapping[Identity, Count]) -> float:
        """Take in a reading of all processes, and return by how much the count grew."""
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
            # a child that went after its parent was read is handed over by the next reading
            late[process] = max(0.0, known - handed)
        self._late = late
        self.value += growth
        return growth


def _gone_by_heir(last: Mapping[Identity, Count], now: Mapping[Identity, Count]) -> dict[Identity, float]:
    """Return what was known of those that are gone, under the living process that inherits it."""
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

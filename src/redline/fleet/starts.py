"""Runners that were started and have not taken their lease yet: they may never do so."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from redline.fleet.engines.base import Engine
from redline.fleet.slots import LOGS, STARTING, SlotStatus

START_S = 120.0  # from the placement to the lease
MOST_STARTS = 3  # in a row without a lease
PAUSE_S = 10.0  # before the next try


@dataclass(frozen=True)
class Start:
    """One start of a runner."""

    epoch: int  # of the lease before
    at_s: float


class Starts:
    """Follows runners from their start to their lease."""

    def __init__(self, folder: Path, engine: Engine, clock: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._engine = engine
        self._clock = clock
        self._starts: dict[str, Start] = {}
        self._ended: dict[str, str] = {}  # how
        self._vain: dict[str, tuple[int, float]] = {}  # how often in a row, and when the last one was seen

    def __contains__(self, name: str) -> bool:
        return name in self._starts

    def __len__(self) -> int:
        return len(self._starts)

    def add(self, status: SlotStatus) -> None:
        """Note that the runner of a slot was started."""
        epoch = 0 if status.holder is None else status.holder.epoch
        self._starts[status.slot.name] = Start(epoch, self._clock())
        self._ended.pop(status.slot.name, None)

    def fail(self, name: str, reason: str) -> None:
        """Note why the runner of a slot could not even be started."""
        self._ended[name] = reason

    def may_start(self, name: str) -> bool:
        """Tell whether a slot may be started now: what failed at once is given a moment."""
        return self._clock() - self._vain.get(name, (0, -PAUSE_S))[1] >= PAUSE_S

    def look(self) -> None:
        """Ask which runners are over; to be called before the leases are read, for a lease is taken before that."""
        for name in self._starts:
            if (code := self._engine.exit_code(name)) is not None:
                log = self._folder / LOGS / f"{name}.log"
                self._ended.setdefault(name, f"its process ended with exit code {code}: see {log}")

    def seen_with(self, status: SlotStatus) -> SlotStatus:
        """Return a status with what is known of a runner that has no lease yet."""
        name = status.slot.name
        if (start := self._starts.get(name)) is None:
            return status
        if status.holder is not None and status.holder.epoch > start.epoch:
            del self._starts[name]
            self._vain.pop(name, None)
            return status
        reason = self._ended.get(name)
        if reason is None and self._clock() - start.at_s < START_S:
            return replace(status, state="running", reason=STARTING)
        del self._starts[name]
        if status.state == "done":  # by another runner
            return status
        times = self._vain.get(name, (0, 0.0))[0] + 1
        self._vain[name] = times, self._clock()
        reason = reason or f"it did not begin within {START_S:.0f} s: see {self._folder / LOGS / name}.log"
        return replace(status, state="given up" if times >= MOST_STARTS else "waiting", reason=reason)

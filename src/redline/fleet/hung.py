"""Ends runs that hang: that take no step and compute nothing for so long that nothing else can be the reason.

`health.py` tells of a hang within a minute; this is what becomes of one that nobody mends. A run that computes without
a step may be at a long evaluation, and one that was stopped by a signal was stopped by somebody: both are left alone.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from redline.fleet.lease import Holder
from redline.fleet.place import Place, here, is_alive
from redline.fleet.process_table import ProcessTable, read_processes
from redline.fleet.slots import SlotStatus
from redline.fleet.symptoms import IDLE_CORES, STOPPED

QUIET_S = 60.0  # without a step, before the processes are looked at
HUNG_S = 600.0  # without a step and without work


@dataclass
class Quiet:
    """A run that has taken no step lately."""

    steps: int
    since_s: float
    idle_since_s: float
    looked_s: float | None = None
    cpu_s: float = 0.0


class HungRuns:
    """Watches runs on this machine."""

    def __init__(
        self,
        *,
        place: Place | None = None,
        look_at_processes: Callable[[], ProcessTable] = read_processes,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._place = place or here()
        self._look_at_processes, self._clock = look_at_processes, clock
        self._quiet: dict[tuple[str, int], Quiet] = {}

    def find(self, statuses: Sequence[SlotStatus]) -> list[SlotStatus]:
        """Return the runs that hang."""
        now_s, table = self._clock(), None
        found, known = [], self._quiet
        self._quiet = {}
        for status in statuses:
            holder = status.holder
            if status.state != "running" or holder is None or not holder.place.shares_pids(self._place):
                continue
            key = (holder.slot, holder.epoch)
            quiet = known.get(key)
            if quiet is None or quiet.steps != status.steps:
                quiet = Quiet(status.steps, now_s, now_s)
            self._quiet[key] = quiet
            if now_s - quiet.since_s >= QUIET_S:
                table = table or self._look_at_processes()
                if _is_idle(quiet, holder, table, now_s) and now_s - quiet.idle_since_s >= HUNG_S:
                    found.append(status)
        return found


def end(holder: Holder) -> None:
    """Kill a run on this machine with all its processes; its slot is resumed."""
    with suppress(ProcessLookupError, PermissionError):
        if is_alive(holder.pid, holder.process_start_ticks):
            is_leader = os.getpgid(holder.pid) == holder.pid
            (os.killpg if is_leader else os.kill)(holder.pid, signal.SIGKILL)


def _is_idle(quiet: Quiet, holder: Holder, table: ProcessTable, now_s: float) -> bool:
    """Tell whether the processes of a run do nothing, and since when."""
    tree = {stat.pid: stat for stat in (*table.tree(holder.pid), *table.session(holder.pid))}
    cpu_s, before_s = sum(stat.cpu_s for stat in tree.values()), quiet.looked_s
    is_stopped = holder.pid in tree and tree[holder.pid].state.upper() == STOPPED
    works = before_s is None or cpu_s - quiet.cpu_s >= IDLE_CORES * (now_s - before_s)
    quiet.looked_s, quiet.cpu_s = now_s, cpu_s
    if works or is_stopped:
        quiet.idle_since_s = now_s
    return not works and not is_stopped

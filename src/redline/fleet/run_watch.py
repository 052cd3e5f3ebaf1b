"""Follows one attempt at a run by its files and, on this machine, by its processes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from redline.files import open_regular
from redline.fleet.lease import Holder
from redline.fleet.process_table import ProcessTable, private_bytes
from redline.fleet.slots import SlotStatus
from redline.fleet.symptoms import FIRST_EPISODES, HALF, STOPPED, Finding, Hang, Leak, Look, Workers, learns_nothing
from redline.jsonl import RecordTail, measured, parse_row, plain_text
from redline.monitor.hardware import HARDWARE
from redline.monitor.processes import Identity, ProcessStat

TAIL_BYTES = 64_000  # of what an earlier supervisor has seen
HEAD_BYTES = 64_000
HOT_GPU_C = 90.0
SLOWED_BY_HEAT = "thermal"
# events of a run that concern its health → kind of incident
TOLD_EVENTS = {"warning": "warning", "process-lost": "workers", "gpu-lost": "gpu"}


class RunWatch:
    """What is seen of one attempt of a slot."""

    def __init__(self, holder: Holder, run: Path | None) -> None:
        self.holder = holder
        self.was_over = False  # at an earlier look
        self.rss_bytes: int | None = None
        self.steps = 0
        self.workers = self.workers_alive = 0
        self.leak = Leak()
        self._run = run
        self._hang, self._workers = Hang(), Workers()
        self._metrics: RecordTail | None = None
        self._events: RecordTail | None = None
        self._hardware: RecordTail | None = None
        self._newest: Mapping[str, Any] = {}
        self._first_returns: list[float] = []
        self._members: set[Identity] = set()
        self._gone_cpu_s = 0.0
        self._cpu_s: dict[Identity, float] = {}

    def conditions(
        self, status: SlotStatus, table: ProcessTable | None, *, time_s: float, available_bytes: int
    ) -> Iterator[Finding]:
        """Yield what is wrong with the run now; `table` is None for one on another machine."""
        look = self._look(status, table, time_s)
        found = [self.leak.look(look, available_bytes), self._hang.look(look), self._workers.look(look), self._heat()]
        if look.progress is not None and look.progress >= HALF:
            self._first_returns = self._first_returns or first_returns(self._run)
            found.append(learns_nothing(look, self._first_returns))
        yield from (finding for finding in found if finding is not None)

    def events(self) -> Iterator[Finding]:
        """Yield what the run itself has told since the last look."""
        if self._run is None:
            return
        if self._events is None:
            self._events = RecordTail(self._run / "events.jsonl", last_bytes=TAIL_BYTES)
        for row in self._events.new_rows():
            kind = TOLD_EVENTS.get(str(row.get("event")))
            if kind is not None and (measured(row.get("unix_s")) or 0.0) >= self.holder.began_unix_s:
                lost = f"{row.get('role')} was lost: {row.get('why')}"
                yield Finding(kind, plain_text(lost if row.get("event") == "process-lost" else row.get("message")))

    def orphans(self, table: ProcessTable) -> list[ProcessStat]:
        """Return the processes of an attempt that is over."""
        found = {stat.identity: stat for stat in table.living(self._members)}
        if not table.is_living(self.holder.pid):  # else another process may have its number, and a session of its own
            found |= {stat.identity: stat for stat in table.session(self.holder.pid)}
        return list(found.values())

    def _look(self, status: SlotStatus, table: ProcessTable | None, time_s: float) -> Look:
        self._run = status.run or self._run
        row = self._newest_row()
        self.steps = max(status.steps, int(measured(row.get("steps")) or 0))
        tree = [] if table is None else table.tree(self.holder.pid)
        if table is not None:
            tree = list({stat.identity: stat for stat in [*tree, *table.session(self.holder.pid)]}.values())
            self._members = {stat.identity for stat in tree}
            self.rss_bytes = sum(stat.rss_bytes for stat in tree)
        workers, alive = _workers(row, {stat.pid for stat in tree})
        self.workers, self.workers_alive = workers, workers if table is None else alive
        return Look(
            time_s=time_s,
            steps=self.steps,
            updates=measured(row.get("updates")) or 0.0,
            progress=measured(row.get("progress")),
            mean_return=measured(row.get("mean_return_100")),
            episodes=int(measured(row.get("episodes")) or 0),
            replay_bytes=_touched_bytes(row),
            cpu_s=None if table is None else self._cpu_of(tree),
            private_bytes=None if table is None else private_bytes(tree),
            is_stopped=any(stat.pid == self.holder.pid and stat.state.upper() == STOPPED for stat in tree),
            workers=self.workers,
            workers_alive=self.workers_alive,
        )

    def _newest_row(self) -> Mapping[str, Any]:
        if self._run is not None:
            if self._metrics is None:
                self._metrics = RecordTail(self._run / "metrics.jsonl", last_bytes=TAIL_BYTES)
            if rows := self._metrics.new_rows():
                self._newest = rows[-1]
        is_own = (measured(self._newest.get("unix_s")) or 0.0) >= self.holder.began_unix_s
        return self._newest if is_own else {}

    def _cpu_of(self, tree: list[ProcessStat]) -> float:
        """Return the CPU time of all processes so far; that of processes that are gone stays in it."""
        now = {stat.identity: stat.cpu_s for stat in tree}
        self._gone_cpu_s += sum(cpu_s for identity, cpu_s in self._cpu_s.items() if identity not in now)
        self._cpu_s = now
        return self._gone_cpu_s + sum(now.values())

    def _heat(self) -> Finding | None:
        """Return whether a GPU of the run is too hot."""
        if self._run is None:
            return None
        if self._hardware is None:
            self._hardware = RecordTail(self._run / HARDWARE, last_bytes=TAIL_BYTES)
        rows = self._hardware.new_rows()
        gpus = rows[-1].get("gpus") if rows else None
        for gpu in gpus if isinstance(gpus, list) else ():
            reasons = gpu.get("throttle_reasons") if isinstance(gpu, dict) else None
            celsius = measured(gpu.get("temperature_c")) if isinstance(gpu, dict) else None
            is_slowed = isinstance(reasons, list) and any(SLOWED_BY_HEAT in str(reason) for reason in reasons)
            if is_slowed or (celsius is not None and celsius >= HOT_GPU_C):
                name = plain_text(gpu.get("name") or "its GPU")
                said = "is hot" if celsius is None else f"is at {celsius:.0f} °C"
                return Finding("heat", f"{name} {said}" + (", and slowed down" if is_slowed else ""), "cool it")
        return None


def first_returns(run: Path | None) -> list[float]:
    """Return the returns of the first episodes of a run, in which it played about at random."""
    rows = []
    if run is not None:
        with suppress(OSError), open_regular(run / "episodes.jsonl") as file:
            rows = [row for line in file.read(HEAD_BYTES).splitlines() if (row := parse_row(line)) is not None]
    returns = (measured(row.get("return")) for row in rows if row.get("role") == "actor")
    return [float(value) for value in returns if value is not None][:FIRST_EPISODES]


def _workers(row: Mapping[str, Any], pids: set[int]) -> tuple[int, int]:
    """Return how many processes a run should have, and how many are alive."""
    told = row.get("roles")
    roles = [role for role in told if isinstance(role, dict)] if isinstance(told, list) else []
    alive = sum(isinstance(pid := role.get("pid"), int) and pid in pids for role in roles)
    return max(1, len(roles)), alive if roles else 1


def _touched_bytes(row: Mapping[str, Any]) -> float:
    """Return what a replay memory holds by now: raw frames have their place from the start, and fill it in time."""
    held_bytes, capacity = measured(row.get("replay_bytes")) or 0.0, measured(row.get("replay_capacity_transitions"))
    if not capacity or capacity <= 0:
        return 0.0
    return max(0.0, held_bytes * min(1.0, (measured(row.get("replay_transitions")) or 0.0) / capacity))

"""How many runs of a fleet go side by side, and the threads of each: as asked, or as the first run shows."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import msgspec

from redline.files import free_bytes
from redline.fleet.engines.base import Engine
from redline.fleet.listing import Wishes, read_listing
from redline.fleet.needs import folder_bytes, gpu_room_bytes, measure_needs, resident_bytes
from redline.fleet.packing import Machine, Needs, NoRoomError, Packing, choose, together
from redline.fleet.slots import SLOTS_JSONL, SlotStatus
from redline.jsonl import RecordWriter, read_records
from redline.runs.host import available_bytes, usable_cores

PACKING, NEEDS, KIND = "packing", "needs", "kind"
LOOK_S = 5.0  # between two looks at runs that were not measured yet


@dataclass(frozen=True)
class Candidate:
    """A run that is to be measured."""

    run: Path
    pid: int


class Room:
    """Decides how many runs there is room for."""

    def __init__(self, folder: Path, engine: Engine, wishes: Wishes, log: RecordWriter) -> None:
        self._folder = folder
        self._wishes = wishes
        self._log = log
        self._engine = engine
        self._slots = len(read_listing(folder).slots)  # of the list: threads must not depend on how many are left
        self._found: Packing | None = None
        self._is_chosen = False  # by this supervisor: an earlier one may have had other wishes, or another machine
        self._measured: dict[str, Needs] = {}  # of each kind of run, the first first
        self._candidates: dict[str, Candidate] = {}
        self._next_look_s = 0.0
        self._read()

    @property
    def concurrency(self) -> int:
        """Runs that may go side by side now; one until it was measured, unless the user says otherwise."""
        if (cores := self._engine.cores()) is not None:  # now: nodes of a cluster come and go
            return min(self._wishes.concurrency or cores, cores)
        if self._found is not None:
            return self._found.concurrency
        return self._wishes.concurrency or 1

    @property
    def threads(self) -> int:
        """Threads of a run that begins now."""
        if self._engine.cores() is not None:
            return 1
        if self._found is not None:
            return self._found.threads
        return max(1, usable_cores() // min(self._wishes.concurrency or self._slots, usable_cores()))

    def describe(self) -> str:
        """Return why so many run side by side, in a line."""
        if (cores := self._engine.cores()) is not None:
            return f"{cores} cores answer in the cluster, one for each run"
        if self._found is not None:
            return self._found.why
        return "" if self._wishes.concurrency else "the first run shows how many fit"

    def update(self, running: Sequence[SlotStatus], *, slots: int) -> str | None:
        """Look at the runs of each kind that was not measured yet; return a line when the room has changed.

        The first must run alone: beside others a run uses fewer cores than it would. `slots` are left to train.
        """
        if self._engine.cores() is not None or time.monotonic() < self._next_look_s:
            return None
        self._next_look_s = time.monotonic() + LOOK_S
        if self._measured or self._wishes.concurrency or len(running) == 1:
            for kind, one in _candidates(running):
                if kind not in self._measured:
                    self._candidates.setdefault(kind, one)
        living = {status.run for status in running}
        found = {kind: _measure(one, is_over=one.run not in living) for kind, one in self._candidates.items()}
        news = {kind: needs for kind, needs in found.items() if needs is not None}
        over = {kind for kind, one in self._candidates.items() if one.run not in living}
        self._candidates = {kind: one for kind, one in self._candidates.items() if kind not in over | news.keys()}
        if not news and (self._is_chosen or not self._measured):
            return None
        return self._choose(news, [status.run for status in running if status.run is not None])

    def _choose(self, news: dict[str, Needs], runs: Sequence[Path]) -> str | None:
        """Count with what was measured, now or by an earlier supervisor; return a line if that changes the room."""
        before, self._measured, self._is_chosen = self._found, self._measured | news, True
        needs = together(list(self._measured.values()))
        machine = Machine(
            cores=usable_cores(),
            memory_bytes=available_bytes() + sum(map(resident_bytes, runs)),
            disk_bytes=free_bytes(self._folder) + sum(map(folder_bytes, runs)),
            gpu_memory_bytes=max((room for run in runs if (room := gpu_room_bytes(run)) is not None), default=None),
        )
        try:
            self._found = choose(needs, machine, slots=self._slots, asked=self._wishes.concurrency)
        except NoRoomError as error:  # the run itself goes on: it may end before its replay memory is full
            self._found = Packing(1, self.threads, str(error))
        is_same = before is not None and replace(before, why="") == replace(self._found, why="")
        for kind, one in (news or ({} if is_same else self._measured)).items():
            found = asdict(self._found)
            self._log.write({"unix_s": time.time(), KIND: kind, NEEDS: asdict(one), PACKING: found})
        return None if is_same else self._found.why

    def _read(self) -> None:
        """Take over what an earlier supervisor found out."""
        path = self._folder / SLOTS_JSONL
        for row in read_records(path) if path.is_file() else []:
            if PACKING in row:
                with suppress(msgspec.ValidationError):
                    found, needs = msgspec.convert(row[PACKING], Packing), msgspec.convert(row.get(NEEDS), Needs)
                    self._found, self._measured[str(row.get(KIND))] = found, needs


def _candidates(running: Sequence[SlotStatus]) -> Iterator[tuple[str, Candidate]]:
    for status in running:
        if status.run is not None and status.holder is not None:
            kind = json.dumps([status.slot.game, status.slot.algorithm, status.slot.settings], sort_keys=True)
            yield kind, Candidate(status.run, status.holder.pid)


def _measure(candidate: Candidate, *, is_over: bool) -> Needs | None:
    """Return what a run takes; None if it can't be told yet."""
    return measure_needs(candidate.run, None if is_over else candidate.pid)

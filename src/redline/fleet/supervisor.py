"""Keeps the runs of a fleet going until all are over: places them, follows their leases, and writes down what happens.

It may be killed at any moment: runs go on, and the next supervisor finds them by their leases.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from redline.errors import UserError
from redline.files import explained
from redline.fleet.engines.base import Engine
from redline.fleet.health import Health
from redline.fleet.lease import Lease, Watcher, ask_to_stop
from redline.fleet.listing import FLEET_JSON, ordered, read_listing
from redline.fleet.room import Room
from redline.fleet.slots import SLOTS_JSONL, STATES, Book, SlotStatus, State, row_of
from redline.jsonl import RecordWriter

SUPERVISOR = "supervisor"  # in place of a slot, as the name of a lease
POLL_S, SHOW_S, HEALTH_S = 0.5, 1.0, 10.0
START_S = 120.0  # from the placement to the lease
MOST_STARTS = 3  # in a row without a lease
STOP_S = 90.0  # for all runs to save themselves
REPORT_S = 900.0

Stop = Callable[[], str | None]


class Display(Protocol):
    """Shows a fleet."""

    def note(self, text: str) -> None:
        """Show a line."""

    def show(self, statuses: Sequence[SlotStatus], packing: str) -> None:
        """Show how the slots stand."""


@dataclass(frozen=True)
class Summary:
    """What came of a fleet."""

    counts: Mapping[State, int]
    stopped: str | None  # why it was stopped before its end


@dataclass(frozen=True)
class Start:
    """A runner that was started and has not taken its lease yet."""

    epoch: int  # of the lease before
    at_s: float


def supervise(folder: Path, engine: Engine, display: Display, stop: Stop, *, retry: bool = False) -> Summary:
    """Train all slots of a fleet to their ends, or until told to stop; one supervisor at a time."""
    with Lease.take(folder, SUPERVISOR, watcher=Watcher(folder)) as lease:
        lease.beat_with(dict)
        with explained(UserError, folder), RecordWriter(folder / SLOTS_JSONL) as log:
            return Supervisor(folder, engine, display, log).run(stop, retry=retry)


class Supervisor:
    """One supervision of a fleet."""

    def __init__(self, folder: Path, engine: Engine, display: Display, log: RecordWriter) -> None:
        self._folder = folder
        self._engine = engine
        self._display = display
        self._log = log
        self._book = Book(folder)
        self._health = Health(folder)
        self._listing = read_listing(folder)
        self._listed = self._list_time()
        self._known: dict[str, tuple[State, int]] = {}  # the state and attempt that was last written down
        self._starts: dict[str, Start] = {}
        self._vain_starts: dict[str, int] = {}
        self._asked: set[tuple[str, int]] = set()  # slots and epochs that were asked to stop
        self._placed_s = -float("inf")
        self._is_stopping = False
        self._room = Room(folder, engine, self._listing.wishes, log)

    def run(self, stop: Stop, *, retry: bool) -> Summary:
        """Supervise until nothing is left to do."""
        self._begin(retry=retry)
        next_show_s = next_health_s = 0.0
        while (reason := stop()) is None:
            statuses = self._look()
            if all(status.state in ("done", "given up", "stopped") for status in statuses) and not self._starts:
                break
            self._place(statuses)
            if time.monotonic() >= next_health_s:
                next_health_s = time.monotonic() + HEALTH_S
                self._tell_health(statuses)
            if time.monotonic() >= next_show_s:
                next_show_s = time.monotonic() + SHOW_S
                self._display.show(statuses, self._room.describe())
            time.sleep(POLL_S)
        if reason is not None:
            self._stop_all(reason)
        statuses = self._look()
        self._display.show(statuses, self._room.describe())
        counts: dict[State, int] = {state: sum(status.state == state for status in statuses) for state in STATES}
        return Summary(counts, reason)

    def _begin(self, *, retry: bool) -> None:
        """Let slots go on that were stopped, or, if the user says so, given up."""
        again = ("stopped", "given up") if retry else ("stopped",)
        for status in self._book.statuses(self._listing):
            if status.state in again:
                self._write(replace(status, state="waiting", reason=f"was {status.state}"))

    def _look(self) -> list[SlotStatus]:
        """Return how the slots stand, and write down what has changed."""
        for line in self._engine.poll():
            self._display.note(line)
        self._follow_list()
        statuses = [self._go_on(self._with_start(status)) for status in self._book.statuses(self._listing)]
        for status in statuses:
            if self._known.get(status.slot.name) != (status.state, status.attempt):
                self._write(status)
                if status.state != "waiting" or status.attempt:
                    self._display.note(_describe(status))
        return statuses

    def _with_start(self, status: SlotStatus) -> SlotStatus:
        """Return a status with what is known of a runner that was started and has no lease yet."""
        name = status.slot.name
        if (start := self._starts.get(name)) is None:
            return status
        if status.holder is not None and status.holder.epoch > start.epoch:
            del self._starts[name]
            self._vain_starts.pop(name, None)
            return status
        if time.monotonic() - start.at_s < START_S:
            return replace(status, state="running", reason="starting")
        del self._starts[name]
        self._vain_starts[name] = self._vain_starts.get(name, 0) + 1
        reason = f"did not start within {START_S:.0f} s: see {self._folder / 'logs' / name}.log"
        if self._vain_starts[name] >= MOST_STARTS:
            return replace(status, state="given up", reason=reason)
        return replace(status, state="waiting", reason=reason)

    def _go_on(self, status: SlotStatus) -> SlotStatus:
        """Let a slot wait that was asked to stop, and is on the list again."""
        is_asked = status.state == "stopped" and status.holder is not None and status.holder.is_stopped
        return replace(status, state="waiting") if is_asked and not self._is_stopping else status

    def _write(self, status: SlotStatus) -> None:
        self._log.write(row_of(status))
        self._known[status.slot.name] = (status.state, status.attempt)

    def _place(self, statuses: Sequence[SlotStatus]) -> None:
        """Start the next run if there is room for it."""
        waiting = [status for status in statuses if status.state == "waiting"]
        running = [status for status in statuses if status.state == "running"]
        if note := self._room.update(running, slots=len(waiting) + len(running)):
            self._display.note(note)
        is_early = time.monotonic() - self._placed_s < self._listing.wishes.stagger_s
        if not waiting or len(running) >= self._room.concurrency or (running and is_early):
            return
        first = ordered([status.slot for status in waiting], self._listing.wishes.order)[0]
        (holder,) = (status.holder for status in waiting if status.slot == first)
        self._engine.place(first.name, self._room.threads)
        self._placed_s = time.monotonic()
        self._starts[first.name] = Start(0 if holder is None else holder.epoch, self._placed_s)

    def _follow_list(self) -> None:
        """Take over a list that was changed: slots that left it are asked to stop, new ones wait."""
        if self._list_time() == self._listed:
            return
        before, self._listed = self._listing, self._list_time()
        self._listing = read_listing(self._folder)
        names = {slot.name for slot in self._listing.slots}
        self._display.note(f"the list has changed: version {len(self._listing.versions)}, {len(names)} slots")
        for slot in before.slots:
            if slot.name not in names:
                self._ask_to_stop(self._book.status(slot))

    def _list_time(self) -> tuple[int, int]:
        facts = (self._folder / FLEET_JSON).stat()
        return facts.st_mtime_ns, facts.st_ino

    def _ask_to_stop(self, status: SlotStatus) -> bool:
        """Ask a run to save itself and end; return whether there is one."""
        if status.state != "running" or status.holder is None or status.slot.name in self._starts:
            return status.state == "running"
        if (key := (status.slot.name, status.holder.epoch)) not in self._asked:
            self._asked.add(key)
            ask_to_stop(self._folder, status.holder)
        return True

    def _stop_all(self, reason: str) -> None:
        """Ask all runs to save themselves, and wait until they have."""
        self._is_stopping = True
        self._display.note(f"stopping: {reason}")
        end_s = time.monotonic() + STOP_S
        while running := [status for status in self._look() if self._ask_to_stop(status)]:
            if time.monotonic() > end_s:
                names = ", ".join(status.slot.name for status in running)
                self._display.note(f"after {STOP_S:.0f} s these still run: {names}")
                return
            time.sleep(POLL_S)

    def _tell_health(self, statuses: Sequence[SlotStatus]) -> None:
        expected = sum(status.state == "running" for status in statuses)
        for incident in self._health.sample(statuses, expected=expected):
            self._display.note(f"{incident.slot}: {incident.message}" if incident.slot else incident.message)


def write_report(folder: Path) -> str:
    """Write the report in a process of its own, because charts need much memory; return a line about it."""
    command = [sys.executable, "-m", "redline.cli.main", "fleet", "report", str(folder), "--plain"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=REPORT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no report: {error}"
    lines = (said.stdout if said.returncode == 0 else said.stderr).strip().splitlines()
    return lines[-1] if lines else f"no report: exit code {said.returncode}"


def _describe(status: SlotStatus) -> str:
    """Say in a line what has become of a slot."""
    words = status.state if status.attempt < 2 else f"{status.state}, attempt {status.attempt}"
    steps = f", {status.steps:,} steps" if status.steps else ""
    return f"{status.slot.name}: {words}{steps}" + (f" ({status.reason})" if status.reason else "")

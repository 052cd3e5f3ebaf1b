"""Keeps the runs of a fleet going until all are over: places them, follows their leases, and writes down what happens.

It may be killed at any moment: runs go on, and the next supervisor finds them by their leases.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from redline.errors import UserError
from redline.files import explained, free_bytes
from redline.fleet.engines.base import Engine
from redline.fleet.health import Health
from redline.fleet.hung import HungRuns, end
from redline.fleet.incidents import LEAST_DISK_BYTES
from redline.fleet.lease import Lease, Watcher, ask_to_stop, describe, read_holder, wait_until_free
from redline.fleet.listing import FLEET_JSON, Slot, ordered, read_listing
from redline.fleet.room import Room
from redline.fleet.slot_log import SlotLog
from redline.fleet.slots import SLOTS_JSONL, STATES, SUPERVISOR, Book, SlotStatus, State, row_of
from redline.fleet.starts import START_S, Starts
from redline.fleet.time_left import time_left
from redline.jsonl import plain_text
from redline.units import size

POLL_S, SHOW_S, HEALTH_S = 0.5, 1.0, 10.0
MOST_SHARE, LONGEST_POLL_S = 0.01, 5.0  # of a core that looking at thousands of slots may take
STOP_S = 90.0  # for all runs to save themselves
REPORT_S = 900.0
RESUME_STAGGER_S = 2.0  # between the starts of runs that go on
SHOWN_ALREADY = ("crash", "given-up")  # incidents that are states of a slot too

Stop = Callable[[], str | None]


class Display(Protocol):
    """Shows a fleet."""

    def note(self, text: str) -> None:
        """Show a line."""

    def show(self, statuses: Sequence[SlotStatus], packing: str, left_s: float | None) -> None:
        """Show how the slots stand, why so many run side by side, and how long it will take."""


@dataclass(frozen=True)
class Summary:
    """What came of a fleet."""

    counts: Mapping[State, int]
    stopped: str | None  # why it was stopped before its end


def supervise(folder: Path, engine: Engine, display: Display, stop: Stop, *, retry: bool = False) -> Summary:
    """Train all slots of a fleet to their ends, or until told to stop; one supervisor at a time."""
    watcher = Watcher(folder)
    before = read_holder(folder, SUPERVISOR)
    if before is not None and not before.place.shares_pids(watcher.place) and watcher.is_alive(before):
        display.note(f"waiting to see whether {describe(before)} still supervises this fleet …")
    wait_until_free(folder, SUPERVISOR, watcher)
    with Lease.take(folder, SUPERVISOR, watcher=watcher) as lease:
        lease.beat_with(dict)
        with explained(UserError, folder):
            log = SlotLog(folder / SLOTS_JSONL)
        with log:
            return Supervisor(folder, engine, display, log).run(stop, retry=retry)


class Supervisor:
    """One supervision of a fleet."""

    def __init__(self, folder: Path, engine: Engine, display: Display, log: SlotLog) -> None:
        self._folder = folder
        self._engine = engine
        self._display = display
        self._log = log
        self._book = Book(folder, is_supervisor=True)
        self._health = Health(folder)
        self._hung = HungRuns()
        self._listing = read_listing(folder)
        self._listed = self._list_time()
        self._known: dict[str, tuple[State, int]] = {}  # the state and attempt that was last written down
        self._starts = Starts(folder, engine)
        self._left: dict[str, tuple[Slot, float]] = {}  # slots that left the list, and when
        self._leave(slot for name, slot in self._listing.all_slots.items() if name not in self._names())
        self._asked: set[tuple[str, int]] = set()  # slots and epochs that were asked to stop
        self._placed_s = -float("inf")
        self._is_stopping = False
        self._troubles: dict[str, str] = {}  # that are told, and last
        self._room = Room(folder, engine, self._listing.wishes, log)

    def run(self, stop: Stop, *, retry: bool) -> Summary:
        """Supervise until nothing is left to do."""
        self._begin(retry=retry)
        next_show_s = next_health_s = 0.0
        while (reason := stop()) is None:
            begun_cpu_s = time.process_time()
            statuses, left = self._look(), self._stop_left()
            is_over = all(status.state in ("done", "given up", "stopped") for status in statuses)
            if is_over and not self._starts and not left:
                break
            self._place(statuses, left=left)
            if time.monotonic() >= next_health_s:
                next_health_s = time.monotonic() + HEALTH_S
                self._tell_health(statuses)
            if time.monotonic() >= next_show_s:
                next_show_s = time.monotonic() + SHOW_S
                self._show(statuses)
            spent_s = time.process_time() - begun_cpu_s
            time.sleep(min(max(POLL_S, spent_s / MOST_SHARE), LONGEST_POLL_S))
        if reason is not None:
            self._stop_all(reason)
        statuses = self._look()
        self._tell_health(statuses)
        self._show(statuses)
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
        self._starts.look()
        found = self._book.statuses(self._listing)
        statuses = [self._go_on(self._starts.seen_with(status)) for status in found]
        for status in statuses:
            if self._known.get(status.slot.name) != (status.state, status.attempt):
                self._write(status)
                if status.state != "waiting" or status.attempt:
                    self._display.note(_describe(status))
        self._log.flush()
        self._tell("log", self._log.trouble and f"{SLOTS_JSONL} can't be written: {self._log.trouble}")
        return statuses

    def _go_on(self, status: SlotStatus) -> SlotStatus:
        """Let a slot wait that was asked to stop, and is on the list again."""
        is_asked = status.state == "stopped" and status.holder is not None and status.holder.is_stopped
        return replace(status, state="waiting") if is_asked and not self._is_stopping else status

    def _write(self, status: SlotStatus) -> None:
        self._log.write(row_of(status))
        self._known[status.slot.name] = (status.state, status.attempt)

    def _show(self, statuses: Sequence[SlotStatus]) -> None:
        self._display.show(statuses, self._room.describe(), time_left(statuses, self._room.concurrency))

    def _place(self, statuses: Sequence[SlotStatus], *, left: int) -> None:
        """Start the next run if there is room for it; some run that have left the list."""
        waiting = {status.slot.name: status for status in statuses if status.state == "waiting"}
        running = [status for status in statuses if status.state == "running"]
        if note := self._room.update(running, slots=len(waiting) + len(running)):
            self._display.note(note)
        ready = [status.slot for name, status in waiting.items() if self._starts.may_start(name)]
        if not ready or len(running) + left >= self._room.concurrency or self._is_disk_full():
            return
        first = ordered(ready, self._listing.wishes.order)[0]
        stagger_s = self._listing.wishes.stagger_s
        if waiting[first.name].attempt:  # after a reboot all are to go on soon
            stagger_s = min(stagger_s, RESUME_STAGGER_S)
        if running and time.monotonic() - self._placed_s < stagger_s:
            return
        self._placed_s = time.monotonic()
        self._starts.add(waiting[first.name])
        try:
            self._engine.place(first.name, self._room.threads)
        except UserError as error:
            self._starts.fail(first.name, plain_text(error))

    def _is_disk_full(self) -> bool:
        """Tell whether a run could not even begin: each would be given up."""
        free = free_bytes(self._folder)
        is_full = free < LEAST_DISK_BYTES
        said = (
            f"{size(free)} are free in {self._folder}, and no run is started below {size(LEAST_DISK_BYTES)}: make room"
        )
        self._tell("disk", said if is_full else None)
        return is_full

    def _tell(self, about: str, trouble: str | None) -> None:
        """Tell of a trouble once while it lasts."""
        if trouble is None:
            self._troubles.pop(about, None)
        elif about not in self._troubles:
            self._troubles[about] = trouble
            self._display.note(trouble)

    def _follow_list(self) -> None:
        """Take over a list that was changed: slots that left it are asked to stop, new ones wait."""
        try:
            if (listed := self._list_time()) == self._listed:
                return
            before, self._listing, self._listed = self._listing, read_listing(self._folder), listed
        except (OSError, UserError) as error:
            self._tell("list", f"the list can't be read, so the one before counts: {error}")
            return
        self._tell("list", None)
        names = self._names()
        self._display.note(f"the list has changed: version {len(self._listing.versions)}, {len(names)} slots")
        self._left = {name: left for name, left in self._left.items() if name not in names}
        self._leave(slot for slot in before.slots if slot.name not in names)

    def _names(self) -> set[str]:
        return {slot.name for slot in self._listing.slots}

    def _leave(self, slots: Iterable[Slot]) -> None:
        self._left |= {slot.name: (slot, time.monotonic()) for slot in slots}

    def _stop_left(self) -> int:
        """Ask runs to stop whose slots left the list, also those that begin only now; return how many there are."""
        count = 0
        for name, (slot, at_s) in list(self._left.items()):
            status = self._starts.seen_with(self._book.status(slot))
            if self._ask_to_stop(status):
                count += 1
            elif self._known.get(name, ("stopped", 0))[0] == "running":
                self._write(status)
            elif time.monotonic() - at_s > START_S:
                del self._left[name]
        return count

    def _list_time(self) -> tuple[int, int]:
        facts = (self._folder / FLEET_JSON).stat()
        return facts.st_mtime_ns, facts.st_ino

    def _ask_to_stop(self, status: SlotStatus) -> bool:
        """Ask a run to save itself and end; return whether there is one."""
        if status.state != "running" or status.holder is None or status.slot.name in self._starts:
            return status.state == "running"
        if (key := (status.slot.name, status.holder.epoch)) not in self._asked:
            try:
                ask_to_stop(self._folder, status.holder)
            except OSError as error:
                self._tell(f"stop {status.slot.name}", f"{status.slot.name} can't be asked to stop: {error}")
            else:
                self._asked.add(key)
        return True

    def _stop_all(self, reason: str) -> None:
        """Ask all runs to save themselves, and wait until they have."""
        self._is_stopping = True
        self._display.note(f"stopping: {reason}")
        end_s = time.monotonic() + STOP_S
        while (running := [status for status in self._look() if self._ask_to_stop(status)]) or self._stop_left():
            if time.monotonic() > end_s:
                names = ", ".join(status.slot.name for status in running)
                self._display.note(f"after {STOP_S:.0f} s these still run: {names}")
                return
            time.sleep(POLL_S)

    def _tell_health(self, statuses: Sequence[SlotStatus]) -> None:
        expected = sum(status.state == "running" for status in statuses)
        for incident in self._health.sample(statuses, expected=expected):
            if incident.kind not in SHOWN_ALREADY:
                self._display.note(incident.line)
        for status in self._hung.find(statuses):
            if status.holder is not None:
                self._display.note(f"{status.slot.name}: it hangs and is killed, to go on from its last checkpoint")
                end(status.holder)


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

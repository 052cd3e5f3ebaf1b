"""How the slots of a fleet stand, from its files alone: the rows of `slots.jsonl`, the leases, and the runs' metrics.

A row says what a supervisor decided, a lease what became of the newest attempt since: the newer one counts.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from redline.fleet.lease import LEASES, Holder, Watcher, read_holder
from redline.fleet.listing import Listing, Slot
from redline.jsonl import RecordTail, Row, measured, plain_text

SUPERVISOR = "supervisor"  # in place of a slot, as the name of a lease
SLOTS_JSONL, RUNS, LOGS = "slots.jsonl", "runs", "logs"
STARTING = "starting"  # reason of a slot whose process has no lease yet
LAST_BYTES = 64_000  # of the metrics: only the newest row is needed
MOST_FAILURES = 3  # in a row without a new step: the run fails by itself
MOST_KILLS = 10  # in a row without any step: something outside ends it each time
DONE, FAILED, BAD_INPUT, RESUMABLE = 0, 1, 2, 75  # exit codes of a run

State = Literal["waiting", "running", "done", "stopped", "given up"]
STATES: tuple[State, ...] = ("waiting", "running", "done", "stopped", "given up")


@dataclass(frozen=True)
class SlotStatus:
    """One slot as its supervisor, `redline fleet status` and the report see it."""

    slot: Slot
    state: State
    attempt: int = 0  # 0: it has never been started
    run: Path | None = None
    steps: int = 0
    mean_return_100: float | None = None
    reason: str = ""  # why it is in that state, or what interrupted it last
    holder: Holder | None = None  # of the newest attempt
    time_s: float | None = None  # of training, in all attempts
    remaining_s: float | None = None  # until its nearest limit

    def to_json(self) -> dict[str, Any]:
        """Return what `redline fleet status --json` tells."""
        return {
            "slot": self.slot.name,
            "game": self.slot.game,
            "algorithm": self.slot.algorithm,
            "seed": self.slot.seed,
            "state": self.state,
            "attempt": self.attempt,
            "run": None if self.run is None else str(self.run),
            "steps": self.steps,
            "mean_return_100": self.mean_return_100,
            "reason": self.reason,
        }


def row_of(status: SlotStatus) -> Row:
    """Return a status as a row of `slots.jsonl`."""
    holder = status.holder
    return {
        "unix_s": time.time(),
        "slot": status.slot.name,
        "state": status.state,
        "attempt": status.attempt,
        "epoch": 0 if holder is None else holder.epoch,
        "beat": 0 if holder is None else holder.beat,
        "run": None if holder is None or not holder.run else holder.run,
        "steps": status.steps,
        "host": None if holder is None else holder.place.host,
        "boot_id": None if holder is None else holder.place.boot_id,
        "pid": None if holder is None else holder.pid,
        "process_start_unix_s": None if holder is None else holder.process_start_unix_s,
        "exit_code": None if holder is None else holder.exit_code,
        "reason": status.reason,
    }


class Book:
    """Follows the slots of a fleet; nothing is written.

    A look at a slot that does not run costs one question to the file system, so that thousands can be followed.
    """

    def __init__(self, folder: Path, *, is_supervisor: bool = False) -> None:
        self._folder = folder
        self._is_supervisor = is_supervisor  # it knows best what it has started
        self._watcher = Watcher(folder)
        self._tail = RecordTail(folder / SLOTS_JSONL)
        self._rows: dict[str, Row] = {}
        self._holders: dict[str, tuple[int, Holder | None]] = {}  # when the folder of its leases changed
        self._metrics: dict[str, Metrics] = {}

    def statuses(self, listing: Listing) -> list[SlotStatus]:
        """Return how the slots of a list stand now."""
        self._read_rows()
        return [self._status(slot) for slot in listing.slots]

    def status(self, slot: Slot) -> SlotStatus:
        """Return how one slot stands now; it may be of an earlier version of the list."""
        self._read_rows()
        return self._status(slot)

    def _read_rows(self) -> None:
        while rows := self._tail.new_rows():
            self._rows |= {str(row["slot"]): row for row in rows if "slot" in row}

    def _status(self, slot: Slot) -> SlotStatus:
        row, holder = self._rows.get(slot.name, {}), self._holder(slot.name)
        state: State = next((name for name in STATES if name == row.get("state")), "waiting")
        reason = plain_text(row.get("reason") or "")
        is_newer = holder is not None and holder.epoch > (measured(row.get("epoch")) or 0)
        if holder is not None and self._watcher.is_alive(holder):
            state, reason = "running", ""
        elif holder is not None and (is_newer or (state == "running" and reason != STARTING)):
            state, reason = outcome_of(holder)
        elif state == "running":  # it was started, and ended before it took the lease
            state, reason = ("running", STARTING) if self._is_supervised() else ("waiting", "did not start")
        metrics = self._metrics_of(holder)
        if metrics is not None and (state == "running" or metrics.state != state):
            metrics.read(state)
        return SlotStatus(
            slot=slot,
            state=state,
            attempt=0 if holder is None else holder.attempt,
            run=None if holder is None or not holder.run else self._folder / holder.run,
            steps=0 if metrics is None else int(metrics.get("steps") or 0),
            mean_return_100=None if metrics is None else metrics.get("mean_return_100"),
            reason=reason,
            holder=holder,
            time_s=None if metrics is None else metrics.get("time_s"),
            remaining_s=None if metrics is None or state != "running" else metrics.get("remaining_s"),
        )

    def _is_supervised(self) -> bool:
        """Tell whether another process supervises the fleet: what it has started will take its lease."""
        holder = None if self._is_supervisor else self._holder(SUPERVISOR)
        return holder is not None and self._watcher.is_alive(holder)

    def _holder(self, name: str) -> Holder | None:
        """Return the newest holder of a slot; one that has ended stays as it is until there is another."""
        changed_ns = -1
        with suppress(OSError):
            changed_ns = (self._folder / LEASES / name).stat().st_mtime_ns
        known = self._holders.get(name)
        if known is None or known[0] != changed_ns or (known[1] is not None and known[1].state == "running"):
            known = self._holders[name] = (changed_ns, read_holder(self._folder, name) if changed_ns >= 0 else None)
        return known[1]

    def _metrics_of(self, holder: Holder | None) -> Metrics | None:
        if holder is None or not holder.run:
            return None
        if holder.run not in self._metrics:
            self._metrics[holder.run] = Metrics(self._folder / holder.run)
        return self._metrics[holder.run]


class Metrics:
    """The newest row of a run's metrics."""

    def __init__(self, run: Path) -> None:
        self._tail = RecordTail(run / "metrics.jsonl", last_bytes=LAST_BYTES)
        self._newest: Row = {}
        self.state: State | None = None  # of the slot when they were read

    def read(self, state: State) -> None:
        """Look for newer rows."""
        self.state = state
        while rows := self._tail.new_rows():
            self._newest = rows[-1]

    def get(self, name: str) -> int | float | None:
        """Return a value of the newest row."""
        return measured(self._newest.get(name))


def read_statuses(folder: Path, listing: Listing) -> list[SlotStatus]:
    """Return how the slots of a fleet stand now."""
    return Book(folder).statuses(listing)


def outcome_of(holder: Holder) -> tuple[State, str]:
    """Return what an attempt that is over makes of its slot, and why."""
    reason = plain_text(holder.reason) or ("killed" if holder.state == "running" else f"exit code {holder.exit_code}")
    if holder.exit_code == DONE:
        return ("stopped", "stopped by Ctrl-C") if holder.reason == "SIGINT" else ("done", reason)
    if holder.exit_code == BAD_INPUT:
        return "given up", reason
    if holder.is_stopped:
        return "stopped", "asked to stop"
    vain, most = vain_attempts(holder, holder.steps), MOST_FAILURES if failed_itself(holder) else MOST_KILLS
    if vain >= most:
        return "given up", f"{vain} attempts without a new step, the last: {reason}"
    return "waiting", reason


def failed_itself(holder: Holder) -> bool:
    """Tell whether an attempt ended with an error of its own, not by a signal from outside."""
    return holder.exit_code == FAILED


def vain_attempts(holder: Holder, steps: int) -> int:
    """Return how many attempts in a row brought nothing, this one included.

    One that failed by itself must have gone beyond all before it: else it fails at the same step each time. One that
    was ended from outside must have taken any step.
    """
    least = holder.most_steps if failed_itself(holder) else holder.steps_at_start
    return 0 if steps > least else holder.vain + 1

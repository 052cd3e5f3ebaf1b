"""How the slots of a fleet stand, from its files alone: the rows of `slots.jsonl`, the leases, and the runs' metrics.

A row says what a supervisor decided, a lease what became of the newest attempt since: the newer one counts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from redline.fleet.lease import Holder, Watcher, read_holder
from redline.fleet.listing import Listing, Slot
from redline.jsonl import RecordTail, Row, measured, plain_text

SLOTS_JSONL, RUNS, LOGS = "slots.jsonl", "runs", "logs"
LAST_BYTES = 1_000_000  # of the metrics: only the newest row is needed
MOST_FAILURES = 3  # in a row without a new step: the run fails by itself
MOST_KILLS = 10  # in a row without any step: something outside ends it each time
DONE, BAD_INPUT = 0, 2  # exit codes of a run

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
    """Follows the slots of a fleet; nothing is written."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._watcher = Watcher(folder)
        self._tail = RecordTail(folder / SLOTS_JSONL)
        self._rows: dict[str, Row] = {}
        self._metrics: dict[Path, RecordTail] = {}
        self._newest: dict[Path, Row] = {}

    def statuses(self, listing: Listing) -> list[SlotStatus]:
        """Return how the slots of a list stand now."""
        for row in self._tail.new_rows():
            self._rows[str(row.get("slot"))] = row
        return [self._status(slot) for slot in listing.slots]

    def status(self, slot: Slot) -> SlotStatus:
        """Return how one slot stands now; it may be of an earlier version of the list."""
        for row in self._tail.new_rows():
            self._rows[str(row.get("slot"))] = row
        return self._status(slot)

    def _status(self, slot: Slot) -> SlotStatus:
        row, holder = self._rows.get(slot.name, {}), read_holder(self._folder, slot.name)
        state: State = next((name for name in STATES if name == row.get("state")), "waiting")
        reason = plain_text(row.get("reason") or "")
        is_newer = holder is not None and holder.epoch > (measured(row.get("epoch")) or 0)
        if holder is not None and self._watcher.is_alive(holder):
            state, reason = "running", ""
        elif holder is not None and (is_newer or state == "running"):
            state, reason = outcome_of(holder, steps_of_run(self._folder, holder))
        elif state == "running":  # it was started, and ended before it took the lease
            state, reason = "waiting", "did not start"
        run = None if holder is None or not holder.run else self._folder / holder.run
        newest = {} if run is None else self._newest_row(run)
        return SlotStatus(
            slot=slot,
            state=state,
            attempt=0 if holder is None else holder.attempt,
            run=run,
            steps=int(measured(newest.get("steps")) or 0),
            mean_return_100=measured(newest.get("mean_return_100")),
            reason=reason,
            holder=holder,
        )

    def _newest_row(self, run: Path) -> Mapping[str, Any]:
        if run not in self._metrics:
            self._metrics[run] = RecordTail(run / "metrics.jsonl", last_bytes=LAST_BYTES)
        if rows := self._metrics[run].new_rows():
            self._newest[run] = rows[-1]
        return self._newest.get(run, {})


def read_statuses(folder: Path, listing: Listing) -> list[SlotStatus]:
    """Return how the slots of a fleet stand now."""
    return Book(folder).statuses(listing)


def steps_of_run(folder: Path, holder: Holder) -> int:
    """Return the steps that an attempt reached: its last beat may be older than the newest row of its run."""
    tail = RecordTail(folder / holder.run / "metrics.jsonl", last_bytes=LAST_BYTES)
    return max(holder.steps, newest_steps(tail.new_rows(), holder.began_unix_s) if holder.run else 0)


def newest_steps(rows: Sequence[Row], began_unix_s: float) -> int:
    """Return the steps of the newest row, if it was written since; older ones are of earlier attempts."""
    newest = rows[-1] if rows else {}
    is_new = (measured(newest.get("unix_s")) or 0.0) >= began_unix_s
    return int(measured(newest.get("steps")) or 0) if is_new else 0


def outcome_of(holder: Holder, steps: int) -> tuple[State, str]:
    """Return what an attempt that is over makes of its slot, and why; it reached so many steps."""
    reason = plain_text(holder.reason) or ("killed" if holder.state == "running" else f"exit code {holder.exit_code}")
    if holder.exit_code == DONE:
        return ("stopped", "stopped by Ctrl-C") if holder.reason == "SIGINT" else ("done", reason)
    if holder.exit_code == BAD_INPUT:
        return "given up", reason
    if holder.is_stopped:
        return "stopped", "asked to stop"
    vain, most = vain_attempts(holder, steps), MOST_FAILURES if failed_itself(holder) else MOST_KILLS
    if vain >= most:
        return "given up", f"{vain} attempts without a new step, the last: {reason}"
    return "waiting", reason


def failed_itself(holder: Holder) -> bool:
    """Tell whether an attempt ended with an error of its own, not by a signal from outside."""
    return holder.exit_code == 1


def vain_attempts(holder: Holder, steps: int) -> int:
    """Return how many attempts in a row brought nothing, this one included.

    One that failed by itself must have gone beyond all before it: else it fails at the same step each time. One that
    was ended from outside must have taken any step.
    """
    least = holder.most_steps if failed_itself(holder) else holder.steps_at_start
    return 0 if steps > least else holder.vain + 1

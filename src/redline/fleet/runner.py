"""Trains one slot of a fleet in this process: begins its run, or goes on with it. Every engine starts just this."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from redline.errors import UserError, unknown_name
from redline.files import check_folders, check_own, explained, make_folder, open_own, open_regular, remove_tree
from redline.fleet.lease import Holder, Lease, Watcher, wait_until_free
from redline.fleet.listing import Slot, read_listing
from redline.fleet.slots import (
    BAD_INPUT,
    DONE,
    FAILED,
    LAST_BYTES,
    LOGS,
    RESUMABLE,
    RUNS,
    SLOTS_JSONL,
    outcome_of,
    vain_attempts,
)
from redline.jsonl import RecordTail, measured, plain_text, read_records
from redline.runs.directory import RunLock
from redline.runs.manifest import CHECKPOINTS, checkpoint_folders, steps_of
from redline.runs.run_json import read_run_json

METRICS = "metrics.jsonl"
POLL_S = 0.5
UNLOCK_S = 30.0  # processes of a run end within 5 s of its main one
LOG_TAIL_BYTES = 8_000
LEAST_MINUTES = 0.005  # of training that are worth a resume
SAID = "redline: "  # begins the line in which a command says why it ends

Program = Callable[[Sequence[str]], int]  # takes the arguments of `redline`


def run_slot(folder: Path, name: str, threads: int, program: Program) -> int:
    """Train a slot until its run is over, and return the exit code of that."""
    slots = read_listing(folder).all_slots
    if name not in slots:
        raise unknown_name("slot", name, slots)
    watcher = Watcher(folder)
    _trust_supervisor(folder, name, watcher)
    before = wait_until_free(folder, name, watcher)
    if before is not None and outcome_of(before)[0] == "done":
        return DONE  # a cluster may start a slot once too often
    lease = Lease.take(folder, name, watcher=watcher, threads=threads, **_facts(before))
    progress = Progress(folder, lease.holder)
    lease.beat_with(progress.facts)
    try:
        _write_to_log(folder, name)
        code, reason = _train(folder, lease, slots[name], progress, program)
    except BaseException as error:
        code = BAD_INPUT if isinstance(error, UserError) else FAILED
        lease.end(exit_code=code, reason=plain_text(_words_of(error)), **progress.facts())
        raise
    lease.end(exit_code=code, reason=reason, **progress.facts())
    return code


def _words_of(error: BaseException) -> str:
    return str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {error}"


def _train(folder: Path, lease: Lease, slot: Slot, progress: Progress, program: Program) -> tuple[int, str]:
    """Train under a lease; return the exit code, and why it ended."""
    for place in (folder / RUNS, folder / RUNS / slot.name):
        check_own(place, is_folder=True)
    check_folders(folder / RUNS / slot.name)  # a run is trained in one of them
    run = newest_run(folder, slot.name)  # only the holder may remove what is of no use
    if run is None:
        arguments = _started(folder, slot, lease.holder.threads)
    else:
        if (user := _wait_until_unlocked(run)) is not None:
            return RESUMABLE, user
        lease.note(**_facts_of_run(folder, run, lease.holder))
        progress.begin(run)
        arguments = _resumed(run, lease.holder)
    log = folder / LOGS / f"{slot.name}.log"
    begin_bytes = log.stat().st_size
    code = program(arguments)
    found = progress.facts().get("run")
    return code, _stop_reason(folder / found) if code == DONE and found else _last_words(log, begin_bytes)


def _wait_until_unlocked(run: Path) -> str | None:
    """Wait for the processes of an attempt that was killed; return who uses the run if that takes too long."""
    end_s = time.monotonic() + UNLOCK_S
    while True:
        try:
            RunLock(run).release()
        except UserError as error:
            if time.monotonic() > end_s:
                return plain_text(error)
            time.sleep(POLL_S)
        else:
            return None


def newest_run(folder: Path, name: str) -> Path | None:
    """Return the run of a slot that can go on; those that were killed before their first checkpoint are removed."""
    for run in reversed(run_folders(folder, name)):
        if checkpoint_folders(run / CHECKPOINTS):
            return run
        with suppress(UserError):  # a process of a killed attempt still has it
            RunLock(run).release()
            remove_tree(run)  # nothing was trained in it
    return None


def run_folders(folder: Path, name: str) -> list[Path]:
    """Return the run directories of a slot, the newest last."""
    found = (path for path in (folder / RUNS / name).glob("*/*/*") if path.is_dir() and not path.is_symlink())
    return sorted(found, key=lambda path: path.name)


def _trust_supervisor(folder: Path, name: str, watcher: Watcher) -> None:
    """Need not watch a holder on another machine again that the supervisor has found to be silent."""
    rows = RecordTail(folder / SLOTS_JSONL, last_bytes=LAST_BYTES).new_rows()
    row = next((row for row in reversed(rows) if row.get("slot") == name), {})
    epoch, beat = measured(row.get("epoch")), measured(row.get("beat"))
    if row.get("state") == "waiting" and epoch is not None and beat is not None:
        watcher.trust(name, int(epoch), int(beat))


def _facts(before: Holder | None) -> dict[str, Any]:
    """Return what a new lease takes over from the one before."""
    if before is None:
        return {}
    return {
        "attempt": before.attempt + 1,
        "vain": vain_attempts(before, before.steps),
        "most_steps": max(before.most_steps, before.steps),
        "max_minutes": before.max_minutes,
        "run": before.run,
    }


def _facts_of_run(folder: Path, run: Path, holder: Holder) -> dict[str, Any]:
    """Return what a lease says of the run that goes on."""
    steps = steps_of(checkpoint_folders(run / CHECKPOINTS)[0])
    facts: dict[str, Any] = {"run": str(run.relative_to(folder)), "steps_at_start": steps}
    if holder.max_minutes is None:  # a resume replaces them by what is left
        with suppress(UserError):
            facts["max_minutes"] = measured(read_run_json(run).get("config", {}).get("max_minutes"))
    return facts


def _started(folder: Path, slot: Slot, threads: int) -> list[str]:
    share = [f"--{name}={threads}" for name in ("learner.threads", "actor.threads") if name not in slot.settings]
    return ["train", *slot.flags, *share, "--log-dir", str(folder / RUNS / slot.name), "--plain"]


def _resumed(run: Path, holder: Holder) -> list[str]:
    """Return the arguments that continue a run; --max-minutes counts for each invocation, so the rest is passed."""
    limits = []
    if holder.max_minutes is not None:
        left = holder.max_minutes - minutes_trained(run)
        limits = ["--max-minutes", repr(max(left, LEAST_MINUTES))]
    return ["resume", str(run), *limits, "--plain"]


def minutes_trained(run: Path) -> float:
    """Return the minutes of training that the newest checkpoint holds."""
    steps = steps_of(checkpoint_folders(run / CHECKPOINTS)[0])
    metrics = run / METRICS
    rows = read_records(metrics) if metrics.is_file() else []
    times = [measured(row.get("time_s")) or 0.0 for row in rows if (measured(row.get("steps")) or 0) <= steps]
    return max(times, default=0.0) / 60


def _write_to_log(folder: Path, name: str) -> None:
    """Let all output of this process go to the slot's log, wherever an engine started it."""
    log = folder / LOGS / f"{name}.log"
    with explained(UserError, log):
        make_folder(log.parent)
        descriptor = open_own(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)


class Progress:
    """How far an attempt is, by the rows that its run writes: those of earlier attempts are not its own."""

    def __init__(self, folder: Path, holder: Holder) -> None:
        self._folder = folder
        self._slot = holder.slot
        self._known = set(run_folders(folder, holder.slot))
        self._run: Path | None = None
        self._tail: RecordTail | None = None
        self._steps = 0
        self._lock = threading.Lock()

    def begin(self, run: Path) -> None:
        """Follow a run that goes on. It moves rows beyond its checkpoint away before it writes new ones."""
        tail = RecordTail(run / METRICS, last_bytes=LAST_BYTES)
        while tail.new_rows():
            pass
        with self._lock:
            self._run, self._tail = run, tail

    def facts(self) -> dict[str, Any]:
        """Return the run and its steps, as far as they are known."""
        with self._lock:
            if self._run is None:
                found = [run for run in run_folders(self._folder, self._slot) if run not in self._known]
                if not found:
                    return {}
                self._run = found[-1]
                self._tail = RecordTail(self._run / METRICS)
            rows = [] if self._tail is None else self._tail.new_rows()
            self._steps = max([self._steps, *(int(measured(row.get("steps")) or 0) for row in rows)])
            return {"run": str(self._run.relative_to(self._folder)), "steps": self._steps}


def _stop_reason(run: Path) -> str:
    """Return why a run ended, in the words of its last stop."""
    rows = RecordTail(run / "events.jsonl", last_bytes=LAST_BYTES).new_rows()
    return next((plain_text(row.get("reason")) for row in reversed(rows) if row.get("event") == "stop"), "")


def _last_words(log: Path, begin_bytes: int) -> str:
    """Return the last error that this attempt wrote into the log."""
    with suppress(OSError), open_regular(log) as file:
        file.seek(max(begin_bytes, log.stat().st_size - LOG_TAIL_BYTES))
        lines = file.read(LOG_TAIL_BYTES).decode(errors="replace").splitlines()
        words = [line.removeprefix(SAID) for line in lines if line.startswith(SAID)]
        return plain_text(words[-1]) if words else ""
    return ""

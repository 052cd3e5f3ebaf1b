"""Starts `redline` as a user does, watches the records that it writes, and reads a window of steady training.

A window opens and closes at readings in metrics.jsonl, which come every 5 s. Each reading counts steps, updates and
time at one moment. Start-up and warm-up lie before the window.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

import psutil

from redline.cli.main import RESUMABLE
from redline.jsonl import Row, read_records
from redline.runs.run_json import read_run_json

TAIL_CHARACTERS = 2_000
SETTLE_STEPS = 400  # after the warm-up: allocator and caches have seen every shape
POLL_S = 0.2
PATIENCE_S = 60.0  # for a process to end that was asked to
START_AND_WARMUP_S = 900.0  # a generous limit
SHARES_OVER_S = 10.0  # before a reading: the time that its shares of waiting are over

T = TypeVar("T")
Waiting = dict[str, dict[str, float]]  # role → what for → share of the time


def redline_command(*arguments: str) -> list[str]:
    """Return the command line of Redline in this Python."""
    return [sys.executable, "-m", "redline.cli.main", *arguments]


def run_redline(arguments: Sequence[str], log: Path) -> dict[str, Any]:
    """Run a command with --json to its end and return its object; what it says on the way goes to `log`."""
    with log.open("ab") as said:
        done = subprocess.run(redline_command(*arguments, "--json"), stdout=subprocess.PIPE, stderr=said, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"redline {arguments[0]} ended with {done.returncode}: {tail(log)}")
    summary: dict[str, Any] = json.loads(done.stdout)
    return summary


def tail(log: Path) -> str:
    """Return the end of what a process said."""
    return log.read_text(encoding="utf-8", errors="replace")[-TAIL_CHARACTERS:].strip()


@dataclass(frozen=True)
class Ending:
    """How a process ended."""

    exit_code: int
    seconds: float  # since it was asked to


class WatchedProcess:
    """A process that writes records; leaving the context ends it."""

    def __init__(self, command: Sequence[str], log: Path, *, environ: Mapping[str, str] | None = None) -> None:
        """Start the process with some more environment variables."""
        self._log = log
        self.started_unix_s = time.time()
        with log.open("ab") as said:
            self._process = subprocess.Popen(
                command,
                stdout=said,
                stderr=said,
                env={**os.environ, **(environ or {})},
                start_new_session=True,  # one group with its children
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._process.poll() is None:
                self._process.terminate()
                self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)  # with children that it left behind
            self._process.wait()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def wait_for(self, look: Callable[[], T | None], *, timeout_s: float) -> T:
        """Look again and again until there is something to see, and return it."""
        give_up_s = time.monotonic() + timeout_s
        while (seen := look()) is None:
            if self._process.poll() is not None:
                raise RuntimeError(f"the process ended with {self._process.returncode} too early: {tail(self._log)}")
            if time.monotonic() > give_up_s:
                raise RuntimeError(f"nothing to see after {timeout_s:g} s: {tail(self._log)}")
            time.sleep(POLL_S)
        return seen

    def stop(self, *, timeout_s: float = PATIENCE_S) -> Ending:
        """Send SIGTERM and wait for the end."""
        self._process.terminate()
        return self.wait(timeout_s=timeout_s)

    def kill(self) -> Ending:
        """End it at once, without notice; children of it stay."""
        self._process.kill()
        return self.wait(timeout_s=PATIENCE_S)

    def wait(self, *, timeout_s: float) -> Ending:
        """Wait for the end."""
        begun_s = time.monotonic()
        try:
            exit_code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"the process did not end in {timeout_s:g} s: {tail(self._log)}") from None
        return Ending(exit_code, time.monotonic() - begun_s)


def find_run(log_dir: Path) -> Path | None:
    """Return the one run directory, None before there is one."""
    runs = sorted(path.parent for path in log_dir.glob("*/*/*/run.json"))
    if len(runs) > 1:
        raise RuntimeError(f"{len(runs)} run directories where one should be")
    return runs[0] if runs else None


def read_metrics(run: Path) -> list[Row]:
    """Return the readings so far; the file does not exist before the first."""
    path = run / "metrics.jsonl"
    return read_records(path) if path.exists() else []


def find_window(rows: Sequence[Row], *, opens_at_steps: int, seconds: float) -> list[Row] | None:
    """Return the readings from the first after `opens_at_steps` to the first `seconds` later, None if it is to come."""
    learning = [row for row in rows if row["steps"] >= opens_at_steps and row["updates"] > 0]
    for position, row in enumerate(learning):
        if row["time_s"] - learning[0]["time_s"] >= seconds and position:
            return learning[: position + 1]
    return None


def read_window(rows: Sequence[Row]) -> Row:
    """Return what happened between the first and the last reading of a window."""
    first, last = rows[0], rows[-1]
    window_s, steps = last["time_s"] - first["time_s"], last["steps"] - first["steps"]
    updates, samples = last["updates"] - first["updates"], last["samples"] - first["samples"]
    found = {
        "steps_per_s": steps / window_s,
        "updates_per_s": updates / window_s,
        "samples_per_step": samples / steps,
        "window_s": window_s,
        "steps": steps,
        "updates": updates,
        "first_step": first["steps"],
        "cpu_percent": statistics.median(row["cpu_percent"] for row in _inside(rows)),
    }
    if "roles" not in first:  # of a peer
        return found
    ages = statistics.median(row["actor_weights_age_updates"] for row in _inside(rows))
    return {**found, "waiting": waiting_shares(rows), "weights_age_updates": ages}


def waiting_shares(rows: Sequence[Row]) -> Waiting:
    """Return the median share of the window that each role waited, by what for; actors are one role."""
    seen: dict[str, list[Mapping[str, float]]] = {}
    for row in _inside(rows):
        for role in row["roles"]:
            seen.setdefault(role["role"].partition("-")[0], []).append(role["waiting"])
    return {role: median_shares(shares) for role, shares in seen.items() if any(shares)}


def median_shares(shares: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each share; one that is not named is 0."""
    names = sorted({name for item in shares for name in item})
    return {name: statistics.median(item.get(name, 0.0) for item in shares) for name in names}


def median_waiting(windows: Sequence[Waiting]) -> Waiting:
    """Return the medians over several windows."""
    roles = sorted({role for window in windows for role in window})
    return {role: median_shares([window.get(role, {}) for window in windows]) for role in roles}


def who_waits(waiting: Waiting) -> str:
    """Return who waits for whom in words, what rounds to nothing left out."""
    said = []
    for role, shares in waiting.items():
        told = [f"{what} {share:.0%}" for what, share in shares.items() if share >= 0.005]
        said += [f"{role} waits for {', '.join(told)}"] if told else []
    return "; ".join(said) or "nobody waits"


def train_for_window(flags: Sequence[str], *, seconds: float, source: Path | None = None) -> Row:
    """Train in a process of its own until its window has closed, and return what the window saw.

    `source` is the folder of another version of Redline, if that is to train.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        command = redline_command("train", *flags, "--log-dir", name, "--json")
        environ = None if source is None else {"PYTHONPATH": str(source)}
        with WatchedProcess(command, folder / "said.log", environ=environ) as process:
            run = process.wait_for(lambda: find_run(folder), timeout_s=START_AND_WARMUP_S)
            opens_at_steps = read_run_json(run)["config"].get("warmup_steps", 0) + SETTLE_STEPS
            rows = wait_for_window(process, run, opens_at_steps=opens_at_steps, seconds=seconds)
            ending = process.stop()
    if ending.exit_code != RESUMABLE:
        raise RuntimeError(f"redline train ended with {ending.exit_code}, not with {RESUMABLE} after SIGTERM")
    return read_window(rows)


def wait_for_window(process: WatchedProcess, folder: Path, *, opens_at_steps: int, seconds: float) -> list[Row]:
    """Wait until a process has trained for a window, and return the readings of it in its metrics.jsonl."""
    return process.wait_for(
        lambda: find_window(read_metrics(folder), opens_at_steps=opens_at_steps, seconds=seconds),
        timeout_s=START_AND_WARMUP_S + seconds,
    )


def take_turns(sides: Mapping[str, Callable[[int], Row]], *, rounds: int) -> list[Row]:
    """Measure every side once per round, in an order that rotates and reverses; return a row for each round.

    A side is called with a seed, which is the number of the round. A row holds the order, the seed, how busy the
    machine was before, and what each side returned: what slows the machine for long slows all sides of a round.
    """
    names, rows = list(sides), []
    for number in range(rounds):
        start = number // 2 * max(1, len(names) // rounds) % len(names)
        order = [*names[start:], *names[:start]][:: 1 if number % 2 == 0 else -1]
        row: Row = {"order": order, "seed": number + 1, "busy_percent_before": psutil.cpu_percent(interval=1.0)}
        for name in order:
            row[name] = sides[name](number + 1)
            speed = f"{row[name]['steps_per_s']:.1f} steps/s, replay ratio {row[name]['samples_per_step']:.3f}"
            print(f"round {number + 1} of {rounds}, {name}: {speed}", file=sys.stderr, flush=True)
        rows.append(row)
    return rows


def _inside(rows: Sequence[Row]) -> Sequence[Row]:
    """Return the readings whose shares are of the window alone, or all but the first of a short window."""
    inside = [row for row in rows if row["time_s"] - rows[0]["time_s"] >= SHARES_OVER_S]
    return inside or rows[1:]

"""Fleets whose runs take a fraction of a second, and what their files tell."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from quick_runner import ForkEngine

from redline.fleet.lease import read_holder
from redline.fleet.listing import Listing, Part, Wishes, make_slots, new_listing, write_listing
from redline.fleet.place import start_ticks
from redline.fleet.slots import SlotStatus, read_statuses
from redline.fleet.supervisor import Summary, supervise
from redline.jsonl import Row, read_records
from waiting import wait_for

RUNNER = Path(__file__).parent / "quick_runner.py"


class Zygote:
    """Forks runners, supervisors and holders of leases."""

    def __init__(self) -> None:
        self._process = subprocess.Popen([sys.executable, str(RUNNER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def ask(self, **asked: Any) -> int:
        """Fork a process, and return its id."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())


class QuickEngine(ForkEngine):
    """Starts runners by the zygote, and remembers which."""

    def __init__(self, folder: Path, zygote: Zygote) -> None:
        super().__init__(folder.absolute(), lambda asked: zygote.ask(**asked))
        self.placed: list[str] = []

    def place(self, slot: str, threads: int) -> None:
        self.placed.append(slot)
        super().place(slot, threads)


class Listening:
    """Keeps what a supervisor says."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def show(self, *_: object) -> None:
        pass


def make_fleet(folder: Path, plans: Mapping[str, Sequence[str]], *, concurrency: int = 8) -> Listing:
    """Make a fleet with a run for each plan: what becomes of its attempts."""
    parts = [Part((game,), ("ppo",), (1,), {"max-steps": 30}) for game in plans]
    wishes = Wishes(concurrency=concurrency, stagger_s=0.0, order="as-listed")
    listing = new_listing("quick", wishes, make_slots(parts), "redline fleet start")
    folder.mkdir(exist_ok=True)
    write_listing(folder, listing)
    names = dict(zip(plans, (slot.name for slot in listing.slots), strict=True))
    (folder / "plan.json").write_text(json.dumps({names[game]: list(plan) for game, plan in plans.items()}))
    return listing


def train(folder: Path, zygote: Zygote, *, stop: Any = lambda: None, retry: bool = False) -> tuple[Summary, Listening]:
    """Supervise a fleet in this process until it is over."""
    display = Listening()
    return supervise(folder, QuickEngine(folder, zygote), display, stop, retry=retry), display


def statuses_of(folder: Path, listing: Listing) -> dict[str, SlotStatus]:
    """Return how the slots stand, by the first word of their names."""
    return {status.slot.game: status for status in read_statuses(folder, listing)}


def begun(folder: Path) -> list[Row]:
    """Return the attempts that began to train."""
    return read_records(folder / "begun.jsonl") if (folder / "begun.jsonl").exists() else []


def wait_until_running(folder: Path, slot: str, *, steps: int = 1) -> int:
    """Wait until a run takes steps, and return its process id."""

    def runs() -> bool:
        holder = read_holder(folder, slot)
        if holder is None or holder.state != "running" or not holder.run:
            return False
        metrics = folder / holder.run / "metrics.jsonl"
        return metrics.exists() and len(metrics.read_bytes().splitlines()) >= steps

    wait_for(runs, f"{slot} runs")
    holder = read_holder(folder, slot)
    assert holder is not None
    return holder.pid


def kill(pid: int) -> None:
    """Kill a process and wait until it is gone."""
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: not _lives(pid), f"process {pid} is gone")


def _lives(pid: int) -> bool:
    return start_ticks(pid) is not None


def fill(disk: Path) -> Path:
    """Fill a small disk with one file, and return that."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(512))
    return filler

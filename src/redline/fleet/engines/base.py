"""What an engine does for a fleet: it starts runners somewhere. Their leases tell how they are, and stop them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Protocol


class Engine(Protocol):
    """Starts the runs of a fleet."""

    def place(self, slot: str, threads: int) -> None:
        """Start the runner of a slot, with so many threads for a run that is new; UserError if that can't be done."""

    def poll(self) -> list[str]:
        """Return what happened to the engine itself since the last call, in lines."""

    def exit_code(self, slot: str) -> int | None:
        """Return how the runner of a slot that this engine started last has ended; None if that is not known."""

    def cores(self) -> int | None:
        """Return the cores of all machines together; None if those of this machine count."""

    def close(self) -> None:
        """Let go of the engine; runners go on."""


def command_of(folder: Path, slot: str, threads: int) -> list[str]:
    """Return the command that trains a slot; every engine starts this one."""
    program = [sys.executable, "-m", "redline.cli.main", "fleet", "run"]
    return [*program, str(folder.absolute()), slot, "--threads", str(threads)]

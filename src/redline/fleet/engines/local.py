"""Runs on this machine: each in a process, and a session, of its own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from redline.errors import UserError
from redline.files import explained, make_folder, open_own
from redline.fleet.engines.base import command_of
from redline.fleet.slots import LOGS


class LocalProcess:
    """A run in a session of its own: Ctrl-C is for the program that started it, which then stops it."""

    def __init__(self, command: Sequence[str], log: Path, *, appends: bool = False) -> None:
        flags = os.O_WRONLY | os.O_CREAT | (os.O_APPEND if appends else os.O_TRUNC)
        with os.fdopen(open_own(log, flags), "wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def exit_code(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def stop(self) -> None:
        """Ask the run to save a checkpoint and end."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End the run and its processes at once."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self, seconds: float) -> None:
        """Wait until the run is over; kill it if it takes longer."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(max(0.0, seconds))
            return
        self.kill()
        self._process.wait()


class LocalEngine:
    """Starts runners on this machine. They go on without the supervisor, and the next one finds them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started: dict[str, LocalProcess] = {}

    def place(self, slot: str, threads: int) -> None:
        """Start the runner of a slot."""
        log = self._folder / LOGS / f"{slot}.log"
        with explained(UserError, log, before=f"cannot start {slot}: "):
            make_folder(log.parent)
            self._started[slot] = LocalProcess(command_of(self._folder, slot, threads), log, appends=True)

    def poll(self) -> list[str]:
        """Let processes that ended go; nothing else can happen to this machine while it lives."""
        for process in self._started.values():
            _ = process.exit_code
        return []

    def exit_code(self, slot: str) -> int | None:
        """Return how the runner of a slot has ended."""
        process = self._started.get(slot)
        return None if process is None else process.exit_code

    def cores(self) -> int | None:
        """Leave it to the cores of this machine."""
        return None

    def close(self) -> None:
        """Nothing is held: runners go on."""

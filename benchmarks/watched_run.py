"""A `redline` process that is watched through the records it writes, and stopped once enough was seen."""

import os
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from redline.records import Row, read_records
from redline_process import redline_command, tail

POLL_S = 0.2
PATIENCE_S = 60.0  # for a process to end that was asked to

T = TypeVar("T")


@dataclass(frozen=True)
class Ending:
    """How a process ended."""

    exit_code: int
    seconds: float  # since it was asked to


class WatchedRun:
    """A process of `redline train` or `redline resume`; leaving the context ends it."""

    def __init__(self, arguments: Sequence[str], log: Path, *, source: Path | None = None) -> None:
        """Start the process; `source` is the folder of another version of the package, if it is to run."""
        self._log = log
        self.started_unix_s = time.time()
        environ = None if source is None else {**os.environ, "PYTHONPATH": str(source)}
        with log.open("ab") as said:
            command = redline_command(*arguments, "--json")
            self._process = subprocess.Popen(command, stdout=said, stderr=said, env=environ)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def wait_for(self, look: Callable[[], T | None], *, timeout_s: float) -> T:
        """Look again and again until there is something to see, and return it."""
        give_up_s = time.monotonic() + timeout_s
        while (seen := look()) is None:
            if self._process.poll() is not None:
                raise RuntimeError(f"redline ended with {self._process.returncode} too early: {tail(self._log)}")
            if time.monotonic() > give_up_s:
                raise RuntimeError(f"nothing to see after {timeout_s:g} s: {tail(self._log)}")
            time.sleep(POLL_S)
        return seen

    def stop(self, *, timeout_s: float = PATIENCE_S) -> Ending:
        """Send SIGTERM and wait for the end."""
        self._process.terminate()
        return self.wait(timeout_s=timeout_s)

    def wait(self, *, timeout_s: float) -> Ending:
        """Wait for the end."""
        begun_s = time.monotonic()
        try:
            exit_code = self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"redline did not end in {timeout_s:g} s: {tail(self._log)}") from None
        return Ending(exit_code, time.monotonic() - begun_s)


def find_run(log_dir: Path) -> Path | None:
    """Return the one run directory, None before there is one."""
    runs = sorted(path.parent for path in log_dir.glob("*/*/*/run.json"))
    if len(runs) > 1:
        raise RuntimeError(f"{len(runs)} run directories where one should be")
    return runs[0] if runs else None


def read_metrics(run: Path) -> list[Row]:
    """Return the readings so far; the file is not there before the first."""
    path = run / "metrics.jsonl"
    return read_records(path) if path.exists() else []

"""A `redline train` with processes of its own as a contender: it is let go on when it is its turn, and halted after it.

All its processes are one group that is stopped and continued together, which a run outlives. A window opens and closes
at readings in its metrics.jsonl, which come every 5 s, so a turn takes longer than what it measures.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import psutil

from redline.bench.ladder.contenders import ContenderError, Turn, gpu_share
from redline.records import Row, read_records
from redline.runtime.roles import usable_cores

POLL_S = 0.1
STARTING_S = 300.0  # until the first updates, on a slow machine
ENDING_S = 60.0
TAIL_CHARACTERS = 500
FRESH_S = 1.0  # a reading taken later than this after a halt was taken since

T = TypeVar("T")


def command(*arguments: str) -> list[str]:
    """Return the command line of Redline in this Python."""
    return [sys.executable, "-m", "redline.cli.main", *arguments]


class OwnProcesses:
    """A run in a folder of its own, with all its processes in one group."""

    def __init__(self, make_flags: Callable[[Path], Sequence[str]]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="redline-ladder-")
        self._log = Path(self._folder.name) / "said.log"
        with self._log.open("wb") as said:
            self._process = subprocess.Popen(
                command("train", *make_flags(Path(self._folder.name)), "--json"),
                stdout=said,
                stderr=said,
                start_new_session=True,
            )

    def warm_up(self) -> None:
        """Wait for the first updates, and halt."""
        self._wait_for(lambda: next((row for row in self._rows() if row["updates"] > 0), None))
        self._halt()

    def take_turn(self, seconds: float) -> Turn:
        """Let it go on for a window of `seconds` or a little more between two readings."""
        self._go_on()
        since_unix_s = time.time() + FRESH_S
        first = self._wait_for(lambda: self._reading_after(since_unix_s))
        begin_s, begin_cpu_s = time.monotonic(), self._cpu_s()
        last = self._wait_for(lambda: self._reading_after(first["unix_s"] + seconds))
        cpu_share = (self._cpu_s() - begin_cpu_s) / (time.monotonic() - begin_s) / usable_cores()
        gpu = gpu_share()
        self._halt()
        return Turn(
            seconds=last["unix_s"] - first["unix_s"],
            steps=last["steps"] - first["steps"],
            updates=last["updates"] - first["updates"],
            samples=last["samples"] - first["samples"],
            cpu_share=cpu_share,
            gpu_share=gpu,
        )

    def mean_return(self) -> float | None:
        """Wait for the end of a run that has one, and return the mean of its last 100 episodes."""
        self._process.wait()
        if self._process.returncode != 0:
            raise self._failure()
        last = self._log.read_text(encoding="utf-8").splitlines()[-1]
        mean: float | None = json.loads(last)["mean_return_100"]
        return mean

    def close(self) -> None:
        """End the run and remove what it wrote."""
        try:
            if self._process.poll() is None:
                self._go_on()
                self._process.terminate()
                self._process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._folder.cleanup()

    def _halt(self) -> None:
        os.killpg(self._process.pid, signal.SIGSTOP)

    def _go_on(self) -> None:
        os.killpg(self._process.pid, signal.SIGCONT)

    def _rows(self) -> list[Row]:
        path = next(Path(self._folder.name).glob("*/*/*/metrics.jsonl"), None)
        return [] if path is None else read_records(path)

    def _reading_after(self, unix_s: float) -> Row | None:
        return next((row for row in self._rows() if row["unix_s"] >= unix_s), None)

    def _cpu_s(self) -> float:
        total = 0.0
        root = psutil.Process(self._process.pid)
        for process in (root, *root.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
        return total

    def _wait_for(self, look: Callable[[], T | None]) -> T:
        give_up_s = time.monotonic() + STARTING_S
        while (seen := look()) is None:
            if self._process.poll() is not None or time.monotonic() > give_up_s:
                raise self._failure()
            time.sleep(POLL_S)
        return seen

    def _failure(self) -> ContenderError:
        said = self._log.read_text(encoding="utf-8", errors="replace")[-TAIL_CHARACTERS:].strip()
        return ContenderError(f"redline train ended with {self._process.poll()}: {said}")

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
from redline.bench.other_work import tree_cpu_s
from redline.records import Row, read_records
from redline.runs.host import usable_cores

POLL_S = 0.1
STARTING_S = 300.0  # until the first updates, on a slow machine
ENDING_S = 60.0
TAIL_CHARACTERS = 500
FRESH_S = 1.0  # a reading taken later than this after a halt was taken since
MOST_WINDOWS = 2  # for a turn, if the first is void

# becomes a command that the kernel kills as soon as whoever started it ends, however that is: a halted run would stay
TIED = """
import os, sys
from redline.runtime.processes.process_pool import end_with_parent
end_with_parent()
os.execv(sys.argv[1], sys.argv[1:])
"""

T = TypeVar("T")


def command(*arguments: str) -> list[str]:
    """Return the command line of Redline in this Python."""
    return [sys.executable, "-m", "redline.cli.main", *arguments]


def tied(words: Sequence[str]) -> list[str]:
    """Return a command line that does the same, and never outlives whoever starts it."""
    return [sys.executable, "-c", TIED, *words]


class OwnProcesses:
    """A run in a folder of its own, with all its processes in one group."""

    def __init__(self, make_flags: Callable[[Path], Sequence[str]]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="redline-ladder-")
        folder = Path(self._folder.name)
        self._result, self._said = folder / "result.json", folder / "said.log"
        with self._result.open("wb") as result, self._said.open("wb") as said:
            self._process = subprocess.Popen(
                tied(command("train", *make_flags(folder), "--json")),
                stdout=result,
                stderr=said,
                start_new_session=True,
            )

    def warm_up(self) -> None:
        """Wait for the first updates, and halt."""
        self._wait_for(lambda: next((row for row in self._rows("metrics") if row["updates"] > 0), None))
        self._signal(signal.SIGSTOP)

    def take_turn(self, seconds: float) -> Turn:
        """Let it go on for a window of `seconds` or a little more between two readings.

        An actor that was halted while it waited for its emulators may wake after its deadline, and is replaced: a
        window in which that happened is void, and the next one counts.
        """
        lost = self._count_lost()
        self._signal(signal.SIGCONT)
        for _ in range(MOST_WINDOWS):
            turn = self._measure(seconds)
            before, lost = lost, self._count_lost()
            if lost == before:
                self._signal(signal.SIGSTOP)
                return turn
        raise ContenderError(f"redline train lost a process in each of {MOST_WINDOWS} windows")

    def _measure(self, seconds: float) -> Turn:
        """Return what was done in a window from now on."""
        since_unix_s = time.time() + FRESH_S
        first = self._wait_for(lambda: self._reading_after(since_unix_s))
        begin_s, begin_cpu_s = time.monotonic(), self._cpu_s()
        last = self._wait_for(lambda: self._reading_after(first["unix_s"] + seconds))
        cpu_share = (self._cpu_s() - begin_cpu_s) / (time.monotonic() - begin_s) / usable_cores()
        gpu = gpu_share()
        if last["steps"] == first["steps"]:
            raise ContenderError("redline train played no step in a whole window")
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
        mean: float | None = json.loads(self._result.read_text(encoding="utf-8"))["mean_return_100"]
        return mean

    def close(self) -> None:
        """End the run and remove what it wrote."""
        try:
            if self._process.poll() is None:
                self._signal(signal.SIGCONT)
                self._process.terminate()
                self._process.wait(ENDING_S)
        except subprocess.TimeoutExpired:
            pass
        finally:
            self._signal(signal.SIGKILL)
            self._process.wait()
            self._folder.cleanup()

    def _signal(self, number: signal.Signals) -> None:
        """Send a signal to the whole group; that it is gone is found out by whoever waits for it."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _rows(self, name: str) -> list[Row]:
        path = next(Path(self._folder.name).glob(f"*/*/*/{name}.jsonl"), None)
        return [] if path is None else read_records(path)

    def _reading_after(self, unix_s: float) -> Row | None:
        return next((row for row in self._rows("metrics") if row["unix_s"] >= unix_s), None)

    def _count_lost(self) -> int:
        return sum(row["event"] == "process-lost" for row in self._rows("events"))

    def _cpu_s(self) -> float:
        try:
            return tree_cpu_s(psutil.Process(self._process.pid))
        except psutil.NoSuchProcess:
            raise self._failure() from None

    def _wait_for(self, look: Callable[[], T | None]) -> T:
        give_up_s = time.monotonic() + STARTING_S
        while (seen := look()) is None:
            if self._process.poll() is not None or time.monotonic() > give_up_s:
                raise self._failure()
            time.sleep(POLL_S)
        return seen

    def _failure(self) -> ContenderError:
        said = self._said.read_text(encoding="utf-8", errors="replace")[-TAIL_CHARACTERS:].strip()
        code = self._process.poll()
        what = "did not go on in time" if code is None else f"ended with {code}"
        return ContenderError(f"redline train {what}: {said}")

"""The candidates' processes: started a few at a time, then asked for windows one at a time, and ended together."""

import json
import os
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from redline.bench.measuring import Measuring
from redline.files import read_bounded
from redline.plan.speed import CandidateLostError, Window
from redline.runtime.config import Job, to_settings

READ_BYTES = 1 << 16
MAX_ERRORS_BYTES = 1_000_000
MOST_SAID_CHARACTERS = 200  # of what a process printed before it ended

Environ = Callable[[Job], Mapping[str, str]]  # variables of a candidate's process


@dataclass
class _Candidate:
    process: subprocess.Popen[bytes]
    line: socket.socket  # orders to it, and its answers
    errors: Path  # what it prints
    is_ready: bool = False
    unread: bytearray = field(default_factory=bytearray)


class CandidatePool(AbstractContextManager["CandidatePool"]):
    """Processes that wait for orders, in a folder of their own."""

    def __init__(self, folder: Path, environ: Environ) -> None:
        self._folder = folder
        self._environ = environ
        self._candidates: dict[str, _Candidate] = {}
        self._started = 0  # of all, also of those that have ended
        self.why_lost: dict[str, str] = {}

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes."""
        for name in list(self._candidates):
            self.end(name)

    @property
    def ready(self) -> list[str]:
        """The candidates that can be measured."""
        return [name for name, found in self._candidates.items() if found.is_ready]

    @property
    def num_starting(self) -> int:
        """How many are not yet ready."""
        return len(self._starting)

    @property
    def _starting(self) -> list[str]:
        return [name for name, found in self._candidates.items() if not found.is_ready]

    def start(self, name: str, job: Job, algorithm: str, *, cores: Collection[int] | None = None) -> None:
        """Start a candidate, on some cores only if they are given; it makes itself ready by itself."""
        self._started += 1
        folder = self._folder / f"candidate-{self._started}"
        folder.mkdir()
        errors = folder / "errors.txt"
        ours, its = socket.socketpair()
        try:
            with errors.open("wb") as said, its:
                process = subprocess.Popen(
                    [sys.executable, "-m", "redline.plan.candidate"],
                    stdin=its.fileno(),  # both ways: what a library prints is no answer
                    stdout=said,
                    stderr=said,
                    env={**os.environ, **self._environ(job)},
                    start_new_session=True,  # Ctrl-C is not for it
                )
        except BaseException:
            ours.close()  # a process that was started before a signal came in between ends by that
            raise
        self._candidates[name] = _Candidate(process, ours, errors)
        if cores is not None:
            with suppress(ProcessLookupError):  # it has ended: it will give no answer
                os.sched_setaffinity(process.pid, cores)
        self._send(name, {"algorithm": algorithm, "settings": to_settings(job), "folder": str(folder)})

    def wait_ready(self, name: str, deadline_s: float) -> None:
        """Wait until a candidate sleeps, ready for its first window."""
        self._answer(name, deadline_s)
        self._candidates[name].is_ready = True

    def ready_one(self, deadline_s: float) -> str | None:
        """Wait until one more candidate is ready or lost, and return its name; None if none is left or time is over."""
        waiting = {self._candidates[name].line: name for name in self._starting}
        if not waiting or not (told := _readable(list(waiting), deadline_s)):
            return None
        with suppress(CandidateLostError):  # `why_lost` says so
            self.wait_ready(waiting[told[0]], deadline_s)
        return waiting[told[0]]

    def end_unready(self, why: str) -> None:
        """End the candidates that are not ready yet."""
        for name in self._starting:
            self._lose(name, why)

    def window(self, name: str, seconds: float, deadline_s: float) -> Window:
        """Wake a candidate for a window, and return what it did; the others sleep."""
        measuring = Measuring()
        self._send(name, {"seconds": seconds})
        window = msgspec.convert(self._answer(name, deadline_s), Window)
        return replace(window, others_percent=measuring.others_percent())

    def end(self, name: str) -> None:
        """End a candidate; its own processes end with it."""
        found = self._candidates.pop(name)
        found.process.kill()
        found.process.wait()
        found.line.close()

    def _lose(self, name: str, why: str) -> CandidateLostError:
        self.end(name)
        self.why_lost[name] = why
        return CandidateLostError(why)

    def _find(self, name: str) -> _Candidate:
        if name not in self._candidates:
            raise CandidateLostError(self.why_lost.get(name, "it was ended"))
        return self._candidates[name]

    def _send(self, name: str, order: Mapping[str, Any]) -> None:
        try:
            self._find(name).line.sendall(json.dumps(order).encode() + b"\n")
        except ConnectionError:
            raise self._lose(name, self._last_words(name)) from None

    def _answer(self, name: str, deadline_s: float) -> dict[str, Any]:
        found = self._find(name)
        while b"\n" not in found.unread:
            if not _readable([found.line], deadline_s):
                raise self._lose(name, "it did not finish a window in time")
            data = b""
            with suppress(ConnectionError):  # it has ended
                data = found.line.recv(READ_BYTES)
            if not data:
                raise self._lose(name, self._last_words(name))
            found.unread += data
        line, _, found.unread = found.unread.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise self._lose(name, answer["error"])
        return answer

    def _last_words(self, name: str) -> str:
        """Return what a process said before it ended."""
        found = self._candidates[name]
        said = "nothing"
        with suppress(OSError):  # more than that
            lines = read_bounded(found.errors, max_bytes=MAX_ERRORS_BYTES).decode(errors="replace").splitlines()
            said = next((line.strip() for line in reversed(lines) if line.strip()), said)
        return f"it ended with exit code {found.process.wait()}: {said[:MOST_SAID_CHARACTERS]}"


def _readable(lines: list[socket.socket], deadline_s: float) -> list[socket.socket]:
    """Return those that can be read, as soon as one can; none when time is over."""
    readable, _, _ = select.select(lines, [], [], max(0.0, deadline_s - time.monotonic()))
    return readable

"""The candidates' processes: started a few at a time, then asked for windows one at a time, and ended together."""

import json
import os
import select
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
from redline.plan.window import CandidateLostError, Window
from redline.runtime.config import Job, to_settings

READ_BYTES = 1 << 16
MAX_ERRORS_BYTES = 1_000_000
MOST_SAID_CHARACTERS = 200  # of what a process printed before it ended

Environ = Callable[[Job], Mapping[str, str]]  # variables of a candidate's process


@dataclass
class _Process:
    process: subprocess.Popen[bytes]
    errors: Path  # what it prints beside its answers
    is_ready: bool = False
    rest: bytearray = field(default_factory=bytearray)


class CandidatePool(AbstractContextManager["CandidatePool"]):
    """Processes that wait for orders, in a folder of their own."""

    def __init__(self, folder: Path, environ: Environ) -> None:
        self._folder = folder
        self._environ = environ
        self._processes: dict[str, _Process] = {}
        self.why_lost: dict[str, str] = {}
        self._started = 0  # of all, also of those that have ended

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes."""
        for name in list(self._processes):
            self.end(name)

    def start(self, name: str, job: Job, algorithm: str, *, cores: Collection[int] | None = None) -> None:
        """Start a candidate, on some cores only if they are given; it makes itself ready by itself."""
        self._started += 1
        folder = self._folder / f"candidate-{self._started}"
        folder.mkdir()
        errors = folder / "errors.txt"
        with errors.open("wb") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "redline.plan.candidate"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                env={**os.environ, **self._environ(job)},
                start_new_session=True,  # Ctrl-C is not for it
            )
        if cores is not None:
            with suppress(ProcessLookupError):  # it has ended: it will give no answer
                os.sched_setaffinity(process.pid, cores)
        self._processes[name] = _Process(process, errors)
        self._send(name, {"algorithm": algorithm, "settings": to_settings(job), "folder": str(folder)})

    def wait_ready(self, name: str, deadline_s: float) -> None:
        """Wait until a candidate sleeps, ready for its first window."""
        self._answer(name, deadline_s)
        self._processes[name].is_ready = True

    def ready_one(self, deadline_s: float) -> str | None:
        """Wait until one more candidate is ready or lost, and return its name; None if none is left or time is over."""
        waiting = {found.process.stdout.fileno(): name for name, found in self._starting().items()}
        if not waiting:
            return None
        ready, _, _ = select.select(list(waiting), [], [], max(0.0, deadline_s - time.monotonic()))
        if not ready:
            return None
        name = waiting[ready[0]]
        with suppress(CandidateLostError):  # `why_lost` says so
            self.wait_ready(name, deadline_s)
        return name

    def _starting(self) -> dict[str, Any]:
        return {name: found for name, found in self._processes.items() if not found.is_ready}

    @property
    def ready(self) -> list[str]:
        """The candidates that can be measured."""
        return [name for name, found in self._processes.items() if found.is_ready]

    @property
    def num_starting(self) -> int:
        """How many are not yet ready."""
        return len(self._starting())

    def end_unready(self, why: str) -> None:
        """End the candidates that are not ready yet."""
        for name in self._starting():
            self._lose(name, why)

    def window(self, name: str, seconds: float, deadline_s: float) -> Window:
        """Wake a candidate for a window, and return what it did; the others sleep."""
        if name not in self._processes:
            raise CandidateLostError(self.why_lost.get(name, "it was ended"))
        measuring = Measuring()
        self._send(name, {"seconds": seconds})
        window = msgspec.convert(self._answer(name, deadline_s), Window)
        return replace(window, others_percent=measuring.others_percent())

    def end(self, name: str) -> None:
        """End a candidate; its own processes end with it."""
        found = self._processes.pop(name)
        found.process.kill()
        found.process.wait()
        for stream in (found.process.stdin, found.process.stdout):
            if stream is not None:
                with suppress(BrokenPipeError):
                    stream.close()

    def _lose(self, name: str, why: str) -> CandidateLostError:
        self.end(name)
        self.why_lost[name] = why
        return CandidateLostError(why)

    def _send(self, name: str, order: Mapping[str, Any]) -> None:
        stream = self._processes[name].process.stdin
        if stream is None:
            raise TypeError("a candidate is started with a pipe for its orders")
        try:
            stream.write(json.dumps(order).encode() + b"\n")
            stream.flush()
        except BrokenPipeError:
            raise self._lose(name, self._last_words(name)) from None

    def _answer(self, name: str, deadline_s: float) -> dict[str, Any]:
        found = self._processes[name]
        descriptor = found.process.stdout.fileno() if found.process.stdout is not None else -1
        while b"\n" not in found.rest:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline_s - time.monotonic()))
            if not ready:
                raise self._lose(name, "it did not finish a window in time")
            if not (data := os.read(descriptor, READ_BYTES)):
                raise self._lose(name, self._last_words(name))
            found.rest += data
        line, _, rest = bytes(found.rest).partition(b"\n")
        found.rest = bytearray(rest)
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise self._lose(name, answer["error"])
        return answer

    def _last_words(self, name: str) -> str:
        """Return what a process said before it ended."""
        found = self._processes[name]
        said = "nothing"
        with suppress(OSError):  # more than that
            lines = read_bounded(found.errors, max_bytes=MAX_ERRORS_BYTES).decode(errors="replace").splitlines()
            said = next((line.strip() for line in reversed(lines) if line.strip()), said)
        return f"it ended with exit code {found.process.wait()}: {said[:MOST_SAID_CHARACTERS]}"

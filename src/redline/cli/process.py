"""The process of a command: its stdout and stderr, the signals that stop it, and how long its threads spin."""

import io
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from types import FrameType
from typing import Self, TextIO, cast

from redline import cli

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
REPEATED_S = 1.0  # one request may come twice: to a process, and to the group that it is in

# OpenMP threads spin before they sleep. The learner's threads wait for each other dozens of times per update, and a
# sleeping thread wakes late. But on a busy machine the thread that they wait for may not be running, and spinning takes
# the CPU time that it needs. OpenMP reads these settings once, when torch is loaded: before any command is imported.
SHORT_SPIN = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "2000"}
LONG_SPIN = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "50000"}
LEARNING = ("train", "resume", "profile", "bench")
LEARNING_PLANS = (("plan", "speed"), ("plan", "machines"))
LOOK_S = 0.15
MOST_BUSY_CORES = 0.25  # by other processes, on a machine that counts as free


# Streams: no full disk, closed terminal or ASCII locale ends a training


class LossyFile(io.RawIOBase):
    """Writes to a descriptor; what can't be written is dropped and remembered. A reader that is gone still raises."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.error: OSError | None = None  # the first one

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        """Write all of it, or drop the rest."""
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[os.write(self._descriptor, rest) :]
            except BrokenPipeError:
                raise
            except OSError as error:
                self.error = self.error or error
                break
        return len(data)

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._descriptor

    def isatty(self) -> bool:
        return os.isatty(self._descriptor)


def guard_streams() -> None:
    """Let sys.stdout and sys.stderr drop what can't be written; where one is closed, write to nowhere."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:  # the next file that is opened would get this number, and be printed into
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
    sys.stdout = _guarded(sys.stdout, 1)
    sys.stderr = _guarded(sys.stderr, 2)


def output_error() -> OSError | None:
    """Return the first error of writing to stdout or stderr."""
    for stream in (sys.stdout, sys.stderr):
        raw = getattr(stream, "buffer", None)
        if isinstance(raw, LossyFile) and raw.error is not None:
            return raw.error
    return None


def _guarded(stream: TextIO | None, number: int) -> TextIO:
    if stream is not None and (not isinstance(stream, io.TextIOWrapper) or isinstance(stream.buffer, LossyFile)):
        return stream  # somebody's own, as in tests, or guarded already
    encoding = "utf-8" if stream is None else stream.encoding
    raw = cast("io.BufferedWriter", LossyFile(number))
    return io.TextIOWrapper(raw, encoding=encoding, errors="replace", write_through=True)


# Signals: a run that is asked to stop saves a checkpoint first; other work ends at once


class StopRequest(AbstractContextManager["StopRequest"]):
    """Remembers the first signal; a second one interrupts at once, a third one ends the process.

    Under nohup, which lets a process ignore SIGHUP, that stays so.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._first_s = 0.0
        handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
        self._before = {
            number: handler
            for number, handler in handlers.items()
            if handler is not signal.SIG_IGN or number != signal.SIGHUP
        }

    def __enter__(self) -> Self:
        for number in self._before:
            signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def reason(self) -> str | None:
        """Return the name of the signal, if one came."""
        return self.signal.name if self.signal else None

    def _take(self, number: int, _: FrameType | None) -> None:
        if self.signal is None:
            self.signal, self._first_s = signal.Signals(number), time.monotonic()
        elif number == signal.SIGINT or time.monotonic() - self._first_s > REPEATED_S:
            signal.signal(number, signal.SIG_DFL)
            raise KeyboardInterrupt


def print_object(line: str) -> None:
    """Print the object of --json, which is the last thing that a command does: a first signal ends nothing then."""
    with StopRequest():
        print(line, flush=True)
        cli.is_object_out = True


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and a closed terminal end the work at once, so that no process outlives it."""
    handlers = {number: signal.getsignal(number) for number in STOP_SIGNALS}
    before = {number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN}
    try:
        for number in before:
            signal.signal(number, interrupt)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def interrupt(number: int, _: FrameType | None) -> None:
    """Raise KeyboardInterrupt; a request that is repeated does not disturb how the first one ends the work."""
    if time.monotonic() - cli.interrupted_s < REPEATED_S:
        return
    cli.interrupted_s = time.monotonic()
    raise KeyboardInterrupt("" if number == signal.SIGINT else f"stopped by {signal.Signals(number).name}")


# Threads


def choose_spin(args: Sequence[str]) -> Mapping[str, str]:
    """Return the settings for a command: long only if it learns in one process on a free machine."""
    learns = bool(args) and (args[0] in LEARNING or tuple(args[:2]) in LEARNING_PLANS or "--measure" in args)
    if not learns or "async" in " ".join(args) or _resumes_in_processes(args):
        return SHORT_SPIN
    return LONG_SPIN if busy_cores() <= MOST_BUSY_CORES else SHORT_SPIN


def spin_in_processes() -> Mapping[str, str]:
    """Return what to change for a run in several processes, if this one was made for learning alone."""
    return SHORT_SPIN if all(os.environ.get(name) == value for name, value in LONG_SPIN.items()) else {}


def busy_cores() -> float:
    """Return how many cores are busy while this process sleeps; infinity if that can't be read."""
    before, begun_s = _busy_s(), time.monotonic()
    time.sleep(LOOK_S)
    after, spent_s = _busy_s(), time.monotonic() - begun_s
    return float("inf") if before is None or after is None else (after - before) / spent_s


def _busy_s() -> float | None:
    try:
        user, nice, system, _, _, irq, softirq, steal, *_ = (
            int(word) for word in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:]
        )
    except (OSError, ValueError):
        return None
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def _resumes_in_processes(args: Sequence[str]) -> bool:
    """Tell whether a run to resume has, or may have, actors and learner in separate processes."""
    if args[0] != "resume":
        return False
    from redline.errors import UserError
    from redline.files import read_json_object
    from redline.runs.locating import locate_run
    from redline.runs.run_json import MAX_RUN_JSON_BYTES

    named = [word for word in args[1:] if not word.startswith("-")]
    try:
        facts = read_json_object(locate_run(named[0]) / "run.json", max_bytes=MAX_RUN_JSON_BYTES)
        return bool(facts["config"]["topology"] != "inline")
    except (UserError, OSError, ValueError, KeyError, IndexError, TypeError):  # the command itself says what is wrong
        return True

"""Ctrl-C, SIGTERM and a closed terminal ask a run to stop; it saves a checkpoint first. Other work ends at once."""

import signal
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Self

REPEATED_S = 1.0  # one request may come twice: to a process, and to the group that it is in


class StopRequest(AbstractContextManager["StopRequest"]):
    """Remembers the first signal; a second one interrupts at once, a third one ends the process.

    Under nohup, which lets a process ignore SIGHUP, that stays so.
    """

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._first_s = 0.0
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
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


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let Ctrl-C, SIGTERM and a closed terminal end the work at once, so that no process outlives it."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    before = {number: handler for number, handler in handlers.items() if handler is not signal.SIG_IGN}
    try:
        for number in before:
            signal.signal(number, signal.default_int_handler)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

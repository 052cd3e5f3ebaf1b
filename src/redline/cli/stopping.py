"""Ctrl-C, SIGTERM and a closed terminal ask a run to stop; it saves a checkpoint first. Other work ends at once."""

import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType
from typing import Self


class StopRequest(AbstractContextManager["StopRequest"]):
    """Remembers the first signal; a second Ctrl-C interrupts at once."""

    def __init__(self) -> None:
        self.signal: signal.Signals | None = None
        self._before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}

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
        if self.signal is signal.SIGINT and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.signal = self.signal or signal.Signals(number)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and a closed terminal end the work as Ctrl-C does, so that no process outlives it."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        for number in before:
            signal.signal(number, signal.default_int_handler)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

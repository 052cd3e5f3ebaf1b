"""Ctrl-C, SIGTERM and a closed terminal ask a run to stop; it saves a checkpoint first."""

import signal
from contextlib import AbstractContextManager
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

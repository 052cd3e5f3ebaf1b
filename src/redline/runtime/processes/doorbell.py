"""How one process wakes another that waits: a counter in the kernel, which nobody can hold and nobody can lose."""

from __future__ import annotations

import os
import select
import weakref
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.reduction import DupFd
from typing import Any


class Doorbell:
    """Rung by anybody, answered by one; a ring that comes while nobody waits is kept."""

    def __init__(self, *, descriptor: int = -1) -> None:
        if descriptor < 0:
            descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self.close = weakref.finalize(self, os.close, descriptor)

    def ring(self) -> None:
        """Wake whoever waits, or make the next wait end at once."""
        with suppress(BlockingIOError):  # nobody answered for ages: it rings already
            os.eventfd_write(self._descriptor, 1)

    def wait(self, timeout_s: float) -> None:
        """Return when it has rung since the last wait, or when the time is over."""
        if self._poll.poll(timeout_s * 1000):
            with suppress(BlockingIOError):
                os.eventfd_read(self._descriptor)

    def __reduce__(self) -> tuple[Callable[..., Doorbell], tuple[Any, ...]]:
        """Let a process that is being started have the same bell."""
        return _attach, (DupFd(self._descriptor),)


def _attach(descriptor: Any) -> Doorbell:
    return Doorbell(descriptor=descriptor.detach())

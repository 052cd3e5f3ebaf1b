"""Waiting for what another process does."""

import time
from collections.abc import Callable

PATIENCE_S = 120.0  # for anything that should take seconds: the machine may be very busy


class WaitedInVainError(AssertionError):
    """Something that must happen did not."""


def wait_for(is_true: Callable[[], object], what: str, timeout_s: float = PATIENCE_S) -> float:
    """Look again and again, for so long; return the seconds that it took."""
    begun_s = time.monotonic()
    while not is_true():
        if time.monotonic() - begun_s > timeout_s:
            raise WaitedInVainError(f"waited {timeout_s:g} s in vain until {what}")
        time.sleep(0.02)
    return time.monotonic() - begun_s

"""Ends this process when it has not been told for some seconds to go on, also while the machine was suspended."""

from __future__ import annotations

import ctypes
import signal

CLOCK_BOOTTIME = 7  # counts while the machine is suspended, and nobody can set it


class _Span(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Timer(ctypes.Structure):
    _fields_ = (("interval", _Span), ("value", _Span))


class Fence:
    """A timer of the kernel, whose SIGALRM ends the process: no code of this process has to run for that."""

    def __init__(self, seconds: float) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._timer = ctypes.c_void_p()
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGALRM])
        made = hasattr(self._libc, "timer_create") and self._libc.timer_create(
            CLOCK_BOOTTIME, None, ctypes.byref(self._timer)
        )
        self._is_made = made == 0
        self.set(seconds)

    def set(self, seconds: float) -> None:
        """End the process after so many seconds, unless this is called again before; 0: never."""
        if not self._is_made:  # an old C library: time in which the machine is suspended does not count then
            signal.setitimer(signal.ITIMER_REAL, seconds)
            return
        whole = int(seconds)
        span = _Timer(_Span(0, 0), _Span(whole, int((seconds - whole) * 1e9)))
        if self._libc.timer_settime(self._timer, 0, ctypes.byref(span), None) != 0:
            raise OSError(ctypes.get_errno(), "the timer that ends a lease can't be set")

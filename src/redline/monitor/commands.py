"""Runs a command as if the monitor were not there: signals are passed on, and its exit code is returned."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress

SIGNALS = frozenset(
    {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD}
)
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
PR_SET_CHILD_SUBREAPER = 36
COMMAND_ENDED = "the command ended"
KILLED_BY_SIGNAL = 128  # a shell adds the signal's number


class Command(AbstractContextManager["Command"]):
    """A process in the terminal's foreground, like this one. Signals are blocked until `wait` takes them."""

    def __init__(self, words: Sequence[str], *, stdout_to_stderr: bool = False) -> None:
        """Start it, or raise OSError."""
        # orphans become our children instead of init's: they belong to the command
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._mask_before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            # unlike a fork with Python code before exec, this can restore the signal mask in the child
            self.pid = os.posix_spawnp(
                words[0],
                list(words),
                os.environ,
                setsigmask=self._mask_before,
                setsigdef=IGNORED_BY_PYTHON,
                file_actions=[(os.POSIX_SPAWN_DUP2, 2, 1)] if stdout_to_stderr else [],
            )
        except BaseException:
            self._unblock()
            raise

    def __exit__(self, *_: object) -> None:
        self._unblock()

    def _unblock(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask_before)

    def wait(self, seconds: float) -> str | None:
        """Wait for a signal or a timeout, and pass the signal on; return a reason once the command has ended."""
        found = signal.sigtimedwait(SIGNALS, seconds)
        if found is None:
            return None
        if found.si_signo == signal.SIGCHLD:
            return COMMAND_ENDED if self._has_ended() else None
        # the terminal (the kernel) sends to all processes in its foreground: the command has got it already
        if found.si_code <= 0:
            with suppress(OSError):  # it is gone, or belongs to another user now
                os.kill(self.pid, found.si_signo)
        return None

    def _has_ended(self) -> bool:
        """Tell whether it has ended, leaving its last counters in /proc; reap inherited processes."""
        with suppress(ChildProcessError):
            while (found := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
                if found.si_pid == self.pid:
                    return True
                os.waitpid(found.si_pid, 0)
        return False

    def exit_code(self) -> int:
        """Wait for the end and return the exit code; after a signal, the code that a shell gives."""
        while not self._has_ended():
            self.wait(60.0)
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else KILLED_BY_SIGNAL - code

"""Runs a command as if the monitor were not there: signals go through to it, and its exit code comes back."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

SIGNALS = frozenset(
    {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD}
)
COMMAND_ENDED = "the command ended"
KILLED_BY_SIGNAL = 128  # a shell adds the signal's number


class Command:
    """A process in the terminal's foreground, like this one."""

    def __init__(self, pid: int) -> None:
        self.pid = pid

    @classmethod
    @contextmanager
    def start(cls, words: Sequence[str], *, stdout_to_stderr: bool = False) -> Iterator[Command]:
        """Start it; raises OSError where it can't be. Signals are held back until `wait` asks for them."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        try:
            redirection = [(os.POSIX_SPAWN_DUP2, 2, 1)] if stdout_to_stderr else []
            # unlike a fork with Python code before exec, this can give the child the mask that was
            yield cls(os.posix_spawnp(words[0], list(words), os.environ, setsigmask=before, file_actions=redirection))
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def wait(self, seconds: float) -> str | None:
        """Wait for a signal or the time to pass; pass the signal on; return a reason once the command has ended."""
        found = signal.sigtimedwait(SIGNALS, seconds)
        if found is None:
            return None
        if found.si_signo == signal.SIGCHLD:
            return COMMAND_ENDED if self._has_ended() else None
        # the terminal (the kernel) sends to all processes in its foreground: the command has had it already
        if found.si_code <= 0:
            os.kill(self.pid, found.si_signo)
        return None

    def _has_ended(self) -> bool:
        """Tell whether it has ended, without taking its last readings from /proc."""
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def exit_code(self) -> int:
        """Wait for the end and return the code; of a command that a signal ended, as a shell does."""
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status)
        return code if code >= 0 else KILLED_BY_SIGNAL - code

"""How a process of a run lives and ends: never longer than its supervisor, never by a signal that is meant for that."""

import ctypes
import multiprocessing
import os
import signal
import threading
import traceback
from collections.abc import Callable
from multiprocessing.connection import wait
from typing import TypeVar

from redline.runtime.processes.messages import Outbox

KitT = TypeVar("KitT")

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15

server_pid: int | None = None  # of the fork server


def run_child(name: str, outbox: Outbox, work: Callable[[KitT, Outbox], None], kit: KitT) -> None:
    """Do the work of a role; tell the supervisor what went wrong, if something does."""
    end_with_parent()
    ignore_signals()
    _prctl(PR_SET_NAME, name.encode()[:15])
    threading.Thread(target=_end_with_supervisor, name="redline-parent", daemon=True).start()
    code = 1
    try:
        work(kit, outbox)
        code = 0
    except BaseException as error:
        outbox.send("error", type=type(error).__name__, message=str(error), trace=traceback.format_exc(limit=-4))
    os._exit(code)  # threads of an env that hangs must not hold the process up


def become_server() -> None:
    """Make this process the fork server, which lives as its children do."""
    global server_pid  # noqa: PLW0603  set once, in a process of its own, for all that it forks
    server_pid = os.getpid()
    end_with_parent()
    ignore_signals()


def end_with_parent() -> None:
    """Let the kernel kill this process when the one that forked it ends, even if it is stopped then."""
    _prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if server_pid is not None and os.getpid() != server_pid != os.getppid():  # it has ended already
        os._exit(1)


def ignore_signals() -> None:
    """Leave signals that ask a run to stop to the supervisor: a terminal and a service manager send them to all."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)  # blocked while the fork server was started


def _end_with_supervisor() -> None:
    """Wait for the end of a pipe that only the supervisor holds; the fork server, our parent, may outlive it."""
    supervisor = multiprocessing.parent_process()
    if supervisor is not None:
        wait([supervisor.sentinel])
        os._exit(1)


def _prctl(option: int, value: int | bytes) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(option, ctypes.c_char_p(value) if isinstance(value, bytes) else ctypes.c_ulong(value), 0, 0, 0)

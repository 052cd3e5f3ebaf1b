"""The processes of a run: forked from a server that has everything loaded, watched, and reported when lost.

Children ignore stop signals and die with the supervisor. They send it messages through pipes.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import resource
import signal
import threading
import time
import traceback
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

import msgspec

from redline.errors import UserError
from redline.jsonl import as_json_value
from redline.monitor.processes import read_stat
from redline.runtime.processes.shared import LEARNER, STARTING_S, SharedStatus, attach

PRELOAD = "redline.runtime.processes.preload"
SILENT_S = 8.0  # without a heartbeat, after which a process is lost
LEARNER_SILENT_S = 60.0  # for the learner, whose updates may be long and which can't be replaced
STOPPED_S = 3.0  # suspended by a signal, after which a process is lost
LOOK_INTERVAL_S = 0.2
ENDING_S = 3.0  # for processes to end by themselves
SERVER_LOST = 255  # exit code by multiprocessing when the fork server is gone
READ_BYTES = 1 << 16
HEADER_BYTES = 8  # of a message: its length

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
PR_SET_PDEATHSIG, PR_SET_NAME = 1, 15

Message = dict[str, Any]

server_pid: int | None = None  # of the fork server


def check_room(*, actors: int, learner_threads: int) -> None:
    """Refuse a run whose processes would need more descriptors or threads than the limits allow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = 48 + 8 * actors  # the supervisor's, measured
    if soft < needed:
        allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        if allowed < needed:
            raise UserError(f"{actors} actors need {needed} open files, {hard} are allowed: ulimit -n {needed}")
    threads = 12 + 3 * actors + learner_threads
    if (left := _pids_left()) is not None and left < threads:
        raise UserError(
            f"{actors} actors need about {threads} processes and threads, the pids limit leaves {left}: "
            "use --topology inline, or raise the limit of the container"
        )


def _pids_left() -> int | None:
    """Return how many processes and threads the control group still allows; None if it has no limit."""
    with suppress(OSError, ValueError):
        for line in Path("/proc/self/cgroup").read_text().splitlines():
            number, controllers, place = line.split(":", 2)
            if number == "0" or "pids" in controllers.split(","):
                folder = Path("/sys/fs/cgroup", controllers and "pids", place.lstrip("/"))
                return int((folder / "pids.max").read_text()) - int((folder / "pids.current").read_text())
    return None


class Outbox:
    """The sending end of a pipe: `send` returns when the pipe has taken the message."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.close = weakref.finalize(self, os.close, descriptor)

    def send(self, kind: str, **content: object) -> None:
        """Send a message; a lost supervisor is no error, since this process ends with it."""
        data = msgspec.msgpack.encode({"kind": kind, **content}, enc_hook=as_json_value)
        data = len(data).to_bytes(HEADER_BYTES, "little") + data
        with suppress(BrokenPipeError):
            while data:
                data = data[os.write(self._descriptor, data) :]

    def __reduce__(self) -> tuple[Callable[..., Outbox], tuple[Any, ...]]:
        """Let the process that is being started have it."""
        return attach, (Outbox, DupFd(self._descriptor))


class Inbox:
    """The supervisor's end; a message that a dying sender left unfinished is dropped."""

    def __init__(self) -> None:
        self.descriptor, sending = os.pipe()
        os.set_blocking(self.descriptor, False)
        self.outbox = Outbox(sending)
        self.close = weakref.finalize(self, os.close, self.descriptor)
        self._rest = bytearray()

    def receive(self) -> list[Message]:
        """Return the messages that have arrived, without waiting."""
        with suppress(BlockingIOError):
            while data := os.read(self.descriptor, READ_BYTES):
                self._rest += data
        messages = []
        while len(self._rest) >= (end := HEADER_BYTES + int.from_bytes(self._rest[:HEADER_BYTES], "little")):
            messages.append(msgspec.msgpack.decode(self._rest[HEADER_BYTES:end]))
            del self._rest[:end]
        return messages


Work = Callable[[Outbox], None]


@dataclass
class Member:
    """One process of the run."""

    name: str  # "learner", "evaluator", "actor-0"
    slot: int  # of the shared status
    process: BaseProcess
    inbox: Inbox
    restarts: int
    started_s: float = field(default_factory=time.monotonic)
    stopped_since_s: float | None = None  # suspended by a signal since then
    errors: list[Message] = field(default_factory=list)  # that it sent

    @property
    def pid(self) -> int:
        return self.process.pid or 0


@dataclass(frozen=True)
class Loss:
    """A process that was lost."""

    member: Member
    why: str
    messages: list[Message]  # its last
    error: Message | None  # that it sent
    was_killed: bool  # or suspended, by a signal; not lost by its own error or a hang


class ProcessPool:
    """Starts processes and finds those that are lost."""

    def __init__(self, status: SharedStatus) -> None:
        self.status = status
        self.members: dict[str, Member] = {}
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([PRELOAD])
        self._looked_s = time.monotonic()
        self._has_ended = False
        self._server_stopped_s: float | None = None

    def start(self, name: str, slot: int, work: Work, *, restarts: int = 0) -> Member:
        """Start a process that does `work`."""
        inbox = Inbox()
        self.status.beat_s[slot] = 0.0
        process = self._context.Process(
            target=run_child, args=(f"redline-{name}", inbox.outbox, work), name=name, daemon=True
        )
        self._end_stopped_server()
        try:
            resource_tracker.ensure_running()  # it would unblock the signals again
            before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
            try:
                process.start()  # the first one also starts the fork server, which ignores them and unblocks
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
        except (OSError, EOFError) as error:  # the fork server ends where it can't fork
            why = str(error.strerror).lower() if isinstance(error, OSError) else "no more processes are allowed"
            raise UserError(
                f"the {name} can't be started: {why}; --topology inline needs no more processes, "
                "ulimit -a and the pids limit of the container show what is allowed"
            ) from error
        inbox.outbox.close()
        self.members[name] = Member(name, slot, process, inbox, restarts)
        return self.members[name]

    def receive(self, timeout_s: float) -> list[Message]:
        """Wait for messages or an exit, and return the messages, the learner's first."""
        members = list(self.members.values())
        sentinels = {member.process.sentinel for member in members}
        ready = wait([*sentinels, *(member.inbox.descriptor for member in members)], timeout_s)
        self._has_ended = not sentinels.isdisjoint(ready)
        return [message for member in members for message in self._read(member)]

    def _read(self, member: Member) -> list[Message]:
        messages = member.inbox.receive()
        member.errors += [message for message in messages if message["kind"] == "error"]
        return messages

    @property
    def is_look_due(self) -> bool:
        """Whether a process has ended, or the last look is a while ago: looking after every message costs too much."""
        return self._has_ended or time.monotonic() - self._looked_s > LOOK_INTERVAL_S

    def find_lost(self) -> list[Loss]:
        """Return the processes that ended or show no heartbeat; the latter are killed here."""
        now_s = time.monotonic()
        if now_s - self._looked_s > STOPPED_S / 2:  # this process was suspended itself, and perhaps all others with it
            for member in self.members.values():
                member.stopped_since_s = None
                if self.status.beat_s[member.slot] > 0.0:
                    self.status.beat_s[member.slot] = max(self.status.beat_s[member.slot], now_s)
        self._looked_s = now_s
        self._end_stopped_server(after_s=STOPPED_S)
        return [loss for member in list(self.members.values()) if (loss := self._loss_of(member, now_s)) is not None]

    def _loss_of(self, member: Member, now_s: float) -> Loss | None:
        if member.process.is_alive():
            why = self._silence_of(member, now_s)
            if why is None:
                return None
            was_killed = member.stopped_since_s is not None
        else:
            code = member.process.exitcode or 0
            why, was_killed = _describe_exit(code), code < 0 or code == SERVER_LOST
        messages = self.end(member)
        return Loss(member, why, messages, member.errors[0] if member.errors else None, was_killed)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to every process of the run."""
        for member in self.members.values():
            if member.process.is_alive():
                os.kill(member.pid, number)

    def helper_pids(self) -> set[int]:
        """Return the processes beside those of the run: the fork server, and multiprocessing's resource tracker."""
        parents = {_parent_of(member.pid) for member in self.members.values()}
        tracker = getattr(resource_tracker, "_resource_tracker", None)
        return {pid for pid in (*parents, getattr(tracker, "_pid", None)) if pid is not None} - {os.getpid()}

    def _end_stopped_server(self, *, after_s: float = 0.0) -> None:
        """Kill a suspended fork server: it could start no process, and report no exit."""
        pids = {pid for member in self.members.values() if (pid := _parent_of(member.pid)) is not None}
        pid = next((pid for pid in pids if pid != os.getpid() and _is_stopped(pid)), None)
        if pid is None:
            self._server_stopped_s = None
            return
        self._server_stopped_s = self._server_stopped_s or time.monotonic()
        if time.monotonic() - self._server_stopped_s >= after_s:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # its children end with it

    def _silence_of(self, member: Member, now_s: float) -> str | None:
        """Say why a process that runs counts as lost, if it does."""
        if not _is_stopped(member.pid):
            member.stopped_since_s = None
        elif member.stopped_since_s is None:
            member.stopped_since_s = now_s
        elif now_s - member.stopped_since_s > STOPPED_S:
            return f"was stopped for {STOPPED_S:.0f} s"
        beat_s = float(self.status.beat_s[member.slot])
        silent_s = now_s - (beat_s or member.started_s)
        limit_s = LEARNER_SILENT_S if member.slot == LEARNER else SILENT_S
        is_lost = silent_s > (limit_s if beat_s else STARTING_S)
        return f"showed no sign of life for {silent_s:.0f} s" if is_lost else None

    def end(self, member: Member) -> list[Message]:
        """Kill a process, and return its last messages."""
        member.process.kill()
        member.process.join(ENDING_S)
        self.members.pop(member.name, None)
        return self._read(member)

    def close(self) -> None:
        """Let all processes end by themselves, and kill those that do not."""
        self.status.stop()
        self._end_stopped_server()
        end_s = time.monotonic() + ENDING_S
        try:
            for member in self.members.values():
                member.process.join(max(0.0, end_s - time.monotonic()))
        finally:  # also after a second Ctrl-C: the interpreter would wait for them forever
            for member in list(self.members.values()):
                self.end(member)


def _describe_exit(code: int) -> str:
    if code == SERVER_LOST:
        return "ended with the fork server"
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"


def _is_stopped(pid: int) -> bool:
    """Tell whether a signal has suspended a process."""
    return (stat := read_stat(pid)) is not None and stat.state == "T"


def _parent_of(pid: int) -> int | None:
    return None if (stat := read_stat(pid)) is None else stat.parent


# In the child


def run_child(name: str, outbox: Outbox, work: Work) -> None:
    """Run a role in its own process; send the supervisor any error."""
    end_with_parent()
    ignore_signals()
    _prctl(PR_SET_NAME, name.encode()[:15])
    threading.Thread(target=_end_with_supervisor, name="redline-parent", daemon=True).start()
    code = 1
    try:
        work(outbox)
        code = 0
    except BaseException as error:
        outbox.send("error", type=type(error).__name__, message=str(error), trace=traceback.format_exc(limit=-4))
    os._exit(code)  # threads of an env that hangs must not hold the process up


def become_server() -> None:
    """Make this process the fork server; it follows the same rules as its children."""
    global server_pid  # noqa: PLW0603  set once, in a process of its own, for all that it forks
    server_pid = os.getpid()
    end_with_parent()
    ignore_signals()


def end_with_parent() -> None:
    """Let the kernel kill this process when its parent ends, even while it is suspended."""
    _prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL))
    if server_pid is not None and os.getpid() != server_pid != os.getppid():  # it has ended already
        os._exit(1)


def ignore_signals() -> None:
    """Leave stop signals to the supervisor: a terminal and a service manager send them to all processes."""
    for number in STOP_SIGNALS:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)  # blocked while the fork server was started


def _end_with_supervisor() -> None:
    """Exit when the supervisor does: its pipe closes. The fork server, our parent, may outlive it."""
    supervisor = multiprocessing.parent_process()
    if supervisor is not None:
        wait([supervisor.sentinel])
        os._exit(1)


def _prctl(option: int, value: int | bytes) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(option, ctypes.c_char_p(value) if isinstance(value, bytes) else ctypes.c_ulong(value), 0, 0, 0)

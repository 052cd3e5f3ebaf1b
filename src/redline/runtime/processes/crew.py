"""The processes of a run: forked from a server that has everything loaded, watched, and found out when lost."""

import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from redline.runtime.processes.board import LEARNER, STARTING_S, Board
from redline.runtime.processes.child import STOP_SIGNALS, run_child
from redline.runtime.processes.messages import Inbox, Message, Outbox

PRELOAD = "redline.runtime.processes.preload"
SILENT_S = 8.0  # after which one that shows none is lost
LEARNER_SILENT_S = 60.0  # the same for the learner, whose updates may be long and which can't be replaced
STOPPED_S = 3.0  # after which one that somebody stopped is lost
LOOK_INTERVAL_S = 0.2
ENDING_S = 3.0  # in which processes end by themselves
SERVER_LOST = 255  # what multiprocessing gives as exit code when the fork server is gone, which would have told it

Work = Callable[[Any, Outbox], None]


@dataclass
class Member:
    """One process of the run."""

    name: str  # "learner", "evaluator", "actor-0"
    place: int  # at the board
    process: BaseProcess
    inbox: Inbox
    restarts: int
    started_s: float = field(default_factory=time.monotonic)
    stopped_since_s: float | None = None  # somebody stopped it, and did not let it go on yet
    errors: list[Message] = field(default_factory=list)  # that it told of

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid or 0


@dataclass(frozen=True)
class Loss:
    """A process that is no more."""

    member: Member
    why: str
    messages: list[Message]  # its last
    error: Message | None  # that it told of
    was_killed: bool  # or stopped by a signal; not by an error of its own, nor by a hang


class Crew:
    """Starts processes and finds out which are lost."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.members: dict[str, Member] = {}
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([PRELOAD])
        self._looked_s = time.monotonic()
        self._has_ended = False
        self._server_stopped_s: float | None = None

    def start(self, name: str, place: int, work: Work, kit: Any, *, restarts: int = 0) -> Member:
        """Start a process that does `work` with `kit`."""
        inbox = Inbox()
        self.board.beat_s[place] = 0.0
        process = self._context.Process(
            target=run_child, args=(f"redline-{name}", inbox.outbox, work, kit), name=name, daemon=True
        )
        self._end_stopped_server()
        resource_tracker.ensure_running()  # it would unblock the signals again
        before = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
        try:
            process.start()  # the first one starts the fork server too, which unblocks them when it ignores them
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        inbox.outbox.close()
        self.members[name] = Member(name, place, process, inbox, restarts)
        return self.members[name]

    def receive(self, timeout_s: float) -> list[Message]:
        """Wait until something happens, and return the messages that have come, the learner's first."""
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
        """Whether a process has ended, or nobody has looked for a while: looking costs, messages may be many."""
        return self._has_ended or time.monotonic() - self._looked_s > LOOK_INTERVAL_S

    def find_lost(self) -> list[Loss]:
        """Return the processes that ended, or show no sign of life; the latter are ended here."""
        now_s = time.monotonic()
        if now_s - self._looked_s > STOPPED_S / 2:  # this process was stopped itself, and perhaps all others with it
            for member in self.members.values():
                member.stopped_since_s = None
                if self.board.beat_s[member.place] > 0.0:
                    self.board.beat_s[member.place] = max(self.board.beat_s[member.place], now_s)
        self._looked_s = now_s
        self._end_stopped_server(after_s=STOPPED_S)
        return [loss for member in list(self.members.values()) if (loss := self._loss_of(member, now_s)) is not None]

    def _loss_of(self, member: Member, now_s: float) -> Loss | None:
        if member.process.is_alive():
            why = self._silence_of(member, now_s)
            if why is None:
                return None
            said = self.end(member)
            return self._lost(member, why, said, was_killed=member.stopped_since_s is not None)
        code = member.process.exitcode or 0
        del self.members[member.name]
        return self._lost(member, _describe_exit(code), self._read(member), was_killed=code < 0 or code == SERVER_LOST)

    def _lost(self, member: Member, why: str, messages: list[Message], *, was_killed: bool) -> Loss:
        return Loss(member, why, messages, member.errors[0] if member.errors else None, was_killed)

    def _end_stopped_server(self, *, after_s: float = 0.0) -> None:
        """End a fork server that somebody stopped: it could start nobody, and tell of nobody that ended."""
        pids = {pid for member in self.members.values() if (pid := _parent_of(member.pid)) is not None}
        pid = next((pid for pid in pids if pid != os.getpid() and _is_stopped(pid)), None)
        if pid is None:
            self._server_stopped_s = None
            return
        self._server_stopped_s = self._server_stopped_s or time.monotonic()
        if time.monotonic() - self._server_stopped_s >= after_s:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # and with it all that it forked

    def _silence_of(self, member: Member, now_s: float) -> str | None:
        """Say why a process that is there is of no use, if so."""
        if not _is_stopped(member.pid):
            member.stopped_since_s = None
        elif member.stopped_since_s is None:
            member.stopped_since_s = now_s
        elif now_s - member.stopped_since_s > STOPPED_S:
            return f"was stopped for {STOPPED_S:.0f} s"
        beat_s = float(self.board.beat_s[member.place])
        silent_s = now_s - (beat_s or member.started_s)
        limit_s = LEARNER_SILENT_S if member.place == LEARNER else SILENT_S
        return (
            f"showed no sign of life for {silent_s:.0f} s" if silent_s > (limit_s if beat_s else STARTING_S) else None
        )

    def end(self, member: Member) -> list[Message]:
        """End a process at once, and return what it said last."""
        member.process.kill()
        member.process.join(ENDING_S)
        self.members.pop(member.name, None)
        return self._read(member)

    def close(self) -> None:
        """Let all processes end by themselves, and end those that do not."""
        self.board.stop()
        self._end_stopped_server()
        end_s = time.monotonic() + ENDING_S
        try:
            for member in self.members.values():
                member.process.join(max(0.0, end_s - time.monotonic()))
        finally:  # also if somebody has no patience: the interpreter would wait for them for ever
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
    """Tell whether a signal keeps a process from running."""
    return _stat(pid)[:1] == ["T"]


def _parent_of(pid: int) -> int | None:
    stat = _stat(pid)
    return int(stat[1]) if stat else None


def _stat(pid: int) -> list[str]:
    """Return what the kernel tells of a process, from its state on; nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []

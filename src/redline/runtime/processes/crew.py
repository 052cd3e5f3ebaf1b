"""The processes of a run: forked from a server that has everything loaded, watched, and found out when lost."""

import multiprocessing
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from redline.runtime.processes.board import LEARNER, Board
from redline.runtime.processes.child import run_child
from redline.runtime.processes.messages import Inbox, Message, Outbox

PRELOAD = "redline.runtime.processes.preload"
STARTING_S = 90.0  # in which a process must show its first sign of life
SILENT_S = 8.0  # after which one that shows none is lost
LEARNER_SILENT_S = 60.0  # the same for the learner, whose updates may be long and which can't be replaced
STOPPED_S = 3.0  # after which one that somebody stopped is lost
ENDING_S = 3.0  # in which processes end by themselves

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
    was_killed: bool  # by a signal, and not by an error of its own


class Crew:
    """Starts processes and finds out which are lost."""

    def __init__(self, board: Board) -> None:
        self.board = board
        self.members: dict[str, Member] = {}
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([PRELOAD])
        self._looked_s = time.monotonic()

    def start(self, name: str, place: int, work: Work, kit: Any, *, restarts: int = 0) -> Member:
        """Start a process that does `work` with `kit`."""
        inbox = Inbox()
        self.board.beat_s[place] = 0.0
        process = self._context.Process(
            target=run_child, args=(f"redline-{name}", inbox.outbox, work, kit), name=name, daemon=True
        )
        process.start()
        inbox.outbox.close()
        self.members[name] = Member(name, place, process, inbox, restarts)
        return self.members[name]

    def receive(self, timeout_s: float) -> list[Message]:
        """Wait until something happens, and return the messages that have come."""
        members = list(self.members.values())
        wait([item for member in members for item in (member.process.sentinel, member.inbox.descriptor)], timeout_s)
        return [message for member in members for message in member.inbox.receive()]

    def find_lost(self) -> list[Loss]:
        """Return the processes that ended, or show no sign of life; the latter are ended here."""
        now_s = time.monotonic()
        if now_s - self._looked_s > STOPPED_S / 2:  # this process was stopped itself, and perhaps all others with it
            for member in self.members.values():
                member.stopped_since_s = None
                self.board.beat_s[member.place] = max(self.board.beat_s[member.place], now_s)
        self._looked_s = now_s
        return [loss for member in list(self.members.values()) if (loss := self._loss_of(member, now_s)) is not None]

    def _loss_of(self, member: Member, now_s: float) -> Loss | None:
        if member.process.is_alive():
            why = self._silence_of(member, now_s)
            if why is None:
                return None
            self.end(member)
            return Loss(member, why, member.inbox.receive(), was_killed=True)
        code = member.process.exitcode or 0
        messages = member.inbox.receive()
        del self.members[member.name]
        return Loss(member, _describe_exit(code), messages, was_killed=code < 0)

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

    def end(self, member: Member) -> None:
        """End a process at once."""
        member.process.kill()
        member.process.join()
        self.members.pop(member.name, None)

    def close(self) -> None:
        """Let all processes end by themselves, and end those that do not."""
        self.board.stop()
        end_s = time.monotonic() + ENDING_S
        for member in self.members.values():
            member.process.join(max(0.0, end_s - time.monotonic()))
        for member in list(self.members.values()):
            self.end(member)


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"was killed by {signal.Signals(-code).name}"
    return f"was killed by signal {-code}"


def _is_stopped(pid: int) -> bool:
    """Tell whether a signal keeps a process from running."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    except OSError:
        return False

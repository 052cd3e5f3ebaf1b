"""Starts processes of a pool, and looks for those that are lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import child_work
import psutil
from child_work import look_until

from redline.runtime.processes.process_pool import Loss, Member, Outbox, ProcessPool
from redline.runtime.processes.shared import FIRST_ACTOR, SharedStatus

Work = Callable[[tuple[SharedStatus, int], Outbox], None]


def start(pool: ProcessPool, work: Work, *, name: str = "actor-0", slot: int = FIRST_ACTOR) -> Member:
    return pool.start(name, slot, partial(work, (pool.status, slot)))


def start_living(pool: ProcessPool, *, name: str = "actor-0", slot: int = FIRST_ACTOR) -> Member:
    """Start a process that plays, and return when it does."""
    member = start(pool, child_work.live, name=name, slot=slot)
    wait_for_steps(pool, member)
    return member


def wait_for_steps(pool: ProcessPool, member: Member) -> None:
    """Return when a process has played more than it has now: it is there, and goes on."""
    now = int(pool.status.steps[member.slot])
    look_until(lambda: int(pool.status.steps[member.slot]) > now + 1)


def find_losses(pool: ProcessPool, count: int) -> list[Loss]:
    """Look for processes that are lost until there are so many, and return them."""
    found: list[Loss] = []

    def are_found() -> bool:
        found.extend(pool.find_lost())
        return len(found) >= count

    look_until(are_found)
    assert len(found) == count
    return found


def find_loss(pool: ProcessPool) -> Loss:
    """Look for processes that are lost until there is one, and return it."""
    return find_losses(pool, 1)[0]


def is_there(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE

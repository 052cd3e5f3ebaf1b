"""Readings of the processes of a run: what each does, what each waits for, and what it takes of the machine."""

import os
import time
from collections import deque
from typing import NamedTuple

import numpy as np

from redline.monitor.process_files import ProcessUsage
from redline.runtime.gauges import RoleGauges
from redline.runtime.processes.board import LEARNER, WAITS, Board, mean_ages
from redline.runtime.processes.crew import Crew, Member
from redline.types import Array

WINDOW_S = 10.0
INTERVAL_S = 0.5  # over less, a share of the time means little


class _Mark(NamedTuple):
    time_s: float
    updates: int
    steps: Array
    waited_s: Array
    ages: Array


class RoleReadings:
    """Compares the board with what it said some seconds ago."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._marks = deque([_mark(crew.board)])
        self._usages: dict[int, ProcessUsage] = {}
        self._own = ProcessUsage()
        self._newest: tuple[RoleGauges, ...] = ()

    def begin(self) -> None:
        """Forget what was before: the processes that play begin now."""
        self._marks = deque([_mark(self._crew.board)])
        self._newest = ()

    def read(self) -> tuple[RoleGauges, ...]:
        """Return a reading of each process, this one first."""
        now = _mark(self._crew.board)
        if self._newest and now.time_s - self._marks[-1].time_s < INTERVAL_S:
            return self._newest
        self._newest = self._read(now)
        return self._newest

    def _read(self, now: _Mark) -> tuple[RoleGauges, ...]:
        self._marks.append(now)
        while len(self._marks) > 2 and self._marks[1].time_s <= now.time_s - WINDOW_S:
            self._marks.popleft()
        before = self._marks[0]
        members = list(self._crew.members.values())
        self._usages = {member.pid: self._usages.get(member.pid) or ProcessUsage(member.pid) for member in members}
        own = self._own.sample()
        supervisor = RoleGauges(
            role="supervisor",
            pid=os.getpid(),
            cpu_percent=own.cpu_percent if own else None,
            rss_bytes=own.rss_bytes if own else None,
            steps_per_s=None,
            updates_per_s=None,
            waiting={},
            weights_age_updates=None,
        )
        return (supervisor, *(self._role(member, before, now) for member in members))

    def _role(self, member: Member, before: _Mark, now: _Mark) -> RoleGauges:
        seconds = max(now.time_s - before.time_s, 1e-9)
        usage, place = self._usages[member.pid].sample(), member.place
        shares = (now.waited_s[place] - before.waited_s[place]) / seconds
        age = float(mean_ages(before.ages, now.ages)[place])
        is_learner = place == LEARNER
        return RoleGauges(
            role=member.name,
            pid=member.pid,
            cpu_percent=usage.cpu_percent if usage else None,
            rss_bytes=usage.rss_bytes if usage else None,
            steps_per_s=None if is_learner else float(now.steps[place] - before.steps[place]) / seconds,
            updates_per_s=(now.updates - before.updates) / seconds if is_learner else None,
            waiting={name: min(1.0, float(share)) for name, share in zip(WAITS, shares, strict=True) if share > 0.0},
            weights_age_updates=age if np.isfinite(age) else None,
            restarts=member.restarts,
        )


def mean_actor_age(roles: tuple[RoleGauges, ...]) -> float:
    """Return the mean age of the weights over all actors that acted."""
    ages = [role.weights_age_updates for role in roles if role.weights_age_updates is not None]
    return float(np.mean(ages)) if ages else 0.0


def _mark(board: Board) -> _Mark:
    return _Mark(
        time.monotonic(), board.run_updates, board.steps.copy(), board.waited_s.copy(), board.age_updates.copy()
    )

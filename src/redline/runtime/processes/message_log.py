"""The supervisor's log of messages: it keeps the newest state of a run, and writes the run's files."""

import os
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import msgspec

from redline.errors import CheckpointError
from redline.monitor.processes import ProcessUsage
from redline.runtime.actor import Episode
from redline.runtime.config import SOLVED, Job
from redline.runtime.counters import Counters, Scores
from redline.runtime.evaluation import NumberedEvaluation, record_evaluation
from redline.runtime.gauges import Gauges, RoleGauges
from redline.runtime.processes.process_pool import Member, Message, ProcessPool
from redline.runtime.processes.shared import LEARNER, WAITS, SharedStatus
from redline.runtime.run_log import RunLog
from redline.types import Array

WINDOW_S = 10.0
INTERVAL_S = 0.5  # over less time, shares mean little


class _Mark(NamedTuple):
    time_s: float
    updates: int
    steps: Array
    waited_s: Array
    ages: Array


class RoleReadings:
    """Readings of the processes: compares the shared status with that of some seconds ago."""

    def __init__(self, pool: ProcessPool) -> None:
        self._pool = pool
        self._marks = deque([_mark(pool.status)])
        self._usages: dict[int, ProcessUsage] = {}
        self._helpers: dict[int, ProcessUsage] = {}
        self._own = ProcessUsage()
        self._newest: tuple[RoleGauges, ...] = ()

    def begin(self) -> None:
        """Start anew: the actors begin now."""
        self._marks = deque([_mark(self._pool.status)])
        self._newest = ()

    def read(self) -> tuple[RoleGauges, ...]:
        """Return a reading of each process, this one first; the newest again if it is fresh."""
        now = _mark(self._pool.status)
        if self._newest and now.time_s - self._marks[-1].time_s < INTERVAL_S:
            return self._newest
        self._marks.append(now)
        while len(self._marks) > 2 and self._marks[1].time_s <= now.time_s - WINDOW_S:
            self._marks.popleft()
        members = list(self._pool.members.values())
        self._usages = {member.pid: self._usages.get(member.pid) or ProcessUsage(member.pid) for member in members}
        own = self._own.sample()
        supervisor = RoleGauges(
            "supervisor", os.getpid(), own.cpu_percent if own else None, own.rss_bytes if own else None
        )
        self._newest = (supervisor, *(self._role(member, self._marks[0], now) for member in members))
        return self._newest

    def helpers_rss_bytes(self) -> int:
        """Return the memory of the processes that Python starts beside those of the run."""
        pids = self._pool.helper_pids()
        self._helpers = {pid: self._helpers.get(pid) or ProcessUsage(pid) for pid in pids}
        return sum(usage.rss_bytes for helper in self._helpers.values() if (usage := helper.sample()) is not None)

    def _role(self, member: Member, before: _Mark, now: _Mark) -> RoleGauges:
        seconds = max(now.time_s - before.time_s, 1e-9)
        usage, slot = self._usages[member.pid].sample(), member.slot
        shares = (now.waited_s[slot] - before.waited_s[slot]) / seconds
        age_updates, times_acted = (now.ages - before.ages)[slot, :2].tolist()
        is_learner = slot == LEARNER
        return RoleGauges(
            role=member.name,
            pid=member.pid,
            cpu_percent=usage.cpu_percent if usage else None,
            rss_bytes=usage.rss_bytes if usage else None,
            steps_per_s=None if is_learner else float(now.steps[slot] - before.steps[slot]) / seconds,
            updates_per_s=(now.updates - before.updates) / seconds if is_learner else None,
            waiting={name: min(1.0, float(share)) for name, share in zip(WAITS, shares, strict=True) if share > 0.0},
            weights_age_updates=age_updates / times_acted if times_acted else None,
            restarts=member.restarts,
        )


def _mark(status: SharedStatus) -> _Mark:
    return _Mark(
        time.monotonic(), status.run_updates, status.steps.copy(), status.waited_s.copy(), status.age_updates.copy()
    )


class MessageLog:
    """Takes the messages of all processes; logs them, shows them, and keeps the newest state."""

    def __init__(
        self, job: Job, counters: Counters, scores: Scores, *, pool: ProcessPool, log: RunLog, begun_s: float
    ) -> None:
        self._job = job
        self.scores = scores  # only the results of evaluations are kept up to date
        self.waited_from_s = begun_s - counters.elapsed_s  # as if all invocations had followed each other
        self.counters = counters  # as of the learner's newest message
        self._status = pool.status
        self._readings = RoleReadings(pool)
        self.log = log
        self.lost: list[str] | None = None  # what a resume could not restore; None until the learner is ready
        self.limit: str | None = None  # that was reached
        self.gauges: Gauges | None = None
        self._recorded: Gauges | None = None
        self.learning_steps_per_s: float | None = None
        self.checkpoint: Path | None = None  # the newest
        self.save_error: str | None = None  # why the newest could not be saved
        self.saves_answered = 0  # number of the newest order that succeeded or failed
        self.evaluated_s = 0.0  # monotonic time of the newest evaluation
        self.is_ending = False  # only the learner is left: keep the earlier readings of the others

    def begin(self) -> None:
        """Start the log: the actors begin now."""
        self.log.begin()
        self._readings.begin()
        self.evaluated_s = time.monotonic()

    def record(self) -> None:
        """Write the newest reading, unless it is written already."""
        if self.gauges is not None and self.gauges is not self._recorded:
            self._recorded = self.gauges
            self.log.metrics(self.gauges)

    def take(self, message: Message) -> None:
        match message["kind"]:
            case "ready":
                self.lost = message["lost"]
            case "episodes":
                self._follow(message["steps"], message["time_s"])
                for episode in msgspec.convert(message["episodes"], list[Episode]):
                    self.log.episode(episode)
            case "reading":
                self._take_reading(message)
            case "evaluation":
                self._take_evaluation(message)
            case "sync":
                self._status.answer_sync(message["number"], is_safe=self._sync())
            case "saved":
                self.checkpoint, self.saves_answered = Path(message["path"]), message["order"]
                self.save_error = None
                self.log.event("checkpoint", path=self.checkpoint.name, stalled_s=message["stalled_s"])
            case "save-failed":
                self.save_error, self.saves_answered = message["message"], message["order"]
                if self.lost is not None and not self.is_ending:
                    self.log.warn(f"{self.save_error}; training goes on, the next checkpoint will try again")
            case "adjustment":
                self.log.adjustment(message["message"])
            case "warning":
                self.log.warn(message["message"])
            case "limit":
                self.limit = message["reason"]

    def _follow(self, steps: int, time_s: float) -> None:
        self.counters.steps, self.counters.time_s = steps, time_s

    def _take_reading(self, message: Message) -> None:
        told = self.log.with_energy(Gauges.from_row(message["gauges"]))
        self._follow(told.steps, told.time_s)
        self.learning_steps_per_s = message["learning_steps_per_s"]
        roles = self.gauges.roles if self.is_ending and self.gauges is not None else self._read_roles(told)
        ages = [role.weights_age_updates for role in roles if role.weights_age_updates is not None]
        self.gauges = replace(
            told,
            roles=roles,
            actor_weights_age_updates=fmean(ages) if ages else 0.0,
            cpu_percent=sum(role.cpu_percent or 0.0 for role in roles),
            rss_bytes=sum(role.rss_bytes or 0 for role in roles) + self._readings.helpers_rss_bytes(),
        )
        self.log.display.show(self.gauges)

    def _read_roles(self, told: Gauges) -> tuple[RoleGauges, ...]:
        """Return a reading of each process; only the learner itself knows its busy phases."""
        busy = told.roles[0].busy if told.roles else {}
        return tuple(replace(role, busy=busy) if role.role == "learner" else role for role in self._readings.read())

    def _take_evaluation(self, message: Message) -> None:
        counters, scores, self.evaluated_s = self.counters, self.scores, time.monotonic()
        evaluation = msgspec.convert(message["evaluation"], NumberedEvaluation)
        record_evaluation(evaluation, job=self._job, counters=counters, scores=scores, log=self.log)
        if evaluation.is_confirmation and self._job.limits.is_solved(scores):
            counters.solved_s = time.monotonic() - self.waited_from_s
            self.log.event("solved", elapsed_s=counters.solved_s, mean_return=scores.confirmed_return)
            self.limit = SOLVED
        self._status.show_evaluations(counters, scores)

    def _sync(self) -> bool:
        """Write all rows to the disk; a checkpoint must not outlive rows from before it."""
        try:
            self.log.flush()
            self.log.run.sync_records()
        except (CheckpointError, OSError) as error:
            self.log.warn(f"the records can't be written: {error}")
            return False
        return True

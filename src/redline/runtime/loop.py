"""The training loop: counts the time of vector steps, and takes a reading every second.

A session, the learner of an asynchronous run and a bench all take their steps here.
"""

import os
import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from redline.exploration import Sampled
from redline.monitor.machine import read_disk_free_bytes, read_load_average, read_memory_available_bytes
from redline.monitor.processes import ProcessUsage
from redline.runtime.actor import Episode
from redline.runtime.evaluation import projected_s
from redline.runtime.gauges import DIAGNOSES, Gauges, RoleGauges
from redline.runtime.projection import PaceMeter, bill, project
from redline.runtime.replay_sizing import full_replay
from redline.runtime.training import Trainer

READING_INTERVAL_S = 1.0
METRICS_INTERVAL_S = 5.0
RATE_WINDOW_S = 10.0
EPISODE_WINDOW_S = 300.0  # an episode of Pong takes a minute or more
WAITED_IN = {"envs": "keep", "actors": "keep", "gather": "draw"}  # reason of a wait → its phase


class Every:
    """Tells when something periodic is due; first after one interval, or at once."""

    def __init__(self, interval_s: float, *, at_once: bool = False) -> None:
        self._interval_s = interval_s
        self._next_s = time.monotonic() + (0.0 if at_once else interval_s)

    def is_due(self) -> bool:
        """Tell whether it is time; then the next interval begins."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + self._interval_s
        return True


class _Mark(NamedTuple):
    time_s: float  # of training
    steps: int
    updates: int
    episodes: int
    waited_s: dict[str, float]
    phases_s: dict[str, float]


class Loop:
    """Takes the vector steps of a trainer, counts the time of each step and of what lies between, and takes readings.

    A reading is the only moment at which the host waits for the device.
    """

    def __init__(
        self, trainer: Trainer, *, folder: Path, role: str = "inline", waited_from_s: float | None = None
    ) -> None:
        """Take a trainer as it is to go on; `waited_from_s` is the monotonic time of the run's `elapsed_s` 0."""
        self.trainer = trainer
        self.invocation_s = 0.0  # of training since `begin`
        self._folder = folder  # its disk's free space is read
        self._role = role
        self._steps_at_start = trainer.counters.steps
        self._is_replay_reported = False
        self._usage = ProcessUsage()
        self._started_s = time.monotonic()
        no_wait_s = self._started_s - trainer.counters.elapsed_s
        self._waited_from_s = no_wait_s if waited_from_s is None else waited_from_s
        self._paused_s = 0.0
        self._pace = PaceMeter(trainer.counters)
        self._marks = deque([self._mark()])
        self._loss: float | None = None
        self._diagnosis: dict[str, float] = {}
        self.begin()

    def begin(self) -> None:
        self._reading = Every(READING_INTERVAL_S)
        self._counted_s = time.monotonic()  # up to which time is counted
        self.trainer.phases.skip()

    def step(self) -> list[Episode]:
        """Take one vector step and return the episodes that ended with it.

        Time counts from the first step on: before it, envs in other processes are still starting.
        """
        episodes, now_s = self.trainer.vector_step(), time.monotonic()
        if self.trainer.counters.steps == self._steps_at_start:
            self.trainer.phases.forget()
        else:
            self.invocation_s += now_s - self._counted_s
            self.trainer.counters.count_time(now_s - self._counted_s)
        self._counted_s = now_s
        return episodes

    def reading_is_due(self) -> bool:
        """Tell whether the newest reading is a second old; then the next second begins."""
        return self._reading.is_due()

    def take_adjustment(self) -> str | None:
        """Say once that the replay memory holds fewer transitions than requested, as soon as that is known."""
        adjustment = None if self._is_replay_reported else full_replay(self.trainer.source.memory)
        self._is_replay_reported |= adjustment is not None
        return None if adjustment is None else str(adjustment)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Exclude the block from the training time."""
        self.trainer.phases.lap("other")
        begun_s = time.monotonic()
        try:
            yield
        finally:
            paused_s = time.monotonic() - begun_s
            self._counted_s += paused_s
            self._paused_s += paused_s
            self.trainer.phases.skip()

    def read(self) -> Gauges:
        """Return a reading; raise NonFiniteError if the loss is not finite."""
        trainer, counters, scores = self.trainer, self.trainer.counters, self.trainer.scores
        now = self._mark()
        recent, early = self._since(now.time_s - RATE_WINDOW_S), self._since(now.time_s - EPISODE_WINDOW_S)
        self._marks.append(now)
        while self._marks[0].time_s < early.time_s:
            self._marks.popleft()
        loss = trainer.learner.take_mean_loss()
        trainer.check_loss(loss)
        self._loss = self._loss if loss is None else loss
        self._diagnosis |= trainer.learner.take_diagnosis()
        own = self._read_role(recent, now)
        steps_per_s = own.steps_per_s or 0.0
        memory, is_policy = trainer.source.memory, isinstance(trainer.job.algorithm.explore, Sampled)
        return Gauges(
            time_s=counters.time_s,
            unix_s=time.time(),
            steps=now.steps,
            frames=now.steps * trainer.spec.frames_per_step,
            updates=now.updates,
            samples=counters.samples,
            episodes=now.episodes,
            steps_per_s=steps_per_s,
            warmup_steps_per_s=counters.warmup_steps_per_s if trainer.job.algorithm.warmup_steps else None,
            updates_per_s=own.updates_per_s or 0.0,
            episodes_per_h=(now.episodes - early.episodes) / max(now.time_s - early.time_s, 1e-9) * 3600,
            samples_per_step=trainer.source.pacing.achieved(steps=now.steps, samples=counters.samples),
            mean_return_100=scores.mean,
            best_return=scores.best_return,
            greedy_return=scores.greedy_return,
            greedy_at_steps=None if scores.greedy_return is None else counters.evaluated_steps,
            epsilon=None if is_policy else trainer.epsilon,
            policy_entropy_nats=trainer.source.entropy_nats if is_policy else None,
            loss=self._loss,
            actor_weights_age_updates=0.0,  # actor and learner share their weights in one process
            replay_transitions=None if memory is None else memory.num_transitions,
            replay_capacity_transitions=None if memory is None else memory.layout.capacity,
            replay_bytes=None if memory is None else memory.used_bytes,
            cpu_percent=own.cpu_percent or 0.0,
            rss_bytes=own.rss_bytes or 0,
            load_average=read_load_average(),
            memory_available_bytes=read_memory_available_bytes(),
            disk_free_bytes=read_disk_free_bytes(self._folder),
            **self._project(),
            target_eval_return=trainer.job.limits.target_eval_return,
            solved_in_s=projected_s(scores, target=trainer.job.limits.target_eval_return, now_s=counters.time_s),
            mean_length_100_steps=scores.mean_length_steps,
            learning_rate=trainer.job.algorithm.optimizer.lr_at(counters.schedule_steps),
            **{name: self._diagnosis.get(name) for name in DIAGNOSES},
            roles=(own,),
        )

    def _read_role(self, recent: _Mark, now: _Mark) -> RoleGauges:
        seconds = max(now.time_s - recent.time_s, 1e-9)
        waited_s = {what: spent_s - recent.waited_s.get(what, 0.0) for what, spent_s in now.waited_s.items()}
        spent_s = {phase: total_s - recent.phases_s[phase] for phase, total_s in now.phases_s.items()}
        usage = self._usage.sample()
        return RoleGauges(
            role=self._role,
            pid=os.getpid(),
            cpu_percent=None if usage is None else usage.cpu_percent,
            rss_bytes=None if usage is None else usage.rss_bytes,
            steps_per_s=(now.steps - recent.steps) / seconds,
            updates_per_s=(now.updates - recent.updates) / seconds,
            waiting={what: min(waited / seconds, 1.0) for what, waited in waited_s.items()},
            weights_age_updates=0.0,
            busy=busy_shares(spent_s, waited_s, seconds=seconds),
        )

    def _mark(self) -> _Mark:
        counters, waited_s = self.trainer.counters, dict(self.trainer.waited_s)
        phases_s = dict(self.trainer.phases.seconds)
        return _Mark(counters.time_s, counters.steps, counters.updates, counters.episodes, waited_s, phases_s)

    def _since(self, time_s: float) -> _Mark:
        """Return the newest mark at or before `time_s`, or the oldest there is."""
        return next((mark for mark in reversed(self._marks) if mark.time_s <= time_s), self._marks[0])

    def _project(self) -> dict[str, float | None]:
        """Return the fields of a reading on what is done and what is left, in time and money."""
        counters, job, now_s = self.trainer.counters, self.trainer.job, time.monotonic()
        self._pace.add(paused_s=self._paused_s)
        pace = self._pace.pace()
        progress, left = project(
            job.limits,
            counters,
            frames_per_step=self.trainer.spec.frames_per_step,
            episode_steps=self.trainer.scores.mean_length_steps,
            invocation_s=now_s - self._started_s,
            pace=pace,
        )
        elapsed_s, price_per_hour = now_s - self._waited_from_s, job.price_per_hour
        return {
            "progress": progress,
            **asdict(left),
            "elapsed_s": elapsed_s,
            **(asdict(bill(price_per_hour, elapsed_s, left, pace)) if price_per_hour else {}),
        }


def busy_shares(spent_s: Mapping[str, float], waited_s: Mapping[str, float], *, seconds: float) -> dict[str, float]:
    """Return the share of `seconds` that each phase worked: its time without its waits."""
    working_s = dict(spent_s)
    for what, waited in waited_s.items():
        if what in WAITED_IN:
            working_s[WAITED_IN[what]] -= waited
    return {phase: min(max(spent / seconds, 0.0), 1.0) for phase, spent in working_s.items()}

"""Readings of a running trainer: rates over the last seconds, and the time that is left."""

import os
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from redline.exploration import Sampled
from redline.learner import Learner
from redline.monitor.machine import read_disk_free_bytes, read_load_average, read_memory_available_bytes
from redline.monitor.process_files import ProcessUsage
from redline.runtime.counters import Counters, Scores
from redline.runtime.gauges import DIAGNOSES, Gauges, RoleGauges
from redline.runtime.job import Job
from redline.runtime.phases import Stopwatch, busy_shares
from redline.runtime.solving import projected_s
from redline.runtime.sources import Source
from redline.types import EnvSpec

RATE_WINDOW_S = 10.0
EPISODE_WINDOW_S = 300.0  # an episode of Pong takes a minute or more


class Measured(Protocol):
    """What a reading asks of whoever trains."""

    @property
    def job(self) -> Job:
        """What is trained, and until when."""
        ...

    @property
    def spec(self) -> EnvSpec:
        """What the envs show."""
        ...

    @property
    def source(self) -> Source:
        """Where batches come from."""
        ...

    @property
    def learner(self) -> Learner:
        """What is learnt."""
        ...

    @property
    def counters(self) -> Counters:
        """What was done so far; `time_s` is the clock of all rates, so that pauses of training don't lower them."""
        ...

    @property
    def scores(self) -> Scores:
        """What the episodes brought."""
        ...

    @property
    def epsilon(self) -> float:
        """How random the next action will be."""
        ...

    @property
    def waited_s(self) -> Mapping[str, float]:
        """Seconds waited so far, by what for."""
        ...

    @property
    def phases(self) -> Stopwatch:
        """Where the time went so far."""
        ...


class _Mark(NamedTuple):
    time_s: float  # of training
    steps: int
    updates: int
    episodes: int
    waited_s: dict[str, float]
    phases_s: dict[str, float]


class Measurer:
    """Takes readings in the process that trains; the host waits for the device here and nowhere else in training."""

    def __init__(self, trainer: Measured, *, folder: Path | None = None, role: str = "inline") -> None:
        self._trainer = trainer
        self._folder = folder or trainer.job.log_dir  # whose free space is told
        self._role = role
        self._usage = ProcessUsage()
        self._started_s = time.monotonic()
        self._marks = deque([self._mark()])
        self._loss: float | None = None
        self._diagnosis: dict[str, float] = {}

    def read(self) -> Gauges:
        """Return what the gauges show now."""
        trainer, counters, scores = self._trainer, self._trainer.counters, self._trainer.scores
        now = self._mark()
        recent, early = self._since(now.time_s - RATE_WINDOW_S), self._since(now.time_s - EPISODE_WINDOW_S)
        self._marks.append(now)
        while self._marks[0].time_s < early.time_s:
            self._marks.popleft()
        loss = trainer.learner.take_mean_loss()
        self._loss = self._loss if loss is None else loss
        self._diagnosis |= trainer.learner.take_diagnosis()
        own = self._read_role(recent, now)
        steps_per_s = own.steps_per_s or 0.0
        progress, remaining_s = self._progress(steps_per_s)
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
            best_return=scores.best,
            greedy_return=scores.greedy,
            greedy_at_steps=None if scores.greedy is None else counters.evaluated_steps,
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
            progress=progress,
            remaining_s=remaining_s,
            target_eval_return=trainer.job.limits.target_eval_return,
            solved_in_s=self._solved_in_s(),
            mean_length_100_steps=scores.mean_length_steps,
            learning_rate=trainer.job.algorithm.optimizer.lr_at(counters.schedule_steps),
            **{name: self._diagnosis.get(name) for name in DIAGNOSES},
            roles=(own,),
        )

    def _solved_in_s(self) -> float | None:
        """Return how far away the target of evaluations is by the run's own curve."""
        target, scores = self._trainer.job.limits.target_eval_return, self._trainer.scores
        if target is None:
            return None
        return projected_s(scores, target=target, now_s=self._trainer.counters.time_s)

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
        counters, waited_s = self._trainer.counters, dict(self._trainer.waited_s)
        phases_s = dict(self._trainer.phases.seconds)
        return _Mark(counters.time_s, counters.steps, counters.updates, counters.episodes, waited_s, phases_s)

    def _since(self, time_s: float) -> _Mark:
        """Return the newest mark that is not younger than `time_s`, or the oldest there is."""
        return next((mark for mark in reversed(self._marks) if mark.time_s <= time_s), self._marks[0])

    def _progress(self, steps_per_s: float) -> tuple[float | None, float | None]:
        """Return the share done and the time left of the limit that will be reached first."""
        limits, counters = self._trainer.job.limits, self._trainer.counters
        options: list[tuple[float, float]] = []  # (time left, share done)
        total_steps = limits.total_steps(frames_per_step=self._trainer.spec.frames_per_step)
        if total_steps is not None and counters.steps >= total_steps:
            return 1.0, 0.0
        if total_steps is not None and steps_per_s > 0:
            options.append(((total_steps - counters.steps) / steps_per_s, counters.steps / total_steps))
        if limits.max_minutes is not None:
            invocation_s, total_s = time.monotonic() - self._started_s, limits.max_minutes * 60
            options.append((total_s - invocation_s, invocation_s / total_s))
        if limits.max_episodes is not None and counters.episodes and counters.time_s > 0:
            left = limits.max_episodes - counters.episodes
            options.append((left * counters.time_s / counters.episodes, counters.episodes / limits.max_episodes))
        if not options:
            return None, None
        remaining_s, progress = min(options)
        return min(progress, 1.0), max(remaining_s, 0.0)

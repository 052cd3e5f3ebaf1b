"""Readings of a running trainer: rates over the last seconds, and the time that is left."""

import time
from collections import deque
from typing import NamedTuple

from redline.exploration import Sampled
from redline.monitor.usage import ProcessUsage
from redline.runtime.gauges import Gauges
from redline.runtime.inline import InlineTrainer

RATE_WINDOW_S = 10.0
EPISODE_WINDOW_S = 300.0  # an episode of Pong takes a minute or more


class _Mark(NamedTuple):
    time_s: float
    steps: int
    updates: int
    episodes: int


class Measurer:
    """Takes readings; the host waits for the device here and nowhere else in training."""

    def __init__(self, trainer: InlineTrainer) -> None:
        self._trainer = trainer
        self._usage = ProcessUsage()
        self._started_s = time.monotonic()
        self._marks = deque([self._mark()])
        self._loss: float | None = None

    def read(self) -> Gauges:
        """Return what the gauges show now."""
        trainer, counters = self._trainer, self._trainer.counters
        now = self._mark()
        recent, early = self._since(now.time_s - RATE_WINDOW_S), self._since(now.time_s - EPISODE_WINDOW_S)
        self._marks.append(now)
        while self._marks[0].time_s < early.time_s:
            self._marks.popleft()
        seconds = max(now.time_s - recent.time_s, 1e-9)
        steps_per_s = (now.steps - recent.steps) / seconds
        loss = trainer.learner.take_mean_loss()
        self._loss = self._loss if loss is None else loss
        usage = self._usage.sample()
        progress, remaining_s = self._progress(steps_per_s, invocation_s=now.time_s - self._started_s)
        memory, is_policy = trainer.source.memory, isinstance(trainer.job.algorithm.explore, Sampled)
        return Gauges(
            time_s=counters.time_s,
            unix_s=time.time(),
            steps=now.steps,
            frames=now.steps * trainer.env.spec.frames_per_step,
            updates=now.updates,
            samples=counters.samples,
            episodes=now.episodes,
            steps_per_s=steps_per_s,
            updates_per_s=(now.updates - recent.updates) / seconds,
            episodes_per_h=(now.episodes - early.episodes) / max(now.time_s - early.time_s, 1e-9) * 3600,
            samples_per_step=trainer.source.pacing.achieved(steps=now.steps, samples=counters.samples),
            mean_return_100=trainer.scores.mean,
            best_return=trainer.scores.best,
            epsilon=None if is_policy else trainer.epsilon,
            policy_entropy_nats=trainer.source.mean_entropy() if is_policy else None,
            loss=self._loss,
            actor_weights_age_updates=0,  # actor and learner share their weights in one process
            replay_transitions=None if memory is None else memory.num_transitions,
            replay_capacity_transitions=None if memory is None else memory.layout.capacity,
            replay_bytes=None if memory is None else memory.used_bytes,
            cpu_percent=usage.cpu_percent_of_core,
            rss_bytes=usage.rss_bytes,
            progress=progress,
            remaining_s=remaining_s,
        )

    def _mark(self) -> _Mark:
        counters = self._trainer.counters
        return _Mark(time.monotonic(), counters.steps, counters.updates, counters.episodes)

    def _since(self, time_s: float) -> _Mark:
        """Return the newest mark that is not younger than `time_s`, or the oldest there is."""
        return next((mark for mark in reversed(self._marks) if mark.time_s <= time_s), self._marks[0])

    def _progress(self, steps_per_s: float, *, invocation_s: float) -> tuple[float | None, float | None]:
        """Return the share done and the time left of the limit that will be reached first."""
        limits, counters = self._trainer.job.limits, self._trainer.counters
        options: list[tuple[float, float]] = []  # (time left, share done)
        total_steps = limits.total_steps(frames_per_step=self._trainer.env.spec.frames_per_step)
        if total_steps is not None and counters.steps >= total_steps:
            return 1.0, 0.0
        if total_steps is not None and steps_per_s > 0:
            options.append(((total_steps - counters.steps) / steps_per_s, counters.steps / total_steps))
        if limits.max_minutes is not None:
            total_s = limits.max_minutes * 60
            options.append((total_s - invocation_s, invocation_s / total_s))
        if limits.max_episodes is not None and counters.episodes and counters.time_s > 0:
            left = limits.max_episodes - counters.episodes
            options.append((left * counters.time_s / counters.episodes, counters.episodes / limits.max_episodes))
        if not options:
            return None, None
        remaining_s, progress = min(options)
        return min(progress, 1.0), max(remaining_s, 0.0)

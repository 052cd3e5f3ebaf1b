"""Readings of a running trainer: rates over the interval since the last one, and the time that is left."""

import time

from redline.monitor.usage import ProcessUsage
from redline.runtime.counters import Counters
from redline.runtime.gauges import Gauges
from redline.runtime.inline import InlineTrainer


class Measurer:
    """Takes readings; the host waits for the device here and nowhere else in training."""

    def __init__(self, trainer: InlineTrainer) -> None:
        self._trainer = trainer
        self._usage = ProcessUsage()
        self._started_s = self._last_s = time.monotonic()
        self._before = self._rates_from(trainer.counters)
        self._loss: float | None = None

    def read(self) -> Gauges:
        """Return what the gauges show now."""
        trainer, counters = self._trainer, self._trainer.counters
        now_s = time.monotonic()
        interval_s = max(now_s - self._last_s, 1e-9)
        steps, updates, episodes = self._rates_from(counters)
        before_steps, before_updates, before_episodes = self._before
        self._last_s, self._before = now_s, (steps, updates, episodes)
        self._loss = trainer.learner.take_mean_loss() if updates > before_updates else self._loss
        steps_per_s = (steps - before_steps) / interval_s
        usage = self._usage.sample()
        progress, remaining_s = self._progress(steps_per_s, invocation_s=now_s - self._started_s)
        memory = trainer.memory
        return Gauges(
            time_s=counters.time_s,
            unix_s=time.time(),
            steps=steps,
            frames=steps * trainer.env.spec.frames_per_step,
            updates=updates,
            samples=counters.samples,
            episodes=episodes,
            steps_per_s=steps_per_s,
            updates_per_s=(updates - before_updates) / interval_s,
            episodes_per_h=(episodes - before_episodes) / interval_s * 3600,
            samples_per_step=trainer.pacing.achieved(steps=steps, samples=counters.samples),
            mean_return_100=trainer.scores.mean,
            best_return=trainer.scores.best,
            epsilon=trainer.epsilon,
            loss=self._loss,
            actor_weights_age_updates=0,  # actor and learner share their weights in one process
            replay_transitions=memory.num_transitions,
            replay_capacity_transitions=memory.layout.capacity,
            replay_bytes=memory.num_bytes,
            cpu_percent=usage.cpu_percent_of_core,
            rss_bytes=usage.rss_bytes,
            progress=progress,
            remaining_s=remaining_s,
        )

    def _progress(self, steps_per_s: float, *, invocation_s: float) -> tuple[float | None, float | None]:
        """Return the share done and the time left of the limit that will be reached first."""
        limits, counters = self._trainer.job.limits, self._trainer.counters
        options: list[tuple[float, float]] = []  # (time left, share done)
        total_steps = limits.total_steps(frames_per_step=self._trainer.env.spec.frames_per_step)
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

    @staticmethod
    def _rates_from(counters: Counters) -> tuple[int, int, int]:
        return counters.steps, counters.updates, counters.episodes

"""How fast this machine trains: a short real training of each game, its warm-up left out, in several windows."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from redline.algorithms.q_learning import QLearning
from redline.bench.measuring import Progress, rate_of, silent
from redline.bench.training_speed import first_window_steps, is_between_rollouts, recorded, train_window
from redline.exploration import EpsilonGreedy
from redline.plan.time import Speed, exact
from redline.runtime.building import build_trainer, prepare_process
from redline.runtime.config import Job
from redline.runtime.resolve import resolve_job

WINDOWS = 5
WARMUP_STEPS = 6_000  # at most: the memory need not be as full as in a long training
CAPACITY = 20_000


@dataclass(frozen=True)
class Trial:
    """What was measured of one game."""

    speed: Speed
    others_percent: float  # of all cores, used by other processes in the worst window


def measure_speed(job: Job, *, algorithm: str, seconds: float, progress: Progress = silent) -> Trial:
    """Train for so many seconds after the warm-up, and return the speed; low and high hold 90 % of the windows."""
    resolved = resolve_job(shortened(job))
    prepare_process(resolved)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="redline-plan-")))
        trainer = build_trainer(resolved, env_seed=resolved.job.seed)
        stack.callback(trainer.close)
        training = stack.enter_context(recorded(trainer, folder, algorithm=algorithm, note=progress))
        progress(f"{job.env.id}: warming up")
        trainer.begin()
        opens_at_steps = first_window_steps(resolved.job, None)
        while trainer.counters.steps < opens_at_steps or not is_between_rollouts(training):
            training.step()
        progress(f"{job.env.id}: measuring for {seconds:.0f} s")
        windows = [train_window(training, seconds / WINDOWS) for _ in range(WINDOWS)]
        length_steps = trainer.scores.mean_length_steps
    spread = rate_of([window["steps_per_s"] for window in windows])
    rate = sum(window["steps"] for window in windows) / sum(window["window_s"] for window in windows)
    speed = Speed(
        rate=exact(rate),
        unit="steps/s",
        source="measured",
        low_rate=exact(min(spread["low"], rate)),
        high_rate=exact(max(spread["high"], rate)),
        episode_steps=None if length_steps is None else exact(length_steps),
    )
    return Trial(speed, max(window["others_percent"] for window in windows))


def shortened(job: Job) -> Job:
    """Return the job with a short warm-up, after which it acts by its network as in nearly all of a training."""
    algorithm = job.algorithm
    if not isinstance(algorithm, QLearning):
        return job
    steps, explore = min(algorithm.warmup_steps, WARMUP_STEPS), algorithm.explore
    if isinstance(explore, EpsilonGreedy):
        explore = replace(explore, epsilon=replace(explore.epsilon, over_steps=steps, after_steps=0))
    kept = replace(algorithm.replay, capacity=min(algorithm.replay.capacity, CAPACITY))
    return replace(job, algorithm=replace(algorithm, warmup_steps=steps, explore=explore, replay=kept))

"""Readings of a trainer, against numbers worked by hand."""

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from redline.algorithms.catalog import ALGORITHMS
from redline.runtime.config import Job, Limits
from redline.runtime.counters import Counters, Pacing, Scores
from redline.runtime.loop import Loop
from redline.runtime.training import Stopwatch
from redline.types import EnvSpec


class Learner:
    def take_mean_loss(self) -> float | None:
        return None

    def take_diagnosis(self) -> dict[str, float]:
        return {}


class Source:
    memory = None
    pacing = Pacing(samples_per_step=4.0, warmup_steps=1_000)
    entropy_nats = 1.5


class Trainer:
    """Whoever trains, moved on by hand."""

    spec = EnvSpec("stub", (2,), "float32", stack=1, num_actions=2, frames_per_step=4)
    epsilon = 0.25

    def __init__(self, algorithm: str = "dqn", **limits: Any) -> None:
        self.job = Job(algorithm=ALGORITHMS[algorithm].atari.algorithm, limits=Limits(**limits))
        self.counters, self.scores = Counters(), Scores()
        self.source: Any = Source()
        self.learner: Any = Learner()
        self.waited_s = {"envs": 0.0}
        self.phases = Stopwatch()

    def go_on(self, seconds: float, *, steps: int, updates: int = 0, waited_s: float = 0.0) -> None:
        self.counters.steps += steps
        self.counters.updates += updates
        self.counters.count_time(seconds)
        self.waited_s["envs"] += waited_s
        self.phases.seconds["keep"] += waited_s
        self.phases.seconds["learn"] += seconds - waited_s

    def check_loss(self, loss: float | None) -> None:
        pass


def loop_of(trainer: Any, folder: Path = Path()) -> Loop:
    return Loop(trainer, folder=folder)


def test_rates_are_over_the_last_seconds_of_training_whatever_time_has_passed() -> None:
    trainer = Trainer()
    loop = loop_of(trainer)
    for _ in range(5):
        trainer.go_on(4.0, steps=400, updates=40, waited_s=1.0)
        loop.read()
    trainer.go_on(10.0, steps=3_000, updates=100, waited_s=8.0)
    gauges = loop.read()
    assert (gauges.steps_per_s, gauges.updates_per_s) == (300.0, 10.0)
    (role,) = gauges.roles
    assert (role.role, role.pid, role.restarts) == ("inline", os.getpid(), 0)
    assert (role.steps_per_s, role.updates_per_s, role.weights_age_updates) == (300.0, 10.0, 0.0)
    assert role.waiting == {"envs": pytest.approx(0.8)}
    assert role.busy == pytest.approx({"act": 0.0, "draw": 0.0, "learn": 0.2, "keep": 0.0, "other": 0.0})
    assert (gauges.time_s, gauges.steps, gauges.frames) == (30.0, 5_000, 20_000)


def test_the_warm_up_is_told_apart() -> None:
    trainer = Trainer()
    loop = loop_of(trainer)
    assert loop.read().warmup_steps_per_s is None
    trainer.go_on(2.0, steps=10_000)
    assert loop.read().warmup_steps_per_s == 5_000.0
    trainer.go_on(8.0, steps=800, updates=200)
    gauges = loop.read()
    assert (gauges.warmup_steps_per_s, gauges.steps_per_s) == (5_000.0, 1_080.0)
    assert trainer.counters.learning_steps_per_s == 100.0


def test_what_learns_from_the_first_step_on_has_no_warm_up() -> None:
    trainer = Trainer("ppo")
    trainer.go_on(2.0, steps=1_000)
    gauges = loop_of(trainer).read()
    assert gauges.warmup_steps_per_s is None
    assert (gauges.epsilon, gauges.policy_entropy_nats) == (None, 1.5)


def test_the_newest_evaluation_is_told_with_its_step() -> None:
    trainer = Trainer()
    loop = loop_of(trainer)
    gauges = loop.read()
    assert (gauges.greedy_return, gauges.greedy_at_steps) == (None, None)
    trainer.scores.greedy_return, trainer.counters.evaluated_steps = 18.5, 4_000
    gauges = loop.read()
    assert (gauges.greedy_return, gauges.greedy_at_steps, gauges.mean_return_100) == (18.5, 4_000, None)


def test_the_machine_is_read_where_the_run_is(tmp_path: Path) -> None:
    gauges = loop_of(Trainer(), tmp_path).read()
    assert gauges.disk_free_bytes is not None
    assert gauges.memory_available_bytes is not None
    assert loop_of(Trainer(), tmp_path / "none").read().disk_free_bytes is None
    (role,) = gauges.roles
    assert (gauges.cpu_percent, gauges.rss_bytes) == (role.cpu_percent, role.rss_bytes)
    assert gauges.rss_bytes > 1_000_000


def test_the_warm_up_tells_nothing_of_the_time_that_is_left() -> None:
    trainer = Trainer(max_steps=10_000)
    loop = loop_of(trainer)
    trainer.go_on(1.0, steps=1_000)
    trainer.counters.warmup_time_s, trainer.counters.warmup_steps = 1.0, 1_000
    gauges = loop.read()
    assert (gauges.progress, gauges.remaining_s) == (0.1, None)
    trainer.counters.updates = 100
    trainer.go_on(5.0, steps=500)  # ten times as slow, by which the rest is judged at once
    gauges = loop.read()
    assert (gauges.progress, gauges.remaining_s) == (0.15, 85.0)


def test_the_nearest_limit_tells_what_is_left() -> None:
    trainer = Trainer(max_steps=10_000, max_episodes=100)
    loop = loop_of(trainer)
    trainer.counters.updates = 1
    trainer.go_on(10.0, steps=1_000)
    trainer.counters.episodes = 50
    gauges = loop.read()
    assert (gauges.progress, gauges.remaining_s) == (0.5, 10.0)
    trainer.job = replace(trainer.job, limits=Limits(max_steps=1_000))
    assert (loop.read().progress, loop.read().remaining_s) == (1.0, 0.0)


def test_an_evaluation_makes_the_rest_longer() -> None:
    trainer = Trainer(max_steps=2_000)
    loop = loop_of(trainer)
    trainer.counters.updates = 1
    trainer.go_on(10.0, steps=1_000)
    with loop.pause():
        time.sleep(0.1)
    remaining_s = loop.read().remaining_s
    assert remaining_s is not None
    assert remaining_s >= 10.1


def test_a_price_tells_the_money_of_all_invocations_and_of_the_rest() -> None:
    trainer = Trainer(max_steps=3_000)
    assert loop_of(trainer).read().cost is None
    trainer.job = replace(trainer.job, price_per_hour=3_600.0)
    trainer.counters.updates, trainer.counters.elapsed_s = 1, 500.0  # of earlier invocations
    loop = loop_of(trainer)
    trainer.go_on(10.0, steps=1_000)
    gauges = loop.read()
    assert gauges.elapsed_s is not None
    assert gauges.elapsed_s > 500.0
    assert (gauges.price_per_hour, gauges.cost) == pytest.approx((3_600.0, gauges.elapsed_s))
    assert (gauges.cost_remaining, gauges.cost_per_million_steps) == pytest.approx((20.0, 10_000.0))

"""The training bench: the algorithm's own settings, windows of whole rollouts, and the share of the limit."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from redline.algorithms.catalog import ALGORITHMS
from redline.bench.learner_speed import Limit, Work
from redline.bench.training_speed import (
    TrainBench,
    first_window_steps,
    is_between_rollouts,
    make_job,
    read_learning,
    recorded,
    train_window,
)
from redline.cli.flags import parse_train
from redline.runtime.building import build_trainer
from redline.runtime.resolve import resolve_job

LIMIT = Limit(sgemm_gflops=100.0, work=Work(flop_per_update=1e9, flop_per_step=2.5e8), env_s_per_step=0.0025)
assert LIMIT.steps_per_s == pytest.approx(200.0)


def row(steps_per_s: float, *, updates_per_step: float = 0.25, others_percent: float = 2.0) -> dict[str, Any]:
    window = {"updates_per_s": 25.0, "cores_used": 1.5, "episodes": 1, "mean_return": -20.0}
    window |= {"updates_per_step": updates_per_step, "others_percent": others_percent, "steps_per_s": steps_per_s}
    return {"redline": window}


def read(*rows: dict[str, Any], bench: TrainBench | None = None) -> dict[str, Any]:
    return (bench or TrainBench()).read_rounds(rows, make_job("dqn"), LIMIT)


def test_the_median_of_the_rounds_is_the_share_of_the_limit() -> None:
    found = read(*(row(speed) for speed in (116.0, 119.0, 130.0, 117.0, 121.0)))
    assert found["steps_per_s"]["median"] == 119.0
    assert found["limit_fraction"]["median"] == pytest.approx(119.0 / 200.0)
    assert found["goals"]["limit_fraction"]["met"] is True
    assert found["learning"]["redline"]["samples_per_step"]["median"] == 8.0
    assert found["learning"]["redline"]["mean_return_in_windows"] == -20.0


def test_a_low_bound_that_is_too_low_fails() -> None:
    found = read(*(row(speed) for speed in (90.0, 90.0, 119.0, 119.0, 119.0)))
    assert found["goals"]["limit_fraction"]["met"] is False


def test_a_training_that_learns_less_is_not_judged() -> None:
    found = read(*(row(119.0, updates_per_step=0.24) for _ in range(5)))
    assert found["same_updates_per_step"] is False
    assert found["goals"]["limit_fraction"]["met"] is None


@pytest.mark.parametrize(
    ("bench", "others_percent", "rounds", "reason"),
    [
        (TrainBench(seconds=4.0), 2.0, 5, "windows of 5 s"),
        (TrainBench(), 16.0, 5, "others used 16 %"),
        (TrainBench(env="BreakoutNoFrameskip-v4"), 2.0, 5, "for 8 envs of Pong"),
        (TrainBench(), 2.0, 4, "needs 5 rounds"),
    ],
)
def test_what_keeps_from_a_verdict_is_said(bench: TrainBench, others_percent: float, rounds: int, reason: str) -> None:
    found = read(*[row(119.0)] * (rounds - 1), row(119.0, others_percent=others_percent), bench=bench)
    assert found["goals"]["limit_fraction"]["met"] is None
    assert reason in found["goals"]["limit_fraction"]["reason"]


def test_a_mean_return_weighs_episodes_alike() -> None:
    def mean_return(*windows: tuple[int, float | None]) -> float | None:
        rest = {"updates_per_step": 0.25, "cores_used": 1.0}
        rows = [{"episodes": episodes, "mean_return": mean, **rest} for episodes, mean in windows]
        found: float | None = read_learning(rows, batch_size=32)["mean_return_in_windows"]
        return found

    assert mean_return((3, -20.0), (1, -16.0), (0, None)) == -19.0
    assert mean_return((0, None)) is None


@pytest.mark.parametrize("name", ["ppo", "a2c"])
def test_rollouts_are_the_algorithms_default(name: str) -> None:
    preset, job = ALGORITHMS[name].atari, make_job(name)
    assert (job.algorithm, job.num_envs) == (preset.algorithm, preset.num_envs)
    assert first_window_steps(job, None) == 800 * preset.num_envs
    assert first_window_steps(job, 500) == 500


def test_dqn_differs_from_the_default_only_in_what_a_short_run_needs() -> None:
    job, default = make_job("dqn"), ALGORITHMS["dqn"].atari.algorithm
    short = {"explore": default.explore, "replay": default.replay, "warmup_steps": default.warmup_steps}
    assert replace(job.algorithm, **short) == default
    assert first_window_steps(job, None) == 6_000 + 400
    assert make_job("dqn", warmup_steps=500).algorithm.warmup_steps == 500


def test_a_window_holds_whole_rollouts_with_their_updates(tmp_path: Path) -> None:
    flags = ["--algo", "ppo", "--rollout-steps", "4", "--batch-size", "4", "--epochs", "1", "--monitor.hz", "0"]
    job = parse_train(["--env", "CartPole-v1", "--num-envs", "2", *flags]).job
    trainer = build_trainer(resolve_job(job), env_seed=1)
    try:
        with recorded(trainer, tmp_path, algorithm="ppo", note=pytest.fail) as training:
            trainer.begin()
            while not is_between_rollouts(training):
                training.step()
            window = train_window(training, 0.05)
    finally:
        trainer.close()
    assert window["first_step"] % 8 == window["steps"] % 8 == 0
    assert window["updates_per_step"] == 0.25  # 2 updates of 4 rows for each rollout of 8 steps
    assert window["steps_per_s"] == pytest.approx(window["steps"] / window["window_s"])
    assert window["episodes"] > 0

"""The learner bench: the real learner, fed as a training feeds it, beside the limit."""

from dataclasses import replace

import pytest
import torch

from redline.algorithms.catalog import ALGORITHMS
from redline.algorithms.family import batch_tensors
from redline.bench import learner_speed
from redline.bench.learner_speed import LearnerBench, Learning, batches_at_once
from redline.envs.catalog import env_spec
from redline.envs.config import EnvConfig
from redline.runtime import example_batches as batches_module
from redline.runtime.config import Job
from redline.runtime.example_batches import example_batches
from redline.runtime.resolve import ResolvedJob


def settled_on_pong(name: str, batch_size: int | None = None) -> ResolvedJob:
    return LearnerBench(algo=name, batch_size=batch_size).resolve()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(learner_speed, "SIZES", (64,))
    monkeypatch.setattr(learner_speed, "TRY_SECONDS", 0.005)


def test_updates_beside_the_limit() -> None:
    threads = torch.get_num_threads()
    try:
        result = LearnerBench(batch_size=2, threads=1, rounds=2, turn_s=0.02).run()
    finally:
        torch.set_num_threads(threads)
        torch.set_flush_denormal(False)
    updates, steps = result["updates_per_s"], result["steps_per_s"]
    assert steps["median"] == pytest.approx(updates["median"] / 4)  # 8 samples per step, 2 per update
    assert result["limit_fraction"]["median"] == pytest.approx(updates["median"] / result["limit"]["updates_per_s"])
    assert result["limit"]["flop_per_update"] == pytest.approx(2.18e9 / 16, rel=0.01)
    assert result["goals"]["limit_fraction"]["met"] is None  # other batches than the goal speaks of


def test_a_count_is_a_number_of_updates() -> None:
    settled = settled_on_pong("dqn", batch_size=2)
    spec = env_spec(settled.job.env)
    learning = Learning(settled, spec, example_batches(settled.job.algorithm, spec, seed=1), seed=1)
    before = [value.clone() for value in learning.learner.online.parameters()]
    learning(5)
    assert learning.learner.updates == 5
    assert any(not torch.equal(a, b) for a, b in zip(before, learning.learner.online.parameters(), strict=True))


def test_large_batches_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm, spec = replace(ALGORITHMS["dqn"].atari.algorithm, batch_size=2), env_spec(EnvConfig(id="pong"))
    batches = example_batches(algorithm, spec, seed=1)
    assert len(batches) == 16
    num_bytes = sum(tensor.nbytes for tensor in batch_tensors(batches[0]).values())
    assert num_bytes > 2 * 5 * 84 * 84
    monkeypatch.setattr(batches_module, "MOST_BYTES", 3 * num_bytes)
    assert len(example_batches(algorithm, spec, seed=1)) == 3
    monkeypatch.setattr(batches_module, "MOST_BYTES", 1)
    assert len(example_batches(algorithm, spec, seed=1)) == 2


@pytest.mark.parametrize(("name", "count"), [("dqn", 2), ("prioritized-dqn", 1), ("drqn", 1), ("ppo", 1), ("a2c", 1)])
def test_batches_come_in_the_groups_of_a_training(name: str, count: int) -> None:
    preset = ALGORITHMS[name].atari
    assert batches_at_once(Job(algorithm=preset.algorithm, num_envs=preset.num_envs)) == count


@pytest.mark.parametrize(("name", "expected"), [("a2c", True), ("ppo", False), ("dqn", False)])
def test_what_a_training_shares_with_acting_is_known(name: str, expected: bool) -> None:
    settled = settled_on_pong(name)
    assert Learning(settled, env_spec(settled.job.env), [], seed=1).includes_forward_of_acting is expected

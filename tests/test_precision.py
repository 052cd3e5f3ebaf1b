"""Products in bf16: what stays float32, how far results are from float32, and who chooses."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from redline.algorithms.catalog import ALGORITHMS
from redline.algorithms.named.dqn import DQN
from redline.algorithms.named.drqn import DRQN
from redline.envs.config import EnvConfig
from redline.learner import Learner
from redline.networks import Small
from redline.runtime import precision, resolve
from redline.runtime.config import Job, LearnerConfig
from redline.runtime.example_batches import example_batch
from redline.types import EnvSpec, Precision

CPU = torch.device("cpu")
PICTURES = EnvSpec("test", (42, 42), "uint8", stack=4, num_actions=3, frames_per_step=4)


def small(name: str) -> object:
    """Return an algorithm for pictures with a small network and small batches."""
    algorithm = ALGORITHMS[name].atari.algorithm
    network = Small(width=32) if not algorithm.network.reads_vectors() else algorithm.network
    return replace(algorithm, network=network, batch_size=32)


def learner_of(algorithm: object, how: Precision, *, seed: int = 1) -> Learner:
    return Learner(algorithm, PICTURES, seed=seed, device=CPU, precision=how)  # type: ignore[arg-type]


def learn(learner: Learner, updates: int) -> None:
    for update in range(updates):
        rng = np.random.default_rng(update)
        learner.update(example_batch(learner.algorithm, PICTURES, rng), steps=update, rng=rng)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(ALGORITHMS))
def test_weights_moments_and_outputs_are_float32_and_close_to_those_of_float32(name: str) -> None:
    algorithm = small(name)
    exact, rough = learner_of(algorithm, "float32"), learner_of(algorithm, "bf16")
    obs = example_batch(DQN, PICTURES, np.random.default_rng(5)).frames[:, :4]  # type: ignore[union-attr]
    state = torch.zeros(len(obs), rough.online.state_width)
    expected, found = exact.online.step(obs, state)[0], rough.online.step(obs, state)[0]
    assert found.dtype == torch.float32
    assert not torch.equal(found, expected)  # the products were others
    torch.testing.assert_close(found, expected, atol=0.05, rtol=0.05)
    learn(rough, 2)
    dtypes = {value.dtype for part in rough.state().values() for value in part.values()}
    assert dtypes == {torch.float32}
    assert rough.non_finite_weights() == []


def test_pictures_lose_nothing() -> None:
    every_value = torch.arange(256, dtype=torch.uint8)
    assert torch.equal(every_value.to(torch.bfloat16).to(torch.float32), every_value.to(torch.float32))


@pytest.mark.parametrize("algorithm", [small("dqn"), small("ppo"), small("rainbow"), replace(DRQN, network=Small(32))])
def test_a_restored_learner_goes_on_bit_for_bit(algorithm: object) -> None:
    whole = learner_of(algorithm, "bf16")
    learn(whole, 3)
    restored = learner_of(algorithm, "bf16", seed=9)
    restored.load_state(whole.state(), updates=whole.updates)
    for learner in (whole, restored):
        learn(learner, 3)
    for part, tensors in whole.state().items():
        for name, value in tensors.items():
            assert torch.equal(value, restored.state()[part][name]), (part, name)


def resolved(asked: str) -> resolve.ResolvedJob:
    learner = LearnerConfig(precision=asked, threads=1)  # type: ignore[arg-type]
    env = EnvConfig(id="redline/Catch-v0")
    return resolve.resolve_job(Job(env=env, algorithm=small("dqn"), learner=learner, device="cpu"))  # type: ignore[arg-type]


def test_float32_is_the_default_and_changes_nothing() -> None:
    assert Job(algorithm=DQN).learner.precision == "float32"
    assert not any(item.setting == "learner.precision" for item in resolved("float32").adjustments)


def test_without_instructions_for_bf16_the_learner_says_that_it_computes_in_float32(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(precision, "has_bf16", lambda: False)
    for asked in ("bf16", "auto"):
        found = resolved(asked)
        assert found.job.learner.precision == "float32"
        said = "float32 (this processor has no instructions for bf16)"
        assert str(found.adjustments[-1]) == f"learner.precision: {asked} → {said}"


@pytest.mark.parametrize(
    ("gains", "chosen"), [([1.5] * 4 + [0.9], "bf16"), ([1.5, 1.5, 1.5, 0.9, 0.9], "float32"), ([1.02] * 5, "float32")]
)
def test_auto_takes_bf16_only_where_it_is_faster(
    monkeypatch: pytest.MonkeyPatch, gains: list[float], chosen: str
) -> None:
    monkeypatch.setattr(precision, "has_bf16", lambda: True)
    monkeypatch.setattr(precision, "measure_gains", lambda *_: gains)
    found = resolved("auto")
    assert found.job.learner.precision == chosen
    assert f"auto → {chosen} (updates in bf16 are {np.median(gains):.2f} × as fast here" in str(found.adjustments[-1])


def test_auto_measures_real_updates_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "has_bf16", lambda: True)
    monkeypatch.setattr(precision, "TURN_S", 0.001)
    monkeypatch.setattr(precision, "_measured", {})
    threads = torch.get_num_threads()
    resolved("auto")
    (gains,) = precision._measured.values()
    assert len(gains) == precision.ROUNDS
    assert all(gain > 0 for gain in gains)
    assert torch.get_num_threads() == threads
    resolved("auto")
    assert len(precision._measured) == 1

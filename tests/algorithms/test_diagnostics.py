"""What a run tells of its learning: worked by hand, with every kind of algorithm, without a trace in the weights."""

import math
from pathlib import Path

import pytest
import torch

import redline
from redline import learner
from redline.algorithms.catalog import ALGORITHMS
from redline.algorithms.on_policy import Clipped, PolicyGradient, QLambda
from redline.types import RolloutBatch

LN2 = math.log(2.0)


def rollout(*, action: list[int], log_probability: list[float], target: list[float]) -> RolloutBatch:
    rows = len(action)
    return RolloutBatch(
        obs=torch.zeros(rows, 1, 4),
        action=torch.tensor(action),
        log_probability=torch.tensor(log_probability),
        advantage=torch.zeros(rows),
        target=torch.tensor(target),
    )


def test_kl_and_clip_fraction_are_those_of_the_ratios() -> None:
    out = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 3.0]])  # two actions at ½ each, values 1 and 3
    # by the policy that acted ½ and ¼: the ratios are 1 and 2
    batch = rollout(action=[0, 1], log_probability=[-LN2, -2 * LN2], target=[1.0, 3.0])
    found = Clipped(clip=0.2).diagnose(out, batch)
    assert float(found["clip_fraction"]) == 0.5
    assert float(found["approximate_kl_nats"]) == pytest.approx((0.0 + (2.0 - 1.0 - LN2)) / 2)
    assert float(found["explained_variance"]) == pytest.approx(1.0)


@pytest.mark.parametrize(("target", "explained"), [([1.0, 3.0], 1.0), ([2.0, 4.0], 1.0), ([3.0, 1.0], -3.0)])
def test_explained_variance_looks_at_the_spread_of_the_errors(target: list[float], explained: float) -> None:
    out = torch.tensor([[0.0, 0.0, 1.0], [0.0, 0.0, 3.0]])
    found = PolicyGradient().diagnose(out, rollout(action=[0, 0], log_probability=[0.0, 0.0], target=target))
    assert float(found["explained_variance"]) == pytest.approx(explained)


def test_values_are_those_of_the_best_actions() -> None:
    out = torch.tensor([[[1.0], [2.0]], [[5.0], [-1.0]]])  # [B, A, 1]
    found = QLambda().diagnose(out, rollout(action=[0, 0], log_probability=[0.0, 0.0], target=[0.0, 7.0]))
    assert {name: float(value) for name, value in found.items()} == {"td_error": 1.5, "mean_q": 3.5, "largest_q": 5.0}


EXPECTED = {
    "dqn": {"gradient_norm", "td_error", "mean_q", "largest_q"},
    "rainbow": {"gradient_norm", "td_error", "mean_q", "largest_q"},
    "drqn": {"gradient_norm", "td_error"},
    "a2c": {"gradient_norm", "explained_variance"},
    "ppo": {"gradient_norm", "explained_variance", "approximate_kl_nats", "clip_fraction"},
    "pqn": {"gradient_norm", "td_error", "mean_q", "largest_q"},
}
ALL = set().union(*EXPECTED.values())


@pytest.mark.parametrize("algorithm", EXPECTED)
def test_a_run_tells_what_its_algorithm_has(algorithm: str, tmp_path: Path) -> None:
    warmup = {"warmup_steps": 64} if ALGORITHMS[algorithm].classic.algorithm.warmup_steps else {}
    steps = 512 if warmup else 2_048
    run = redline.train(
        "CartPole-v1", algorithm, max_steps=steps, log_dir=tmp_path, monitor={"hz": 0.0}, record="off", **warmup
    )
    last = run.metrics[-1]
    assert {name for name in ALL if last[name] is not None} == EXPECTED[algorithm]
    assert all(math.isfinite(last[name]) for name in EXPECTED[algorithm])
    assert last["learning_rate"] > 0.0
    assert last["mean_length_100_steps"] == pytest.approx(last["mean_return_100"])  # CartPole gives 1 for each step


@pytest.mark.parametrize("algorithm", ["dqn", "noisy-dqn", "ppo", "a2c"])
def test_diagnosing_leaves_no_trace_in_the_weights(
    algorithm: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warmup = {"warmup_steps": 64} if ALGORITHMS[algorithm].classic.algorithm.warmup_steps else {}
    weights = []
    for period in (1, 10**9):
        monkeypatch.setattr(learner, "DIAGNOSIS_PERIOD", period)
        folder = tmp_path / str(period)
        run = redline.train("CartPole-v1", algorithm, max_steps=512, log_dir=folder, monitor={"hz": 0.0}, **warmup)
        weights.append(next(run.path.glob("checkpoints/*512*/weights.safetensors")).read_bytes())
    assert weights[0] == weights[1]

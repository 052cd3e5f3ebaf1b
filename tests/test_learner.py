"""The learner: its update against plain PyTorch, its target sync, and what a checkpoint brings back."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from redline.algorithms.named.dqn import DQN
from redline.algorithms.optimizers import Adam, Rmsprop
from redline.algorithms.predictions import OnlineChooses
from redline.algorithms.q_learning import QLearning
from redline.errors import UserError
from redline.learner import Learner, describe_batch
from redline.networks import Mlp, Noisy, Small
from redline.returns import NStep
from redline.types import Batch, EnvSpec

PICTURES = EnvSpec("test", (40, 40), "uint8", stack=4, num_actions=3, frames_per_step=4)
VECTORS = EnvSpec("test", (3,), "float32", stack=1, num_actions=3, frames_per_step=1)
VECTOR_DQN = replace(DQN, network=Mlp((16,)), optimizer=Adam(lr=0.1, eps=0.01), target_sync_updates=3)
PICTURE_DQN = replace(DQN, network=Small(width=32), target_sync_updates=2)
CPU = torch.device("cpu")


def batch_for(spec: EnvSpec, seed: int, rows: int = 8) -> Batch:
    rng = torch.Generator().manual_seed(seed)
    shape = (rows, spec.stack + 1, *spec.frame_shape)
    is_image = spec.frame_dtype == "uint8"
    return Batch(
        frames=torch.randint(0, 256, shape, generator=rng, dtype=torch.uint8)
        if is_image
        else torch.randn(shape, generator=rng),
        offset=torch.ones(rows, dtype=torch.int64),
        action=torch.randint(0, spec.num_actions, (rows,), generator=rng),
        reward=torch.randn(rows, generator=rng),
        discount=torch.full((rows,), 0.99),
        weight=torch.rand(rows, generator=rng) + 0.5,
    )


def learn(learner: Learner, batch: Batch) -> None:
    learner.update(batch, steps=learner.updates, rng=np.random.default_rng(learner.updates))


def weights(learner: Learner) -> dict[str, torch.Tensor]:
    return learner.state()["weights"]


def test_one_update_equals_adam_worked_out_by_hand() -> None:
    learner = Learner(VECTOR_DQN, VECTORS, seed=1, device=CPU)
    batch = batch_for(VECTORS, seed=0)
    before = {name: value.clone() for name, value in learner.online.named_parameters()}
    with torch.no_grad():
        target = batch.reward + batch.discount * learner.target(batch.frames[:, 1:]).squeeze(-1).max(1).values
    values = learner.online(batch.frames[:, :1]).squeeze(-1)[torch.arange(8), batch.action]
    error = values - target
    loss = (batch.weight * torch.where(error.abs() <= 1, 0.5 * error**2, error.abs() - 0.5)).mean()
    gradients = dict(zip(before, torch.autograd.grad(loss, list(learner.online.parameters())), strict=True))
    learn(learner, batch)
    for name, parameter in learner.online.named_parameters():
        # the first step of Adam, bias-corrected: lr · g / (|g| + eps)
        expected = before[name] - 0.1 * gradients[name] / (gradients[name].abs() + 0.01)
        torch.testing.assert_close(parameter.detach(), expected, atol=1e-5, rtol=1e-5)
    assert learner.take_mean_loss() == pytest.approx(loss.item(), rel=1e-5)
    assert learner.take_mean_loss() is None


def test_the_target_follows_every_third_update_and_only_then() -> None:
    learner = Learner(VECTOR_DQN, VECTORS, seed=1, device=CPU)
    is_synced = []
    for update in range(6):
        learn(learner, batch_for(VECTORS, seed=update))
        online, target = weights(learner)["head.0.2.dense.weight"], learner.state()["target"]["head.0.2.dense.weight"]
        is_synced.append(torch.equal(online, target))
    assert is_synced == [False, False, True, False, False, True]


@pytest.mark.parametrize(("algorithm", "spec"), [(VECTOR_DQN, VECTORS), (PICTURE_DQN, PICTURES)])
def test_a_restored_learner_goes_on_bit_for_bit(algorithm: QLearning, spec: EnvSpec) -> None:
    whole = Learner(algorithm, spec, seed=1, device=CPU)
    for update in range(5):
        learn(whole, batch_for(spec, seed=update))
    restored = Learner(algorithm, spec, seed=99, device=CPU)
    restored.load_state(whole.state(), updates=whole.updates)
    for update in range(5, 12):
        for learner in (whole, restored):
            learn(learner, batch_for(spec, seed=update))
    for part, tensors in whole.state().items():
        for name, value in tensors.items():
            assert torch.equal(value, restored.state()[part][name]), (part, name)


def test_a_learner_saved_before_its_first_update_comes_back() -> None:
    whole, restored = (Learner(VECTOR_DQN, VECTORS, seed=seed, device=CPU) for seed in (1, 2))
    restored.load_state(whole.state(), updates=0)
    for learner in (whole, restored):
        learn(learner, batch_for(VECTORS, seed=0))
    assert all(torch.equal(value, weights(restored)[name]) for name, value in weights(whole).items())


@pytest.mark.parametrize(
    "algorithm", [PICTURE_DQN, replace(PICTURE_DQN, bootstrap=OnlineChooses(), returns=NStep(n=1))]
)
def test_updates_foreseen_together_are_those_done_one_by_one_across_a_sync_of_the_target(algorithm: QLearning) -> None:
    together, alone = (Learner(algorithm, PICTURES, seed=1, device=CPU) for _ in range(2))
    batches = [batch_for(PICTURES, seed=number) for number in range(6)]
    for group in (batches[:1], batches[1:6]):  # the target changes after updates 2, 4 and 6
        precomputed = together.precompute_targets(group)
        for batch, known in zip(group, precomputed, strict=True):
            together.update(batch, steps=0, rng=np.random.default_rng(0), precomputed=known)
            alone.update(batch, steps=0, rng=np.random.default_rng(0))
    for name, value in weights(together).items():
        torch.testing.assert_close(value, weights(alone)[name], atol=1e-5, rtol=1e-4)


def test_nothing_is_foreseen_beyond_the_next_sync_nor_through_noise() -> None:
    batches = [batch_for(PICTURES, seed=number) for number in range(4)]
    learner = Learner(replace(PICTURE_DQN, target_sync_updates=3), PICTURES, seed=1, device=CPU)
    assert [known is not None for known in learner.precompute_targets(batches)] == [True, True, True, False]
    noisy = Learner(replace(PICTURE_DQN, layers=Noisy()), PICTURES, seed=1, device=CPU)
    assert noisy.precompute_targets(batches) == [None] * 4


def test_weights_of_another_network_are_refused() -> None:
    learner, other = (
        Learner(replace(VECTOR_DQN, network=Mlp((width,))), VECTORS, seed=1, device=CPU) for width in (8, 9)
    )
    with pytest.raises(UserError, match="train anew"):
        learner.load_state(other.state(), updates=0)


def test_an_optimiser_that_kept_something_else_is_refused() -> None:
    algorithm = replace(VECTOR_DQN, optimizer=Rmsprop())
    learner = Learner(algorithm, VECTORS, seed=1, device=CPU)
    state = learner.state()
    renamed = {name.replace("exp_avg_sq", "square_avg"): value for name, value in state["optimizer"].items()}
    with pytest.raises(UserError, match="train anew"):
        learner.load_state({**state, "optimizer": renamed}, updates=0)


def test_weights_that_are_no_numbers_are_named() -> None:
    learner = Learner(VECTOR_DQN, VECTORS, seed=1, device=CPU)
    assert learner.non_finite_weights() == []
    learn(learner, replace(batch_for(VECTORS, seed=0), reward=torch.full((8,), torch.nan)))
    assert "head.0.2.dense.weight" in learner.non_finite_weights()


def test_a_batch_is_described_by_its_ranges() -> None:
    batch = replace(batch_for(VECTORS, seed=0), reward=torch.arange(8.0))
    assert "reward 0 … 7" in describe_batch(batch)

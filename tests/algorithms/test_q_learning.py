"""Acting and TD losses, against numbers worked by hand and a naive loop."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from redline.algorithms.family import ActorParams, act
from redline.algorithms.named.dqn import DQN
from redline.algorithms.predictions import Expected, TargetChooses, take_actions
from redline.algorithms.q_learning import following_frames, td_losses
from redline.exploration import Sampled
from redline.networks import Mlp, Network, build_value_network
from redline.types import Batch, EnvSpec

SPEC = EnvSpec("test", (3,), "float32", stack=2, num_actions=4, frames_per_step=1)
CPU = torch.device("cpu")


def network(seed: int) -> Network:
    return build_value_network(Mlp((8,)), SPEC, outputs=1, generator=torch.Generator().manual_seed(seed))


def random_batch(rows: int, n_steps: int, seed: int = 0) -> Batch:
    rng = torch.Generator().manual_seed(seed)
    return Batch(
        frames=torch.randn(rows, SPEC.stack + n_steps, 3, generator=rng),
        offset=torch.randint(1, n_steps + 1, (rows,), generator=rng),
        action=torch.randint(0, 4, (rows,), generator=rng),
        reward=torch.randn(rows, generator=rng) * 3,
        discount=torch.where(torch.rand(rows, generator=rng) < 0.3, 0.0, 0.97),
        weight=torch.rand(rows, generator=rng),
    )


def test_actions_are_taken_row_by_row() -> None:
    out = torch.tensor([[[1.0], [2.0]], [[3.0], [4.0]]])  # [B, A, outputs]
    assert take_actions(out, torch.tensor([1, 0])).tolist() == [[2.0], [3.0]]


def test_expected_loss_and_priority_worked_by_hand() -> None:
    losses, priorities = Expected().losses(
        predicted=torch.tensor([[2.0], [0.5], [0.0]]),
        following=torch.tensor([[10.0], [10.0], [10.0]]),
        reward=torch.tensor([1.0, 1.0, 0.0]),
        discount=torch.tensor([0.5, 0.0, 0.1]),
    )
    # targets 6, 1, 1; errors 4, 0.5, 1
    assert losses.tolist() == pytest.approx([3.5, 0.125, 0.5])
    assert priorities.tolist() == pytest.approx([4.0, 0.5, 1.0])


def test_the_target_network_chooses_and_values() -> None:
    online, target = network(1), network(2)
    frames = torch.randn(5, 2, 3)
    following = TargetChooses().following(
        online=lambda: online(frames), target=lambda: target(frames), predict=Expected()
    )
    assert torch.equal(following.squeeze(1), target(frames).squeeze(-1).max(dim=1).values)


@pytest.mark.parametrize("n_steps", [1, 3])
def test_td_losses_equal_a_naive_loop(n_steps: int) -> None:
    batch, online, target = random_batch(16, n_steps), network(1), network(2)
    losses, priorities = td_losses(DQN, batch, stack=SPEC.stack, online=online, target=target)
    for row in range(16):
        m = int(batch.offset[row]) if n_steps > 1 else 1
        state, next_state = batch.frames[row, :2], batch.frames[row, m : m + 2]
        value = online(state[None])[0, batch.action[row], 0]
        target_value = batch.reward[row] + batch.discount[row] * target(next_state[None])[0, :, 0].max()
        error = (target_value - value).item()
        expected = 0.5 * error**2 if abs(error) <= 1 else abs(error) - 0.5
        assert losses[row].item() == pytest.approx(expected, abs=1e-5)
        assert priorities[row].item() == pytest.approx(abs(error), abs=1e-5)


def test_no_gradient_reaches_the_target() -> None:
    online, target = network(1), network(2)
    losses, priorities = td_losses(DQN, random_batch(4, 1), stack=2, online=online, target=target)
    losses.sum().backward()
    assert not priorities.requires_grad
    assert all(parameter.grad is None for parameter in target.parameters())
    assert all(parameter.grad is not None for parameter in online.parameters())


def test_the_state_that_follows_starts_at_each_rows_own_offset() -> None:
    frames = torch.arange(5.0).expand(2, 5).unsqueeze(-1)  # [B, K + n, 1], frame i holds i
    batch = replace(random_batch(2, 3), frames=frames, offset=torch.tensor([1, 3]))
    assert following_frames(batch, stack=2).squeeze(-1).tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_acting_is_greedy_and_sees_what_the_learner_sees() -> None:
    online = network(1)
    obs = np.random.default_rng(0).normal(size=(6, 2, 3)).astype(np.float32)
    params = ActorParams(DQN, online, epsilon=0.0, device=CPU)
    action, state, extras = act(params, obs, torch.zeros(6, 0), np.random.default_rng(0))
    values = online(torch.from_numpy(obs)).squeeze(-1).detach().numpy()
    assert state.shape == (6, 0)
    assert np.array_equal(action, values.argmax(axis=1))
    assert extras.preferences is not None
    assert np.array_equal(extras.preferences, values)


def test_another_way_to_explore_may_take_the_place_of_the_algorithms_own() -> None:
    params = ActorParams(DQN, network(1), epsilon=0.0, device=CPU, explore=Sampled())
    obs = np.zeros((1_000, 2, 3), dtype=np.float32)
    action, _, _ = act(params, obs, torch.zeros(1_000, 0), np.random.default_rng(0))
    assert len(set(action.tolist())) == 4


def test_the_warm_up_asks_no_network() -> None:
    params = ActorParams(DQN, network(1), epsilon=1.0, device=CPU, is_warmup=True)
    obs = np.zeros((1_000, 2, 3), dtype=np.float32)
    action, _, extras = act(params, obs, torch.zeros(1_000, 0), np.random.default_rng(0))
    assert extras.preferences is None
    assert extras.out is None
    assert set(action.tolist()) == {0, 1, 2, 3}

"""Learning from sequences: a network that remembers, against one that is stepped through each sequence by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from redline.algorithms.named.dqn import DQN
from redline.algorithms.named.drqn import DRQN
from redline.algorithms.predictions import Bootstrap, OnlineChooses, TargetChooses
from redline.algorithms.q_learning import QLearning, observations, sequence_losses, sequence_priorities
from redline.networks import Gru, Mlp, Network
from redline.types import EnvSpec, SequenceBatch

ACTIONS, WIDTH = 3, 4
BURN_IN, LENGTH, SEQUENCES = 2, 4, 5


def learner(bootstrap: Bootstrap | None = None) -> QLearning:
    core = Gru(width=6, length_steps=LENGTH, burn_in_steps=BURN_IN)
    return replace(DRQN, network=Mlp((8,)), core=core, bootstrap=bootstrap or TargetChooses(), batch_size=LENGTH)


def network(seed: int, stack: int = 1) -> Network:
    spec = EnvSpec("test", (WIDTH,), "float32", stack=stack, num_actions=ACTIONS, frames_per_step=1)
    built = learner().build_network(spec, torch.Generator().manual_seed(seed))
    with torch.no_grad():
        for parameter in built.parameters():
            parameter.mul_(2.0)  # so that what is remembered matters
    return built


def random_batch(n_steps: int, stack: int = 1, seed: int = 0) -> SequenceBatch:
    rng = torch.Generator().manual_seed(seed)
    steps = BURN_IN + LENGTH
    shape = (steps, SEQUENCES)
    first = torch.tensor([0, 1, 2, 0, 1])  # the first step seen of each sequence
    learnt = torch.rand(shape, generator=rng) < 0.8
    learnt[:BURN_IN] = False
    return SequenceBatch(
        frames=torch.randn(SEQUENCES, stack - 1 + steps + n_steps, WIDTH, generator=rng),
        starts=torch.arange(steps)[:, None] == first,
        offset=torch.randint(1, n_steps + 1, shape, generator=rng),
        action=torch.randint(0, ACTIONS, shape, generator=rng),
        reward=torch.randn(shape, generator=rng),
        discount=torch.where(torch.rand(shape, generator=rng) < 0.3, 0.0, 0.9),
        weight=torch.where(learnt, 0.5 + torch.rand(shape, generator=rng), 0.0),
    )


def values_at(network: Network, batch: SequenceBatch, row: int, t: int, stack: int) -> torch.Tensor:
    """Step through a sequence from its first step seen up to step t; return the values [A] there."""
    first = int(batch.starts[:, row].nonzero()[0])
    state = torch.zeros(1, network.state_width)
    for step in range(first, t + 1):
        out, state = network.step(batch.frames[row, step : step + stack][None], state)
    return out[0, :, 0]


@pytest.mark.parametrize("stack", [1, 2])
@pytest.mark.parametrize("n_steps", [1, 3])
@pytest.mark.parametrize("bootstrap", [TargetChooses(), OnlineChooses()])
def test_losses_equal_those_of_a_network_stepped_through_each_sequence(
    bootstrap: Bootstrap, n_steps: int, stack: int
) -> None:
    batch, online, target = random_batch(n_steps, stack), network(1, stack), network(2, stack)
    losses, weights, priorities = sequence_losses(learner(bootstrap), batch, stack=stack, online=online, target=target)
    assert losses.shape == weights.shape == (LENGTH, SEQUENCES)
    assert torch.equal(weights, batch.weight[BURN_IN:])
    with torch.no_grad():
        for row in range(SEQUENCES):
            errors = []
            for t in range(BURN_IN, BURN_IN + LENGTH):
                following = t + int(batch.offset[t, row])
                valued = values_at(target, batch, row, following, stack)
                chooser = values_at(online, batch, row, following, stack) if bootstrap == OnlineChooses() else valued
                goal = batch.reward[t, row] + batch.discount[t, row] * valued[chooser.argmax()]
                error = abs((goal - values_at(online, batch, row, t, stack)[batch.action[t, row]]).item())
                expected = 0.5 * error**2 if error <= 1 else error - 0.5
                assert losses[t - BURN_IN, row].item() == pytest.approx(expected, abs=1e-5)
                if batch.weight[t, row] > 0:
                    errors.append(error)
            expected_priority = 0.9 * max(errors) + 0.1 * np.mean(errors)
            assert priorities[row].item() == pytest.approx(expected_priority, abs=1e-5)


def test_burn_in_warms_the_state_and_gives_no_gradient() -> None:
    batch, online, target = random_batch(1), network(1), network(2)
    frames = batch.frames.clone().requires_grad_(True)
    losses, _, _ = sequence_losses(learner(), replace(batch, frames=frames), stack=1, online=online, target=target)
    losses.sum().backward()
    assert frames.grad is not None
    assert (frames.grad[:, :BURN_IN] == 0.0).all()
    assert (frames.grad[:, BURN_IN : BURN_IN + LENGTH].abs().sum(2) > 0.0).all()
    assert (frames.grad[:, -1] == 0.0).all()  # what only follows is never fitted
    moved = batch.frames.clone()
    moved[:, 1] += 1.0
    others, _, _ = sequence_losses(learner(), replace(batch, frames=moved), stack=1, online=online, target=target)
    is_warmed = torch.tensor([True, True, False, True, True])  # the third sequence starts behind its burn-in
    assert ((losses - others).abs().amax(0) > 1e-6).tolist() == is_warmed.tolist()


def test_no_gradient_reaches_the_target() -> None:
    online, target = network(1), network(2)
    losses, _, priorities = sequence_losses(learner(), random_batch(3), stack=1, online=online, target=target)
    losses.sum().backward()
    assert not priorities.requires_grad
    assert all(parameter.grad is None for parameter in target.parameters())
    assert all(parameter.grad is not None for parameter in online.parameters())


def test_priorities_of_sequences_lie_between_the_largest_and_the_mean() -> None:
    sizes = torch.tensor([[1.0, 5.0, 9.0], [3.0, 8.0, 9.0]])
    is_learnt = torch.tensor([[True, True, False], [True, False, False]])
    # 0.9 · 3 + 0.1 · 2; 0.9 · 5 + 0.1 · 5, the 8 is padding; nothing learnt, nothing to say
    assert sequence_priorities(sizes, is_learnt).tolist() == pytest.approx([2.9, 5.0, 0.0])


def test_frames_are_cut_into_overlapping_observations() -> None:
    frames = torch.arange(10.0).view(2, 5, 1)  # [B, K − 1 + T, 1]
    obs = observations(frames, 2)  # [T, B, K, 1]
    assert obs.squeeze(-1)[:, 0].tolist() == [[0, 1], [1, 2], [2, 3], [3, 4]]
    assert obs.squeeze(-1)[0, 1].tolist() == [5, 6]


def test_sequences_need_a_core() -> None:
    with pytest.raises(ValueError, match="use --core gru"):
        sequence_losses(DQN, random_batch(1), stack=1, online=network(1), target=network(2))

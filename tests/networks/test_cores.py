"""Cores: what is remembered from step to step, and where it begins anew."""

import pytest
import torch

from redline.errors import UserError
from redline.networks import Gru, Memoryless, Mlp, Network, Sequence, Small, build_value_network, mask_state
from redline.types import EnvSpec

VECTORS = EnvSpec("test", (3,), "float32", stack=2, num_actions=4, frames_per_step=1)
PICTURES = EnvSpec("test", (40, 40), "uint8", stack=1, num_actions=3, frames_per_step=4)
STEPS, ROWS = 6, 3


def network(spec: EnvSpec = VECTORS) -> Network:
    torso = Small(width=8) if spec is PICTURES else Mlp((8,))
    return build_value_network(torso, spec, outputs=1, generator=torch.Generator().manual_seed(0), core=Gru(width=5))


def sequences(spec: EnvSpec = VECTORS) -> torch.Tensor:
    shape = (STEPS, ROWS, spec.stack, *spec.frame_shape)
    rng = torch.Generator().manual_seed(1)
    if spec is PICTURES:
        return torch.randint(0, 256, shape, generator=rng, dtype=torch.uint8)
    return torch.randn(shape, generator=rng)


@pytest.mark.parametrize("spec", [VECTORS, PICTURES])
def test_unrolling_equals_stepping(spec: EnvSpec) -> None:
    gru, obs = network(spec), sequences(spec)
    state = torch.randn(ROWS, 5, generator=torch.Generator().manual_seed(2))
    starts = torch.zeros(STEPS, ROWS, dtype=torch.bool)
    starts[3, 1] = True
    out, last = gru.unroll(obs, starts, state)
    for t in range(STEPS):
        state = state.clone()
        state[starts[t]] = 0.0
        stepped, state = gru.step(obs[t], state)
        torch.testing.assert_close(out[t * ROWS : (t + 1) * ROWS], stepped, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(last, state, atol=1e-5, rtol=1e-4)


def test_nothing_from_before_a_start_is_remembered() -> None:
    gru, obs = network(), sequences()
    starts = torch.zeros(STEPS, ROWS, dtype=torch.bool)
    starts[3] = True
    changed = obs.clone()
    changed[:3] += 1.0
    before, after = (gru.unroll(o, starts)[0].view(STEPS, ROWS, 4) for o in (obs, changed))
    assert (before[:3] != after[:3]).any()
    assert torch.equal(before[3:], after[3:])
    never = torch.zeros_like(starts)
    before, after = (gru.unroll(o, never)[0].view(STEPS, ROWS, 4) for o in (obs, changed))
    assert (before[3] != after[3]).all()  # without a start it is


def test_a_sequence_without_a_state_begins_with_zeros() -> None:
    gru, obs = network(), sequences()
    never = torch.zeros(STEPS, ROWS, dtype=torch.bool)
    assert torch.equal(gru.unroll(obs, never)[0], gru.unroll(obs, never, torch.zeros(ROWS, 5))[0])


def test_a_state_is_masked_where_an_episode_starts_and_nowhere_else() -> None:
    state = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    assert mask_state(state, torch.tensor([True, False])).tolist() == [[0.0, 0.0], [3.0, 4.0]]


def test_rows_do_not_mix() -> None:
    gru, obs = network(), sequences()
    never = torch.zeros(STEPS, ROWS, dtype=torch.bool)
    together = gru.unroll(obs, never)[0].view(STEPS, ROWS, 4)
    alone = gru.unroll(obs[:, 1:2], never[:, 1:2])[0].view(STEPS, 1, 4)
    torch.testing.assert_close(together[:, 1:2], alone)


def test_a_network_without_a_core_carries_nothing() -> None:
    plain = build_value_network(Mlp((8,)), VECTORS, outputs=1, generator=torch.Generator(), core=Memoryless())
    obs, state = torch.randn(3, 2, 3), torch.zeros(3, plain.state_width)
    out, after = plain.step(obs, state)
    assert plain.state_width == 0
    assert after is state
    assert torch.equal(out, plain(obs))
    with pytest.raises(ValueError, match="nothing to unroll"):
        plain.unroll(obs[None], torch.zeros(1, 3, dtype=torch.bool))


def test_a_core_says_from_which_sequences_it_learns() -> None:
    assert Gru(length_steps=7, burn_in_steps=3).sequence() == Sequence(burn_in_steps=3, length_steps=7)
    assert Memoryless().sequence() is None


def test_impossible_cores_are_refused() -> None:
    with pytest.raises(UserError, match=r"core\.width is 0"):
        Gru(width=0)
    with pytest.raises(UserError, match=r"core\.burn-in-steps is -1"):
        Gru(burn_in_steps=-1)

"""Uniform draws are uniform, and a function of the generator and the memory alone."""

from __future__ import annotations

import numpy as np
import pytest
from replay_oracle import Player

from redline.replay import ReplayLayout, UniformSampler


def layout(**changes: int) -> ReplayLayout:
    sizes = {"capacity": 200, "stack": 4, "lanes": 3, "max_n_steps": 3, "chunk_frames": 8} | changes
    return ReplayLayout(frame_shape=(3,), frame_dtype="uint8", **sizes)


def test_every_sampleable_row_is_drawn_equally_often() -> None:
    player = Player(layout())
    rng = np.random.default_rng(1)
    player.play(rng, 150)
    player.open_lanes()
    player.play(rng, 30)
    expected = player.sampleable()
    draws = 200 * len(expected.lane)
    handles = UniformSampler(player.memory).draw(rng, draws).handles
    counts = np.array(
        [
            np.count_nonzero((handles.lane == lane) & (handles.number == number))
            for lane, number in zip(expected.lane, expected.number, strict=True)
        ]
    )
    assert counts.sum() == draws  # nothing else was drawn
    freedom = len(counts) - 1
    chi_square = ((counts - 200) ** 2 / 200).sum()
    assert abs(chi_square - freedom) < 4 * np.sqrt(2 * freedom)


def test_a_memory_with_nothing_complete_refuses_to_draw() -> None:
    player = Player(layout())
    sampler = UniformSampler(player.memory)
    with pytest.raises(LookupError, match="no transition can be drawn yet"):
        sampler.draw(np.random.default_rng(0), 1)
    player.step(["", "", ""], [1.0, 1.0, 1.0])
    with pytest.raises(LookupError, match="no transition can be drawn yet"):
        sampler.draw(np.random.default_rng(0), 1)
    player.step(["terminated", "", ""], [1.0, 1.0, 1.0])
    draw = sampler.draw(np.random.default_rng(0), 50)
    assert set(draw.handles.lane.tolist()) == {0}
    assert set(draw.handles.number.tolist()) == {0, 1}


def test_weights_of_uniform_draws_are_one() -> None:
    player = Player(layout())
    player.play(np.random.default_rng(0), 20)
    draw = UniformSampler(player.memory).draw(np.random.default_rng(0), 5)
    assert draw.weight.tolist() == [1.0] * 5
    assert draw.weight.dtype == np.float32


def test_same_generator_and_memory_give_the_same_rows() -> None:
    player = Player(layout())
    player.play(np.random.default_rng(0), 60)
    sampler = UniformSampler(player.memory)
    first, second = (sampler.draw(np.random.default_rng(5), 32).handles for _ in range(2))
    np.testing.assert_array_equal(first.lane, second.lane)
    np.testing.assert_array_equal(first.number, second.number)
    other = sampler.draw(np.random.default_rng(6), 32).handles
    assert not np.array_equal(first.number, other.number)


def test_rows_within_the_horizon_of_eviction_are_not_offered() -> None:
    near, far = Player(layout()), Player(layout(horizon_steps=20))
    for player in (near, far):
        player.play(np.random.default_rng(0), 300)
    assert far.memory.num_transitions == near.memory.num_transitions
    lost = near.memory.num_sampleable - far.memory.num_sampleable
    # 20 steps of 3 lanes, rounded up to whole chunks of up to 8
    assert 60 - 8 <= lost <= 60 + 2 * 8

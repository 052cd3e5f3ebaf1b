"""Sequences for recurrent networks: one episode each, burn-in before, padding where nothing was seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_oracle import LARGE_FRAME_SHAPE, Episode, Player, cut_window

from redline.replay import ReplayLayout, SequenceBuffers, gather, with_burn_in
from redline.types import Draw, Handles, SequenceBatch

GAMMA = 0.9


def layout(stack: int = 2, n_steps: int = 1, capacity: int = 200) -> ReplayLayout:
    return ReplayLayout(
        capacity=capacity,
        frame_shape=LARGE_FRAME_SHAPE,
        frame_dtype="uint8",
        stack=stack,
        lanes=2,
        max_n_steps=n_steps,
        chunk_frames=4,
    )


def read(
    player: Player, handles: Handles, *, burn_in: int, length: int, n_steps: int = 1
) -> tuple[SequenceBatch, Draw]:
    count = len(handles.lane)
    weight = np.linspace(0.5, 1.0, count).astype(np.float32)
    draw = with_burn_in(player.memory, Draw(handles, weight), burn_in)
    out = SequenceBuffers(player.memory.layout, batch_size=count, burn_in=burn_in, length=length, n_steps=n_steps)
    return gather(player.memory, draw, gamma=GAMMA, clip_rewards=False, out=out), draw


def history(player: Player, lane: int) -> list[tuple[Episode, int]]:
    return player.oracle.transitions(lane)


def check(player: Player, batch: SequenceBatch, draw: Draw, *, burn_in: int, length: int, n_steps: int) -> None:
    """Compare every step of every sequence with a window cut by the oracle."""
    stack = player.memory.layout.stack
    assert draw.burn_in is not None
    for b, (lane, number) in enumerate(zip(draw.handles.lane.tolist(), draw.handles.number.tolist(), strict=True)):
        episode, t0 = history(player, lane)[number]
        complete = player.oracle.num_complete(lane, player.memory.layout.max_n_steps) - number
        granted = int(draw.burn_in[b])
        assert granted <= min(burn_in, t0)
        for position in range(burn_in + length):
            t = t0 - burn_in + position
            after = position - burn_in
            is_seen = -granted <= after < complete and t < len(episode.steps)
            assert bool(batch.starts[position, b]) == (after == -granted)
            expected_weight = float(draw.weight[b]) if is_seen and after >= 0 else 0.0
            assert float(batch.weight[position, b]) == expected_weight
            if not is_seen:
                assert (float(batch.reward[position, b]), float(batch.discount[position, b])) == (0.0, 0.0)
                continue
            row = cut_window(episode, t, stack=stack, n_steps=n_steps, gamma=GAMMA, clip=False)
            offset = int(batch.offset[position, b])
            assert (offset, int(batch.action[position, b])) == (row.offset, row.action)
            assert float(batch.reward[position, b]) == pytest.approx(float(row.reward), abs=1e-6)
            assert float(batch.discount[position, b]) == pytest.approx(float(row.discount))
            frames = batch.frames[b].numpy()
            assert np.array_equal(frames[position : position + stack], row.frames[:stack])
            assert np.array_equal(
                frames[position + offset : position + offset + stack], row.frames[offset : offset + stack]
            )


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    steps=st.integers(1, 150),
    stack=st.integers(1, 3),
    burn_in=st.integers(0, 6),
    length=st.integers(1, 7),
    n_steps=st.integers(1, 3),
)
def test_every_sequence_equals_the_oracle(
    *, seed: int, steps: int, stack: int, burn_in: int, length: int, n_steps: int
) -> None:
    player = Player(layout(stack, n_steps))
    player.play(np.random.default_rng(seed), steps, end_probability=0.15)
    handles = player.sampleable()
    if not len(handles.lane):
        return
    batch, draw = read(player, handles, burn_in=burn_in, length=length, n_steps=n_steps)
    check(player, batch, draw, burn_in=burn_in, length=length, n_steps=n_steps)


def test_burn_in_goes_back_to_the_start_of_the_episode_and_no_further() -> None:
    player = Player(layout())
    for ending in ["", "", "terminated", "", "", "", ""]:
        player.step([ending, ""], [1.0, 1.0])
    batch, draw = read(player, Handles(np.array([0, 0]), np.array([2, 5])), burn_in=4, length=2)
    assert draw.burn_in is not None
    assert draw.burn_in.tolist() == [2, 2]
    assert batch.starts[:, 0].tolist() == [False, False, True, False, False, False]
    assert batch.weight[:, 0].tolist() == [0, 0, 0, 0, 0.5, 0]  # the episode ends with the first step learnt from
    assert batch.weight[:, 1].tolist() == [0, 0, 0, 0, 1, 1]


def test_a_lost_life_ends_the_return_and_the_sequence_goes_on() -> None:
    player = Player(layout())
    for ending in ["", "life", "", ""]:
        player.step([ending, ""], [1.0, 1.0])
    batch, _ = read(player, Handles(np.array([0]), np.array([0])), burn_in=0, length=4)
    assert batch.discount[:, 0].tolist() == pytest.approx([GAMMA, 0.0, GAMMA, GAMMA])
    assert batch.weight[:, 0].tolist() == [0.5] * 4


def test_burn_in_that_has_left_the_memory_is_not_granted() -> None:
    player = Player(layout(capacity=60))
    player.play(np.random.default_rng(0), 300, end_probability=0.0)
    handles = player.sampleable()
    oldest = Handles(handles.lane[:3], handles.number[:3])
    _, draw = read(player, oldest, burn_in=8, length=3)
    assert draw.burn_in is not None
    assert draw.burn_in.tolist() == [0, 1, 2]


def test_what_was_granted_is_read_although_less_is_offered_later() -> None:
    base = layout(capacity=60)
    player = Player(
        replace(base, horizon_steps=6)  # rows stay readable for six vector steps
    )
    player.play(np.random.default_rng(0), 200, end_probability=0.0)
    handles = player.sampleable()
    rows = Handles(handles.lane[:4], handles.number[:4])
    draw = with_burn_in(player.memory, Draw(rows, np.ones(4, np.float32)), 5)
    player.play(np.random.default_rng(1), 6, end_probability=0.0)
    out = SequenceBuffers(player.memory.layout, batch_size=4, burn_in=5, length=2)
    batch = gather(player.memory, draw, gamma=GAMMA, clip_rewards=False, out=out)
    check(player, batch, draw, burn_in=5, length=2, n_steps=1)


def test_rows_that_were_not_drawn_for_sequences_are_refused() -> None:
    player = Player(layout())
    player.play(np.random.default_rng(0), 20)
    draw = Draw(player.sampleable(), np.ones(len(player.sampleable().lane), np.float32))
    out = SequenceBuffers(player.memory.layout, batch_size=len(draw.weight), burn_in=1, length=2)
    with pytest.raises(ValueError, match="use with_burn_in"):
        gather(player.memory, draw, gamma=GAMMA, clip_rewards=False, out=out)
    with pytest.raises(ValueError, match="0 or more steps of burn-in"):
        SequenceBuffers(player.memory.layout, batch_size=1, burn_in=-1, length=2)
    with pytest.raises(ValueError, match="not of 2"):
        SequenceBuffers(player.memory.layout, batch_size=1, burn_in=0, length=2, n_steps=2)


def test_what_is_played_after_a_draw_makes_its_sequences_no_longer() -> None:
    player = Player(layout())
    player.play(np.random.default_rng(0), 40, end_probability=0.0)
    handles = player.sampleable()
    newest = Handles(handles.lane[-3:], handles.number[-3:])
    draw = with_burn_in(player.memory, Draw(newest, np.ones(3, np.float32)), 2)
    out = SequenceBuffers(player.memory.layout, batch_size=3, burn_in=2, length=5)
    weights = []
    for _ in range(2):
        batch = gather(player.memory, draw, gamma=GAMMA, clip_rewards=False, out=out)
        weights.append((batch.weight.tolist(), batch.frames.numpy().tobytes()))
        player.play(np.random.default_rng(1), 4, end_probability=0.0)
    assert weights[0] == weights[1]
    assert sum(map(sum, weights[0][0])) == 3 + 2 + 1  # the last three steps of a lane

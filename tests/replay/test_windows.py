"""Windows of three steps at each kind of ending, worked by hand: γ = 0.5, rewards 1, 2, 4, 8."""

from __future__ import annotations

import numpy as np
import pytest
from replay_oracle import Player, stamp

from redline.replay import BatchBuffers, ReplayLayout, gather
from redline.types import Batch, Draw, Handles

LAYOUT = ReplayLayout(
    capacity=64, frame_shape=(3,), frame_dtype="uint8", stack=2, lanes=1, max_n_steps=3, chunk_frames=4
)
ZERO = [0, 0, 0]


def read(player: Player, *, clip_rewards: bool = False) -> Batch:
    """Gather every transition that may be drawn."""
    handles = player.sampleable()
    count = len(handles.lane)
    out = BatchBuffers(LAYOUT, batch_size=count, n_steps=3)
    weight = np.full(count, 0.25, np.float32)
    return gather(player.memory, Draw(handles, weight), gamma=0.5, clip_rewards=clip_rewards, out=out)


def play(endings: list[str]) -> Player:
    player = Player(LAYOUT)
    for ending, reward in zip(endings, [1.0, 2.0, 4.0, 8.0], strict=True):
        player.step([ending], [reward])
    return player


def test_window_without_an_end_spans_n_steps() -> None:
    batch = read(play(["", "", "", ""]))
    assert batch.offset.tolist() == [3, 3]  # the other two wait for their third step
    assert batch.reward.tolist() == [1 + 1 + 1, 2 + 2 + 2]
    assert batch.discount.tolist() == [0.125, 0.125]
    assert batch.action.tolist() == [0, 7]
    assert batch.weight.tolist() == [0.25, 0.25]


def test_terminated_step_ends_the_return() -> None:
    batch = read(play(["", "", "", "terminated"]))
    assert batch.offset.tolist() == [3, 3, 2, 1]
    assert batch.reward.tolist() == [3, 6, 4 + 4, 8]
    assert batch.discount.tolist() == [0.125, 0, 0, 0]


def test_truncated_step_bootstraps_from_final_frame() -> None:
    batch = read(play(["", "", "", "truncated"]))
    assert batch.offset.tolist() == [3, 3, 2, 1]
    assert batch.reward.tolist() == [3, 6, 8, 8]
    assert batch.discount.tolist() == [0.125, 0.125, 0.25, 0.5]
    final = [stamp(0, 0, 3).tolist(), stamp(0, 0, 4).tolist()]
    assert batch.frames[3, 1:3].tolist() == final


def test_cut_bootstraps_from_newest_frame_and_loses_no_step() -> None:
    player = play(["", "", "", ""])
    player.cut([0])
    batch = read(player)
    assert batch.offset.tolist() == [3, 3, 2, 1]
    assert batch.discount.tolist() == [0.125, 0.125, 0.25, 0.5]
    assert batch.frames[3, 1:3].tolist() == [stamp(0, 0, 3).tolist(), stamp(0, 0, 4).tolist()]


def test_life_lost_ends_the_return_but_not_the_stack() -> None:
    batch = read(play(["", "life", "", "terminated"]))
    assert batch.offset.tolist() == [2, 1, 2, 1]
    assert batch.reward.tolist() == [2, 2, 8, 8]
    assert batch.discount.tolist() == [0, 0, 0, 0]
    assert batch.frames[2, :2].tolist() == [stamp(0, 0, 1).tolist(), stamp(0, 0, 2).tolist()]


def test_cut_after_a_lost_life_keeps_discount_zero() -> None:
    player = play(["", "", "", "life"])
    player.cut([0])
    assert read(player).discount.tolist() == [0.125, 0, 0, 0]


def test_cut_before_the_first_step_leaves_the_previous_episode_alone() -> None:
    player = play(["", "", "", "terminated"])
    player.cut([0])
    player.step(["terminated"], [16.0])
    batch = read(player)
    assert batch.reward.tolist() == [3, 6, 8, 8, 16]
    assert batch.frames[4, :2].tolist() == [ZERO, stamp(0, 2, 0).tolist()]


def test_stack_is_padded_with_zeros_before_the_first_frame() -> None:
    batch = read(play(["", "truncated", "", "truncated"]))
    assert batch.frames[0, :2].tolist() == [ZERO, stamp(0, 0, 0).tolist()]
    assert batch.frames[2, :2].tolist() == [ZERO, stamp(0, 1, 0).tolist()]


def test_frames_beyond_the_following_state_are_zero() -> None:
    batch = read(play(["", "", "", "terminated"]))
    assert batch.frames[3, 3:].tolist() == [ZERO, ZERO]


def test_episode_of_one_step_is_one_window() -> None:
    player = Player(LAYOUT)
    player.step(["terminated"], [5.0])
    batch = read(player)
    assert (batch.offset.tolist(), batch.reward.tolist(), batch.discount.tolist()) == ([1], [5], [0])


def test_each_reward_is_clipped_before_the_sum() -> None:
    player = Player(LAYOUT)
    for reward in (-7.0, 0.5, 3.0):
        player.step([""], [reward])
    assert read(player, clip_rewards=True).reward.tolist() == [-1 + 0.25 + 0.25]
    assert read(player).reward.tolist() == [-7 + 0.25 + 0.75]


def test_reward_of_the_last_step_is_stored_unclipped_and_readable() -> None:
    batch = read(play(["", "", "", "terminated"]))
    assert batch.reward[-1].item() == 8


def test_buffers_for_longer_windows_than_offered_are_refused() -> None:
    with pytest.raises(ValueError, match="windows of 3 steps, not of 4"):
        BatchBuffers(LAYOUT, batch_size=1, n_steps=4)


def test_evicted_and_unknown_rows_are_refused() -> None:
    player = Player(LAYOUT)
    player.play(np.random.default_rng(0), 200)
    gone = Handles(np.array([0, 0, 9]), np.array([0, 10**6, 0]))
    assert player.memory.is_resident(gone).tolist() == [False, False, False]
    out = BatchBuffers(LAYOUT, batch_size=3)
    with pytest.raises(LookupError, match="3 of the rows drawn are no longer held"):
        gather(player.memory, Draw(gone, np.ones(3, np.float32)), gamma=0.5, clip_rewards=False, out=out)

"""Writing to a replay memory: what is kept, what it costs, what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from replay_oracle import FRAME_SHAPE, LARGE_FRAME_SHAPE, Player

from redline.errors import UserError
from redline.replay import ReplayLayout, ReplayMemory

LAYOUT = ReplayLayout(
    capacity=100, frame_shape=FRAME_SHAPE, frame_dtype="uint8", stack=3, lanes=2, max_n_steps=2, chunk_frames=4
)


def test_float_vectors_come_back_as_they_were() -> None:
    player = Player(replace(LAYOUT, frame_dtype="float32", stack=1))
    player.play(np.random.default_rng(0), 300)
    assert player.memory.num_sampleable > 80
    player.check_rows(player.sampleable(), n_steps=2)


def test_the_newest_transitions_are_kept_across_lanes() -> None:
    player = Player(LAYOUT)
    player.play(np.random.default_rng(0), 500)
    assert 96 < player.memory.num_transitions <= 100
    oldest = player.memory.table.first_number
    assert (oldest >= 500 - 50 - 4).all()


def test_many_final_frames_evict_before_the_capacity_is_reached() -> None:
    player = Player(replace(LAYOUT, frame_shape=LARGE_FRAME_SHAPE, capacity=200))
    player.play(np.random.default_rng(0), 300, end_probability=1.0)
    memory = player.memory
    assert len(memory.pool.free) <= 2
    assert 100 <= memory.num_transitions < 200
    player.check_rows(player.sampleable(), n_steps=2)


def test_old_lanes_stay_readable_and_are_evicted_first() -> None:
    player = Player(LAYOUT)
    rng = np.random.default_rng(0)
    player.play(rng, 60)
    player.open_lanes()
    assert player.memory.lanes.tolist() == [2, 3]
    assert set(player.sampleable().lane.tolist()) == {0, 1}
    player.play(rng, 20)
    handles = player.sampleable()
    assert set(handles.lane.tolist()) == {0, 1, 2, 3}
    new = handles.number[handles.lane >= 2]
    assert len(new) >= 2 * 19  # nothing of the new lanes is gone while old ones are held
    player.check_rows(handles, n_steps=2)
    player.play(rng, 40)
    assert set(player.sampleable().lane.tolist()) == {2, 3}


def test_last_step_of_a_retired_lane_is_sampleable() -> None:
    player = Player(LAYOUT)
    for _ in range(7):
        player.step(["", ""], [1.0, 1.0])
    player.open_lanes()
    assert player.memory.num_sampleable == 14
    player.check_rows(player.sampleable(), n_steps=2)


def test_lane_ids_are_never_reused_and_empty_lanes_cost_nothing() -> None:
    player = Player(LAYOUT)
    rng = np.random.default_rng(0)
    for _ in range(10):
        player.play(rng, 120)
        player.open_lanes()
    assert player.memory.lanes.tolist() == [20, 21]
    assert player.memory.table.first_lane == 18
    player.play(rng, 5)
    player.check_rows(player.sampleable(), n_steps=2)


def test_one_lane_can_outgrow_its_share_of_the_tables() -> None:
    player = Player(LAYOUT)
    table = player.memory.table
    widths = (table.slots.width, table.frame_of.width)
    for i in range(95):
        player.step(["truncated" if i % 2 else ""], [float(i)], ids=np.array([1]))
    assert player.memory.num_sampleable == 94
    assert (table.slots.width, table.frame_of.width) == (2 * widths[0], 2 * widths[1])
    player.check_rows(player.sampleable(), n_steps=2)


def test_lane_that_was_left_behind_goes_on_with_whole_stacks() -> None:
    player = Player(replace(LAYOUT, stack=4))
    for _ in range(9):
        player.step(["", ""], [1.0, 1.0])
    for _ in range(100):
        player.step([""], [1.0], ids=np.array([0]))
    assert set(player.sampleable().lane.tolist()) == {0}  # of lane 1, only frames 8 and 9 are held
    for _ in range(5):
        player.step([""], [1.0], ids=np.array([1]))
        player.check_rows(player.sampleable(), n_steps=2)
    handles = player.sampleable()
    assert handles.number[handles.lane == 1].tolist() == [11, 12]


def test_rows_stay_readable_for_the_horizon_when_every_step_ends_an_episode() -> None:
    player = Player(replace(LAYOUT, frame_shape=LARGE_FRAME_SHAPE, capacity=300, horizon_steps=9))
    rng = np.random.default_rng(0)
    player.play(rng, 200, end_probability=1.0)
    for _ in range(5):
        drawn = player.sampleable()
        assert len(drawn.lane) > 50
        player.play(rng, 9, end_probability=1.0)
        player.check_rows(drawn, n_steps=2)
        player.play(rng, 1, end_probability=1.0)


def test_writing_to_a_lane_without_an_episode_is_refused() -> None:
    player = Player(LAYOUT)
    player.step(["", ""], [0.0, 0.0])
    with pytest.raises(ValueError, match="an episode is running"):
        player.memory.begin(player.memory.lanes, np.zeros((2, *FRAME_SHAPE), np.uint8))
    player.memory.cut(player.memory.lanes[:1])
    with pytest.raises(ValueError, match="no episode is running"):
        player.step(["", ""], [0.0, 0.0])


def test_frames_of_another_kind_are_refused() -> None:
    memory = ReplayMemory(LAYOUT)
    with pytest.raises(ValueError, match=r"uint8, got .* float32"):
        memory.begin(memory.lanes, np.zeros((2, *FRAME_SHAPE), np.float32))
    with pytest.raises(ValueError, match=r"got \(2, 1\)"):
        memory.begin(memory.lanes, np.zeros((2, 1), np.uint8))


@pytest.mark.parametrize("lanes", [[0, 0], [5], [-1]])
def test_unknown_and_repeated_lanes_are_refused(lanes: list[int]) -> None:
    memory = ReplayMemory(LAYOUT)
    frames = np.zeros((len(lanes), *FRAME_SHAPE), np.uint8)
    with pytest.raises(ValueError, match="of those being written"):
        memory.begin(np.array(lanes), frames)


@pytest.mark.parametrize("capacity", [-5, 0, 19])
def test_capacity_too_small_is_a_user_error_with_a_remedy(capacity: int) -> None:
    with pytest.raises(UserError, match=r"too small for 2 lanes: use --replay.capacity 20 or more"):
        replace(LAYOUT, capacity=capacity)
    assert replace(LAYOUT, capacity=20).capacity == 20


@pytest.mark.parametrize("horizon_steps", [0, 9])
def test_smallest_capacity_still_offers_rows(horizon_steps: int) -> None:
    layout = replace(LAYOUT, capacity=1_000, horizon_steps=horizon_steps)
    player = Player(replace(layout, capacity=layout.min_capacity))
    rng = np.random.default_rng(0)
    player.play(rng, 30, end_probability=0)
    for _ in range(50):
        player.play(rng, 1, end_probability=0)
        assert player.memory.num_sampleable > 0


@pytest.mark.parametrize("field", ["lanes", "stack", "max_n_steps", "chunk_frames"])
def test_sizes_below_one_are_refused(field: str) -> None:
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        replace(LAYOUT, **{field: 0})


def test_chunks_shrink_so_that_many_lanes_share_a_small_memory() -> None:
    layout = replace(LAYOUT, chunk_frames=None)
    assert layout.frames_per_chunk == 4
    assert replace(layout, capacity=100_000).frames_per_chunk == 64
    assert replace(layout, capacity=100_000, lanes=1_024).frames_per_chunk == 8

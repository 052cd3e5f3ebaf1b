"""Counts over a memory whose every transition is known."""

import json

import numpy as np
import pytest
from known_memory import make_memory

from redline.cli.saved_replay import describe_rewards, name_ending, read_kept, replay_statistics
from redline.replay import ReplayLayout, ReplayMemory


def test_fill_counts_lanes_and_transitions() -> None:
    fill = replay_statistics(make_memory(), num_actions=3, codec="zstd")["fill"]
    assert (fill["transitions"], fill["capacity"], fill["sampleable"]) == (16, 200, 16)
    assert (fill["lanes"], fill["lanes_being_written"]) == (2, 2)


def test_endings_are_told_apart() -> None:
    endings = replay_statistics(make_memory(), num_actions=3, codec="zstd")["endings"]
    assert (endings["episodes"], endings["terminated"], endings["truncated"], endings["lives_lost"]) == (3, 2, 1, 1)
    assert endings["mean_length_steps"] == pytest.approx((3 + 2 + 6) / 3)
    assert endings["whole_episodes"] == 3
    assert endings["mean_return"] == pytest.approx((1 + 0 - 2) / 3)


def test_a_cut_counts_as_truncated() -> None:
    memory = make_memory()
    memory.cut(memory.lanes)
    endings = replay_statistics(memory, num_actions=3, codec="zstd")["endings"]
    assert (endings["episodes"], endings["terminated"], endings["truncated"]) == (5, 2, 3)


def test_rewards_actions_and_steps() -> None:
    found = replay_statistics(make_memory(), num_actions=4, codec="zstd")
    assert found["rewards"] is not None
    assert found["rewards"]["counts"] == {"-2": 1, "0": 14, "1": 1}
    assert (found["rewards"]["min"], found["rewards"]["max"], found["rewards"]["mean"]) == (-2.0, 1.0, -1 / 16)
    assert found["rewards"]["nonzero_share"] == 2 / 16
    # lane 0 takes 0 1 2 0 1 2 0 1, lane 1 takes 1 eight times
    assert found["actions"] == [3, 3 + 8, 2, 0]
    assert found["step_range"] == [0, 5]


def test_many_values_of_reward_are_summarised() -> None:
    found = describe_rewards(np.arange(100, dtype=np.float32))
    assert found["counts"] is None
    assert (found["min"], found["mean"], found["max"], found["nonzero_share"]) == (0.0, 49.5, 99.0, 0.99)


def test_an_episode_whose_beginning_has_left_has_a_length_but_no_return() -> None:
    layout = ReplayLayout(
        capacity=60, frame_shape=(1,), frame_dtype="float32", stack=1, lanes=1, chunk_frames=4, codec="raw"
    )
    memory = ReplayMemory(layout)
    frames = np.zeros((1, 1), np.float32)
    memory.begin(memory.lanes, frames)
    for time in range(100):
        memory.append(
            memory.lanes,
            actions=np.zeros(1, np.int64),
            reward=np.ones(1, np.float32),
            return_ends=np.array([time in (79, 89)]),
            episode_ends=np.array([time in (79, 89)]),
            frames=frames,
            first_frames=frames,
        )
    assert memory.num_transitions < 80  # the first episode's first steps are gone
    endings = replay_statistics(memory, num_actions=1, codec="raw")["endings"]
    assert endings["episodes"] == 2
    assert endings["mean_length_steps"] == 45.0  # 80 and 10
    assert (endings["whole_episodes"], endings["mean_return"]) == (1, 10.0)


def test_transitions_come_lane_after_lane_in_order() -> None:
    kept = read_kept(make_memory())
    assert kept.lane.tolist() == [0] * 8 + [1] * 8
    assert kept.step.tolist() == [0, 1, 2, 0, 1, 0, 1, 2, 0, 1, 2, 3, 4, 5, 0, 1]


def test_raw_frames_take_their_size_and_compressed_ones_less() -> None:
    memory = make_memory((60, 50))
    raw = replay_statistics(memory, num_actions=3, codec="raw")["storage"]
    packed = replay_statistics(memory, num_actions=3, codec="zstd")["storage"]
    # lane 0 has 11 frames and lane 1 has 10: two sealed chunks of four frames each, with 6 and 7 transitions
    assert raw["frame_bytes_per_transition"] == pytest.approx(4 * 4 * 3_000 / (6 + 7))
    assert packed["frame_bytes_per_transition"] is not None
    assert packed["frame_bytes_per_transition"] < raw["frame_bytes_per_transition"] / 5
    assert (
        packed["bytes_per_transition"] == packed["frame_bytes_per_transition"] + packed["metadata_bytes_per_transition"]
    )


def test_an_empty_memory_has_no_statistics_and_no_errors() -> None:
    layout = ReplayLayout(capacity=100, frame_shape=(4, 4), frame_dtype="uint8", stack=2, lanes=1)
    found = replay_statistics(ReplayMemory(layout), num_actions=2, codec="zstd")
    assert (found["rewards"], found["step_range"], found["storage"]["bytes_per_transition"]) == (None, None, None)
    assert found["endings"]["mean_length_steps"] is None
    assert found["actions"] == [0, 0]
    assert json.loads(json.dumps(found))["fill"]["transitions"] == 0


def test_priorities_are_summarised() -> None:
    found = replay_statistics(
        make_memory(), num_actions=3, codec="zstd", priorities=np.array([0.5, 1.0, 3.0], np.float32)
    )["priorities"]
    assert found is not None
    assert (found["min"], found["mean"], found["max"]) == (0.5, 1.5, 3.0)


@pytest.mark.parametrize(("flags", "name"), [(1, ""), (3, "life lost"), (5, "truncated"), (7, "terminated")])
def test_endings_have_names(flags: int, name: str) -> None:
    assert name_ending(flags) == name

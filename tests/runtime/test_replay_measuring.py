"""What is measured by playing is what a replay memory really takes."""

from typing import Any

import numpy as np
import pytest

from redline.envs.catalog import make_vector_env
from redline.envs.config import EnvConfig
from redline.errors import UserError
from redline.replay import ReplayMemory
from redline.runtime.replay_sizing import Measured, layout_for, measure_codecs

CATCH = EnvConfig(id="redline/Catch-v0", skip=1)
CARTPOLE = EnvConfig(id="CartPole-v1", stack=1, skip=1)


def measure_compression(env: EnvConfig, *, codec: str, **options: Any) -> Measured:
    return measure_codecs(env, (codec,), **options)[codec]


def test_the_same_steps_measure_the_same() -> None:
    first, second = (measure_compression(EnvConfig(), codec="zstd", steps=200, num_envs=2) for _ in range(2))
    assert first == second
    assert first.num_transitions == 200
    other = measure_compression(EnvConfig(), codec="zstd", steps=200, num_envs=2, seed=1)
    assert other.bytes_per_frame != first.bytes_per_frame


def test_a_frame_of_pong_takes_a_hundredth_of_its_size() -> None:
    found = measure_codecs(EnvConfig(), ("raw", "lz4", "zstd"), steps=400, num_envs=2)
    assert found["raw"].bytes_per_frame == 84 * 84
    assert 20 < found["zstd"].bytes_per_frame < found["lz4"].bytes_per_frame < 250
    assert found["zstd"].bytes_per_frame < found["zstd"].bytes_per_transition < found["zstd"].bytes_per_frame + 60


def test_a_replay_memory_stores_exactly_what_was_measured() -> None:
    num_envs, vector_steps, capacity = 3, 33, 10_000
    measured = measure_compression(
        CATCH, codec="zstd", steps=num_envs * vector_steps, num_envs=num_envs, capacity=capacity, seed=5
    )
    env = make_vector_env(CATCH, num_envs=num_envs, seed=5, threads=1)
    memory = ReplayMemory(layout_for(env.spec, codec="zstd", capacity=capacity, lanes=num_envs))
    rng = np.random.Generator(np.random.Philox(key=5))
    memory.begin(memory.lanes, env.reset())
    for _ in range(vector_steps):
        actions = rng.integers(env.spec.num_actions, size=num_envs)
        env.send(actions)
        step = env.recv()
        memory.append(
            memory.lanes,
            actions=actions,
            reward=step.reward,
            return_ends=step.terminated,
            episode_ends=step.ended,
            frames=step.frames,
            first_frames=step.first_frames,
        )
    slots = memory.retention.order
    num_frames = int(memory.pool.num_frames[slots].sum())
    num_bytes = sum(memory.frames.sealed_bytes(slot) for slot in slots)
    # 34 frames and three more that begin episodes: four whole chunks of eight in each lane
    assert measured.num_frames == num_frames == 3 * 4 * 8
    assert measured.bytes_per_frame == num_bytes / num_frames
    assert measured.frames_per_transition == 12 / 11  # an episode of Catch has 11 steps and 12 frames


def test_vectors_are_measured_too() -> None:
    measured = measure_compression(CARTPOLE, codec="raw", steps=400)
    assert measured.bytes_per_frame == 4 * 4
    assert measured.frames_per_transition > 1.01  # random play drops the pole every twenty steps or so


def test_a_moment_of_play_is_enough() -> None:
    measured = measure_compression(CATCH, codec="zstd", steps=1, num_envs=2)
    assert measured.num_transitions == 2
    assert 0 < measured.bytes_per_frame < 7_056


def test_a_time_can_be_given_instead_and_progress_is_told() -> None:
    shares: list[float] = []
    measure_compression(CATCH, codec="lz4", seconds=0.05, num_envs=2, progress=shares.append)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0


def test_steps_or_seconds_not_both() -> None:
    with pytest.raises(ValueError, match="either"):
        measure_compression(CATCH, codec="zstd", steps=10, seconds=1.0)


def test_an_unknown_codec_is_the_users_to_mend() -> None:
    with pytest.raises(UserError, match="did you mean zstd"):
        measure_compression(CATCH, codec="zst", steps=10)

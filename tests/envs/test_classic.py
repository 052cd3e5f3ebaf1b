"""Any Gymnasium env as lanes."""

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from safetensors.numpy import load, save

from redline.envs.catalog import make_vector_env
from redline.envs.config import EnvConfig
from redline.envs.vector import reset_seed


class Picky(gymnasium.Env):
    """Actions 5 … 7; sees (H, W, C) bytes filled with its last action; fails at the third step."""

    action_space = Discrete(3, start=5)

    def __init__(self, channels: int) -> None:
        self.observation_space = Box(0, 255, (6, 5, channels), np.uint8)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self._seen(0), {}

    def step(self, action):
        self.steps += 1
        if self.steps == 3:
            raise OSError("cable out")
        assert action in self.action_space
        return self._seen(action), 0.5, False, False, {}

    def _seen(self, value):
        picture = np.full(self.observation_space.shape, value, np.uint8)
        picture[0] = np.arange(picture.shape[-1])
        return picture


for channels in (1, 3):
    gymnasium.register(f"test/Picky{channels}-v0", entry_point=Picky, kwargs={"channels": channels})


def make(env_id: str, *, num_envs: int = 2, seed: int = 0, **settings: int):
    return make_vector_env(EnvConfig(id=env_id, **settings), num_envs=num_envs, seed=seed, threads=1)


def play(env, count: int, seed: int = 0) -> list:
    rng, taken = np.random.default_rng(seed), []
    for _ in range(count):
        env.send(rng.integers(0, env.spec.num_actions, env.num_envs))
        taken.append(env.recv())
    return taken


def test_vectors_are_float32_and_every_episode_has_a_seed():
    env = make("CartPole-v1", stack=1)
    assert (env.spec.frame_shape, env.spec.frame_dtype, env.spec.stack) == ((4,), "float32", 1)
    env.reset()
    ends = np.zeros(2, int)
    for _ in range(100):
        steps, keys = env.steps_since_seed, env.reset_seed
        (taken,) = play(env, 1)
        ends += taken.ended
        assert np.array_equal(env.reset_seed != keys, taken.ended)
        assert np.array_equal(env.steps_since_seed, np.where(taken.ended, 0, steps + 1))
        assert np.array_equal(env.frames, taken.first_frames)
        same = (taken.frames == taken.first_frames).all(1)
        assert np.array_equal(same, ~taken.ended)
    assert ends.min() >= 2
    assert env.reset_seed[1] == reset_seed(0, 1, ends[1])


@pytest.mark.parametrize("env_id", ["CartPole-v1", "Acrobot-v1", "MountainCar-v0", "redline/Catch-v0"])
def test_restored_env_goes_on_identically(env_id):
    original, restored = make(env_id, num_envs=3, seed=1), make(env_id, num_envs=3, seed=9)
    original.reset()
    play(original, 57)
    told: list[float] = []
    assert restored.restore(load(save(original.state())), told.append)
    assert told[-1] == 1.0
    assert np.array_equal(restored.frames, original.frames)
    for one, other in zip(play(original, 200, seed=1), play(restored, 200, seed=1), strict=True):
        assert np.array_equal(one.frames, other.frames)
        assert np.array_equal(one.ended, other.ended)
        assert np.array_equal(one.first_frames, other.first_frames)


def test_world_that_does_not_come_back_is_begun_anew():
    original, restored = make("probe/Counting-v0", seed=1), make("probe/Counting-v0", seed=1)
    original.reset()
    play(original, 5)
    state = original.state()
    assert not restored.restore(state)
    assert restored.steps_since_seed.tolist() == [0, 0]
    assert not set(restored.reset_seed.tolist()) & set(state["key_seed"].tolist())
    assert len(play(restored, 3)) == 3


def test_truncated_is_not_terminated():
    env = make("probe/Counting-v0", num_envs=1)
    env.reset()
    taken = play(env, 4)  # episodes of 3 steps (terminated) and 1 step (truncated)
    assert [bool(one.terminated[0]) for one in taken] == [False, False, True, False]
    assert [bool(one.truncated[0]) for one in taken] == [False, False, False, True]


def test_frame_limit_truncates():
    env = make("CartPole-v1", num_envs=1, max_episode_frames=4)
    env.reset()
    assert [bool(one.truncated[0]) for one in play(env, 8)] == [False, False, False, True] * 2


def test_actions_that_begin_elsewhere_and_channels_first():
    env = make("test/Picky3-v0")
    env.reset()
    assert (env.spec.frame_shape, env.spec.num_actions) == ((3, 6, 5), 3)
    env.send(np.array([0, 2]))
    frames = env.recv().frames
    assert frames[:, 0, 1, 0].tolist() == [5, 7]
    assert frames[0, :, 0, 0].tolist() == [0, 1, 2]


def test_one_channel_is_a_plain_picture():
    env = make("test/Picky1-v0")
    env.reset()
    assert (env.spec.frame_shape, env.spec.frame_dtype, env.spec.is_image) == ((6, 5), "uint8", True)


def test_failing_env_names_itself_lane_and_seed():
    env = make("test/Picky1-v0")
    env.reset()
    play(env, 2)
    env.send(np.array([0, 0]))
    with pytest.raises(RuntimeError, match=rf"test/Picky1-v0 failed in lane 0, seed {env.reset_seed[0]}: OSError"):
        env.recv()


def test_bad_action_and_wrong_order_are_refused():
    env = make("CartPole-v1")
    with pytest.raises(RuntimeError, match="reset"):
        env.send(np.array([0, 0]))
    env.reset()
    with pytest.raises(ValueError, match="lane 1 has action 2"):
        env.send(np.array([0, 2]))
    env.send(np.array([0, 1]))
    with pytest.raises(RuntimeError, match="once"):
        env.send(np.array([0, 0]))
    with pytest.raises(RuntimeError, match="lose a step"):
        env.state()
    env.recv()
    with pytest.raises(RuntimeError, match="follows send"):
        env.recv()


def test_outdated_version_is_made_without_a_warning():
    assert make("CartPole-v0").spec.name == "cartpole-v0"

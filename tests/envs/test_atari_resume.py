"""A saved world comes back bit for bit, from nothing but key seeds and actions."""

import numpy as np
import pytest
from safetensors.numpy import load, save


def play(env, count: int, rng: np.random.Generator) -> list:
    taken = []
    for _ in range(count):
        env.send(rng.integers(0, env.spec.num_actions, env.num_envs))
        taken.append(env.recv())
    return taken


def assert_same(ours, theirs) -> None:
    for one, other in zip(ours, theirs, strict=True):
        for field in ("frames", "reward", "terminated", "truncated", "life_lost", "first_frames"):
            assert np.array_equal(getattr(one, field), getattr(other, field)), field


@pytest.mark.parametrize(
    ("env_id", "limit", "warm_up"), [("pong", 400, 310), ("breakout", 108_000, 600), ("ALE/Breakout-v5", 900, 500)]
)
def test_restored_env_goes_on_identically_across_key_boundaries(make_atari, env_id, limit, warm_up):
    def make(seed: int):
        return make_atari(env_id, num_envs=3, seed=seed, seed_interval_steps=150, max_episode_frames=limit)

    original = make(5)
    original.reset()
    play(original, warm_up, np.random.default_rng(0))
    state = load(save(original.state()))
    assert state["key_count"].max() > 1  # a seeded reset lies behind
    if env_id == "breakout":
        assert len(set(state["steps_since_key"].tolist())) == 3  # lanes at different offsets

    restored, told = make(99), []
    assert restored.restore(state, told.append)
    assert told[-1] == 1.0
    assert told == sorted(told)
    assert np.array_equal(restored.frames, original.frames)
    keys_before = original.reset_seed.copy()
    assert_same(play(original, 200, np.random.default_rng(1)), play(restored, 200, np.random.default_rng(1)))
    assert np.array_equal(original.reset_seed, restored.reset_seed)
    assert not np.array_equal(original.reset_seed, keys_before)  # and one ahead was passed
    for name, value in original.state().items():
        assert np.array_equal(value, restored.state()[name]), name


def test_state_at_the_very_start_is_restored(make_atari):
    original, restored = make_atari("breakout", num_envs=2, seed=1), make_atari("breakout", num_envs=2, seed=2)
    original.reset()
    assert restored.restore(original.state())
    assert_same(play(original, 5, np.random.default_rng(0)), play(restored, 5, np.random.default_rng(0)))


def test_lane_is_relived_alone_from_its_key_seed_and_actions(make_atari):
    env = make_atari("breakout", num_envs=3, seed=3, seed_interval_steps=150)
    env.reset()
    rng, frames = np.random.default_rng(0), []
    while env.steps_since_seed[1] < 250:
        if env.steps_since_seed[1] == 0:
            frames = [env.frames[1]]
        frames.append(play(env, 1, rng)[0].first_frames[1])
    alone = make_atari("breakout")
    state = alone_state(env, lane=1)
    assert alone.restore(state)
    assert np.array_equal(alone.frames[0], frames[-1])


def alone_state(env, lane: int) -> dict[str, np.ndarray]:
    every_lane = ("key_seed", "key_count", "steps_since_key", "frame_crc32", "lives")
    every_lane += ("frame_number", "episode_frame_number")
    state = env.state()
    only = {name: state[name][lane : lane + 1] for name in every_lane}
    return only | {"run_seed": state["run_seed"], "actions": env.actions_since_seed(lane)}


def test_changed_world_is_noticed_and_begun_anew(make_atari):
    original = make_atari("breakout", num_envs=2, seed=1)
    original.reset()
    play(original, 30, np.random.default_rng(0))
    state = original.state()
    state["frame_crc32"] = state["frame_crc32"] + 1
    other = make_atari("breakout", num_envs=2, seed=1)
    assert not other.restore(state)
    assert other.steps_since_seed.tolist() == [0, 0]
    assert not set(other.reset_seed.tolist()) & set(state["key_seed"].tolist())
    assert other.frames.shape == (2, 84, 84)
    assert len(play(other, 3, np.random.default_rng(0))) == 3


def test_state_of_other_lanes_or_actions_is_not_restored(make_atari):
    alien = make_atari("alien", num_envs=1)
    alien.reset()
    alien.send(np.array([17]))
    alien.recv()
    with pytest.raises(ValueError, match="1 lanes"):
        make_atari("pong", num_envs=2).restore(alien.state())
    assert not make_atari("pong", num_envs=1).restore(alien.state())

"""The emulator's traps, each against the real emulator."""

import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from redline.envs.atari import make_emulator
from redline.envs.atari_games import DQN_2015, MACHADO_2018, AtariProtocol
from redline.envs.catalog import make_vector_env
from redline.envs.config import EnvConfig
from redline.envs.vector import reset_seed
from redline.types import VectorStep


def step(env, actions) -> VectorStep:
    env.send(np.asarray(actions))
    return env.recv()


def playing(env, count: int) -> Iterator[VectorStep]:
    rng = np.random.default_rng(0)
    for _ in range(count):
        yield step(env, rng.integers(0, env.spec.num_actions, env.num_envs))


def random_steps(env, count: int) -> list[VectorStep]:
    return list(playing(env, count))


def test_spec_and_first_frames(make_atari):
    env = make_atari("pong", num_envs=2)
    frames = env.reset()
    assert (env.spec.frame_shape, env.spec.num_actions, env.spec.frames_per_step) == ((84, 84), 6, 4)
    assert (frames.shape, frames.dtype) == ((2, 84, 84), np.uint8)
    assert env.reset_seed.tolist() == [reset_seed(0, 0, 0), reset_seed(0, 1, 0)]


def test_pong_has_no_lives_to_lose(make_atari):
    env = make_atari("pong", num_envs=2)
    env.reset()
    assert not any(taken.life_lost.any() for taken in random_steps(env, 300))
    assert env.state()["lives"].tolist() == [0, 0]


@pytest.mark.parametrize(("game", "lives"), [("breakout", 5), ("alien", 3)])
def test_every_life_but_the_last_is_lost_within_one_episode(make_atari, game, lives):
    env = make_atari(game)
    env.reset()
    rng, lost, reward = np.random.default_rng(1), 0, []
    while True:
        taken = step(env, rng.integers(0, env.spec.num_actions, 1))
        lost += int(taken.life_lost[0])
        reward.append(float(taken.reward[0]))
        if taken.ended[0]:
            break
    assert (lost, bool(taken.terminated[0]), bool(taken.truncated[0])) == (lives - 1, True, False)
    assert not taken.life_lost[0]
    assert env.state()["lives"].tolist() == [lives]
    if game == "alien":
        assert max(reward) >= 10  # unclipped


def test_v5_never_reports_a_lost_life(make_atari):
    env = make_atari("ALE/Breakout-v5", num_envs=2)
    env.reset()
    lives = [env.state()["lives"].min()]
    for taken in playing(env, 150):
        assert not taken.life_lost.any()
        lives.append(env.state()["lives"].min())
    assert min(lives) < 5


def test_frame_limit_truncates_and_the_final_frame_is_kept(make_atari):
    env = make_atari("ALE/Breakout-v5", num_envs=2, max_episode_frames=40)
    first = env.reset()
    taken = random_steps(env, 10)
    assert not any(before.ended.any() for before in taken[:-1])
    assert taken[-1].truncated.all()
    assert not taken[-1].terminated.any()
    assert not np.array_equal(taken[-1].frames, taken[-1].first_frames)
    assert np.array_equal(env.frames, taken[-1].first_frames)
    assert np.array_equal(first, taken[-1].first_frames)  # v5 begins without no-ops


def test_step_after_an_end_is_a_real_step(make_atari):
    env = make_atari("ALE/Pong-v5", max_episode_frames=40)
    env.reset()
    random_steps(env, 10)
    assert env.state()["episode_frame_number"].tolist() == [0]
    taken = step(env, [0])
    assert env.state()["episode_frame_number"].tolist() == [4]
    assert not taken.ended.any()


def test_sticky_actions_are_all_that_tells_two_seeds_of_v5_apart():
    def last_frames(protocol: AtariProtocol) -> np.ndarray:
        emulator = make_emulator("pong", protocol, EnvConfig(), num_envs=2, threads=2)
        emulator.reset(seed=np.array([1, 2]))
        frames = [emulator.step(np.array([2 + k % 2] * 2))[0] for k in range(60)]
        return np.stack(frames, axis=1)  # [N, T, 1, 84, 84]

    one, other = last_frames(MACHADO_2018)
    assert not np.array_equal(one, other)
    one, other = last_frames(replace(MACHADO_2018, sticky=DQN_2015.sticky))
    assert np.array_equal(one, other)


def test_nobody_presses_fire_at_a_reset(make_atari):
    env = make_atari("breakout")
    before = env.reset()
    after = [step(env, [0]).frames for _ in range(60)][-1]
    assert np.count_nonzero(before != after) < 20  # no ball: paddle and wall stand still
    assert env.state()["lives"].tolist() == [5]


def test_noops_belong_to_the_2015_protocol_only(make_atari):
    def frames_at_start(env_id: str) -> set[int]:
        env = make_atari(env_id, max_episode_frames=120)
        env.reset()
        found = set()
        for taken in playing(env, 240):
            if taken.ended[0]:
                found.add(int(env.state()["episode_frame_number"][0]))
        return found

    assert frames_at_start("ALE/Pong-v5") == {0}
    varied = frames_at_start("pong")
    assert len(varied) > 3
    assert max(varied) <= 29


def test_received_arrays_are_not_overwritten_later(make_atari):
    env = make_atari("pong", num_envs=2)
    env.reset()
    taken = random_steps(env, 1)[0]
    frames, reward = taken.frames.copy(), taken.reward.copy()
    random_steps(env, 20)
    assert np.array_equal(taken.frames, frames)
    assert np.array_equal(taken.reward, reward)


@pytest.mark.parametrize(
    ("actions", "said"),
    [
        (np.array([0, 6]), "lane 1 has action 6"),
        (np.array([-1, 0]), "lane 0 has action -1"),
        (np.array([0]), r"shape \(1,\)"),
        (np.array([0.0, 1.0]), "float64"),
    ],
)
def test_bad_action_is_refused_and_the_env_stays_usable(make_atari, actions, said):
    env = make_atari("pong", num_envs=2)
    env.reset()
    with pytest.raises(ValueError, match=said):
        env.send(actions)
    assert len(random_steps(env, 2)) == 2


def test_send_and_recv_alternate(make_atari):
    env = make_atari("pong")
    with pytest.raises(RuntimeError, match="reset"):
        env.send(np.array([0]))
    env.reset()
    with pytest.raises(RuntimeError, match="follows send"):
        env.recv()
    env.send(np.array([0]))
    for forbidden in (lambda: env.send(np.array([0])), env.state, env.reset):
        with pytest.raises(RuntimeError, match="recv"):
            forbidden()
    env.recv()


def test_emulation_goes_on_while_the_caller_works(make_atari):
    env = make_atari("breakout", num_envs=8)
    env.reset()
    random_steps(env, 5)
    started = time.perf_counter()
    random_steps(env, 20)
    emulation_s = (time.perf_counter() - started) / 20
    waits = []
    for _ in range(20):
        env.send(np.zeros(8, np.int64))
        time.sleep(3 * emulation_s)
        started = time.perf_counter()
        env.recv()
        waits.append(time.perf_counter() - started)
    assert np.median(waits) < emulation_s / 2


def test_seed_interval_of_zero_seeds_every_episode():
    config = EnvConfig(id="pong", max_episode_frames=80)
    env = make_vector_env(config, num_envs=1, seed=4, threads=1, seed_interval_steps=0)
    env.reset()
    keys = [int(env.reset_seed[0])]
    for taken in playing(env, 60):
        if taken.ended[0]:
            keys.append(int(env.reset_seed[0]))
            assert env.steps_since_seed.tolist() == [0]
    env.close()
    assert keys == [reset_seed(4, 0, number) for number in range(len(keys))]
    assert len(keys) > 3


def test_zero_threads_are_refused():
    with pytest.raises(ValueError, match="every core"):
        make_emulator("pong", DQN_2015, EnvConfig(), num_envs=1, threads=0)

"""Our stack is the emulator's own, byte for byte."""

import numpy as np
import pytest

from redline.envs.atari import make_emulator
from redline.envs.atari_games import DQN_2015
from redline.envs.config import EnvConfig
from redline.envs.vector import begin_stack, push_frames, restart_stack


@pytest.mark.parametrize("game", ["pong", "breakout"])
def test_stack_equals_the_emulators_across_resets(make_atari, game):
    env = make_atari(game, num_envs=2, max_episode_frames=160)
    config = EnvConfig(max_episode_frames=160)
    emulator = make_emulator(game, DQN_2015, config, num_envs=2, threads=2, stack=4)
    stack = begin_stack(env.reset(), 4)
    theirs, _ = emulator.reset(seed=env.reset_seed)
    rng, ends = np.random.default_rng(0), 0
    for _ in range(130):
        assert np.array_equal(stack, theirs)
        actions = rng.integers(0, env.spec.num_actions, 2)
        env.send(actions)
        taken = env.recv()
        theirs, _, terminated, truncated, _ = emulator.step(actions)
        stack = push_frames(stack, taken.frames)
        assert np.array_equal(stack, theirs)  # the final observation, before the reset
        ended = terminated | truncated
        assert np.array_equal(ended, taken.ended)
        assert np.array_equal(taken.first_frames[~ended], taken.frames[~ended])
        if ended.any():
            theirs, _ = emulator.reset(options={"reset_mask": ended})
        stack = restart_stack(stack, taken.ended, taken.first_frames)
        ends += int(ended.sum())
    assert ends >= 4


def test_push_leaves_its_argument_alone():
    stack = begin_stack(np.array([[1.0], [2.0]], np.float32), 3)  # [2, 3, 1]
    assert stack[..., 0].tolist() == [[0, 0, 1], [0, 0, 2]]
    pushed = push_frames(stack, np.array([[3.0], [4.0]], np.float32))
    assert pushed[..., 0].tolist() == [[0, 1, 3], [0, 2, 4]]
    restarted = restart_stack(pushed, np.array([False, True]), np.array([[8.0], [9.0]], np.float32))
    assert restarted[..., 0].tolist() == [[0, 1, 3], [0, 0, 9]]
    assert pushed[..., 0].tolist() == [[0, 1, 3], [0, 2, 4]]
    assert stack[..., 0].tolist() == [[0, 0, 1], [0, 0, 2]]


def test_stack_of_one_is_the_newest_frame():
    stack = push_frames(begin_stack(np.ones((1, 2, 2), np.uint8), 1), np.full((1, 2, 2), 7, np.uint8))
    assert stack.tolist() == [[[[7, 7], [7, 7]]]]

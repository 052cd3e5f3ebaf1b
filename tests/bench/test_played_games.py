"""Played games: every frame once, and the stacks that an actor saw."""

import numpy as np
from stamped_game import STACK, stamped_game

from redline.bench.our_memory import bytes_per_transition, filled_memory, staging_bytes
from redline.bench.played_games import play_game


def test_a_game_is_played_alike_with_the_same_seed() -> None:
    first, again = (play_game("pong", num_transitions=60, seed=3, lanes=2) for _ in range(2))
    assert first.num_transitions == 60
    assert first.frames.shape == (30, 2, 84, 84)
    assert np.array_equal(first.frames, again.frames)
    assert np.array_equal(first.action, again.action)


def test_stacks_are_padded_with_zeros_and_go_on_frame_by_frame() -> None:
    played = stamped_game(num_steps=50)
    previous = None
    for step in played.transitions():
        assert np.array_equal(step.state[:, 1:], step.next_state[:, :-1])
        if previous is not None:
            goes_on = ~previous.done
            assert np.array_equal(step.state[goes_on], previous.next_state[goes_on])
            assert not step.state[previous.done, : STACK - 1].any()
        previous = step


def test_a_transition_takes_its_share_of_everything_but_the_staging() -> None:
    played = stamped_game()
    memory = filled_memory(played, codec="zstd")
    whole = bytes_per_transition(memory) * memory.num_transitions + staging_bytes(memory)
    assert whole == memory.used_bytes
    assert memory.num_transitions == played.num_transitions
    assert staging_bytes(memory) > 0
    memory.close()

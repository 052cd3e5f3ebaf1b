"""Played games: every frame once, and what a transition of them takes."""

import numpy as np

from redline.bench.replay_speed import bytes_per_transition, filled_memory, play_game, staging_bytes


def test_a_game_is_played_alike_with_the_same_seed() -> None:
    first, again = (play_game("pong", num_transitions=60, seed=3, lanes=2) for _ in range(2))
    assert first.num_transitions == 60
    assert len(first.steps) == 30
    assert all(np.array_equal(a.frames, b.frames) for a, b in zip(first.steps, again.steps, strict=True))
    assert np.array_equal(first.actions, again.actions)


def test_a_transition_takes_its_share_of_everything_but_the_staging() -> None:
    played = play_game("pong", num_transitions=400, seed=3, lanes=2)
    memory = filled_memory(played, codec="zstd")
    whole = bytes_per_transition(memory) * memory.num_transitions + staging_bytes(memory)
    assert whole == memory.used_bytes
    assert memory.num_transitions == played.num_transitions
    assert staging_bytes(memory) > 0
    memory.close()

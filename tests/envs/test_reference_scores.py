"""Reference scores: every one is of a game that can be played, and random play and a human are 0 and 1."""

import pytest

from redline.envs.atari_games import atari_games
from redline.envs.reference_scores import REFERENCES, normalise, reference_of


def test_every_reference_is_of_a_game_that_can_be_played() -> None:
    assert len(REFERENCES) == 57
    assert set(REFERENCES) <= set(atari_games())


def test_a_human_plays_better_than_random_in_every_game() -> None:
    assert all(reference["human"] > reference["random"] for reference in REFERENCES.values())


@pytest.mark.parametrize(
    ("game", "score", "normalised"),
    [
        ("pong", -20.7, 0.0),
        ("pong", 14.6, 1.0),
        ("breakout", 16.1, 0.5),
        ("breakout", 59.3, 2.0),
        ("freeway", 0.0, 0.0),
    ],
)
def test_random_play_is_zero_and_a_human_is_one(game: str, score: float, normalised: float) -> None:
    assert normalise(score, REFERENCES[game]) == pytest.approx(normalised)


@pytest.mark.parametrize("env_id", ["pong", "PongNoFrameskip-v4", "ALE/Pong-v5"])
def test_every_spelling_of_a_game_has_its_reference(env_id: str) -> None:
    assert reference_of(env_id) == {"random": -20.7, "human": 14.6}


@pytest.mark.parametrize("env_id", ["CartPole-v1", "joust", "<script>", "", "\x1b[2J"])
def test_anything_else_has_none(env_id: str) -> None:
    assert reference_of(env_id) is None

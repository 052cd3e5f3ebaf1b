"""References of Atari games, by numbers worked by hand."""

import pytest

from redline.cli.atari_scores import REFERENCES
from redline.envs.atari_games import atari_games


def test_every_reference_is_of_a_game_that_can_be_played() -> None:
    assert len(REFERENCES) == 57
    assert set(REFERENCES) <= set(atari_games())


def test_a_human_plays_better_than_random_in_every_game() -> None:
    assert all(reference.human > reference.random for reference in REFERENCES.values())


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
    assert REFERENCES[game].normalise(score) == pytest.approx(normalised)

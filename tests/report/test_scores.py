"""References and intervals, by numbers worked by hand."""

import pytest

from redline.envs.atari_games import atari_games
from redline.report.scores import REFERENCES, bootstrap_interval


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


def test_interval_of_a_mean_is_as_wide_as_theory_says() -> None:
    interval = bootstrap_interval([0.0, 1.0] * 200, seed=0)
    assert interval is not None
    # the mean of 400 coins has a standard deviation of 0.025; 90 % lie within 1.645 of those
    assert interval.low == pytest.approx(0.5 - 1.645 * 0.025, abs=0.004)
    assert interval.high == pytest.approx(0.5 + 1.645 * 0.025, abs=0.004)
    assert interval.level == 0.9


def test_interval_is_the_same_for_the_same_seed() -> None:
    values = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0]
    assert bootstrap_interval(values, seed=1) == bootstrap_interval(values, seed=1)


def test_equal_values_leave_no_doubt() -> None:
    interval = bootstrap_interval([500.0] * 5, seed=0)
    assert interval is not None
    assert (interval.low, interval.high) == (500.0, 500.0)


def test_one_value_has_no_interval() -> None:
    assert bootstrap_interval([21.0], seed=0) is None

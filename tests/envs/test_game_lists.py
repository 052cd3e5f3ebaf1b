"""Lists of games: ten with their episodes, names with a limit of their own, and lists that mean nothing."""

import pytest

from redline.envs.game_lists import GameLimit, known_name, parse_games, with_limit
from redline.errors import UserError


def test_ten_are_ten_games_with_their_episodes() -> None:
    games = parse_games("ten")
    assert len(games) == 10
    assert sum(game.limit or 0 for game in games) == 156_000
    assert games[0] == GameLimit("ms_pacman", 30_000)


def test_a_name_may_have_a_limit_and_any_spelling() -> None:
    found = parse_games("Pong:3_000, PongNoFrameskip-v4:5,CartPole-v1,ALE/Breakout-v5:7".replace("Pong:3_000, ", ""))
    assert found == (GameLimit("pong", 5), GameLimit("CartPole-v1"), GameLimit("ALE/Breakout-v5", 7))
    assert parse_games("MsPacman:3_000") == (GameLimit("ms_pacman", 3_000),)


def test_one_limit_can_be_given_to_all() -> None:
    games = with_limit(parse_games("pong:3000,boxing"), 1_000_000, "steps")
    assert games == (GameLimit("pong", 1_000_000, "steps"), GameLimit("boxing", 1_000_000, "steps"))


def test_a_name_in_a_file_stays_as_it_is_if_it_is_unknown_here() -> None:
    assert known_name("PongNoFrameskip-v4") == "pong"
    assert known_name("nowhere:Env-v0") == "nowhere:Env-v0"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "names no game: use ten"),
        (" , ", "names no game"),
        ("pong,breakuot", "unknown env 'breakuot': did you mean breakout"),
        ("pong:0", "write a number of episodes, 1 or more, such as pong:3000"),
        ("pong:-3", "write a number of episodes"),
        ("pong:3.5", "write a number of episodes"),
        ("pong,Pong", "names pong twice"),
        ("ten,pong:5", "names pong twice"),
    ],
)
def test_a_list_that_means_nothing_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_games(text)

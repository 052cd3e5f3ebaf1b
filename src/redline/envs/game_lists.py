"""Lists of games with a limit for each: `ten`, or names such as pong:3000,breakout."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from redline.envs.atari_games import DQN_2015, AtariGame
from redline.envs.catalog import resolve
from redline.errors import UserError

LimitUnit = Literal["episodes", "steps"]
TEN = "ten"
LARGEST_LIMIT = 10**12


@dataclass(frozen=True)
class GameLimit:
    """A game, and when training on it ends; None where that was not said."""

    game: str
    limit: int | None = None
    unit: LimitUnit = "episodes"


# ten games of one comparison, each with the episodes that it took
TEN_GAMES = (
    GameLimit("ms_pacman", 30_000),
    GameLimit("asteroids", 25_000),
    GameLimit("seaquest", 25_000),
    GameLimit("beam_rider", 20_000),
    GameLimit("space_invaders", 15_000),
    GameLimit("enduro", 15_000),
    GameLimit("breakout", 10_000),
    GameLimit("boxing", 10_000),
    GameLimit("freeway", 3_000),
    GameLimit("pong", 3_000),
)


def parse_games(text: str) -> tuple[GameLimit, ...]:
    """Return the games of a list, in its order; UserError if it is empty, or names a game twice or an unknown one."""
    games: list[GameLimit] = []
    for item in filter(None, map(str.strip, text.split(","))):
        name, limit = _split_limit(item)
        if name.lower() == TEN:
            games += [replace(game, limit=limit or game.limit) for game in TEN_GAMES]
        else:
            games.append(GameLimit(game_name(name), limit))
    if not games:
        raise UserError(f"--games is {text[:80]!r} and names no game: use {TEN}, or names such as pong:3000,breakout")
    names = [game.game for game in games]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"--games names {twice} twice: keep one")
    return tuple(games)


def with_limit(games: Sequence[GameLimit], limit: int, unit: LimitUnit) -> tuple[GameLimit, ...]:
    """Return the games with one limit for all of them."""
    return tuple(replace(game, limit=limit, unit=unit) for game in games)


def game_name(env_id: str) -> str:
    """Return the one name that all spellings of an env share; UserError if there is no such env."""
    kind = resolve(env_id)
    if isinstance(kind, AtariGame):
        return kind.name if kind.protocol is DQN_2015 else kind.gymnasium_id
    return kind.gymnasium_id


def known_name(env_id: str) -> str:
    """Return the name of an env that a file names; as it stands there if there is no such env here."""
    with suppress(UserError):
        return game_name(env_id)
    return env_id


def _split_limit(item: str) -> tuple[str, int | None]:
    """Return the name and the episodes of `pong:3000`; what follows another colon is the name of a module's env."""
    name, _, count = item.rpartition(":")
    if not name or (not count[:1].isdecimal() and count[:1] != "-"):
        return item, None
    digits = count.replace("_", "")
    if not (digits.isdecimal() and digits.isascii() and 0 < int(digits[:20]) <= LARGEST_LIMIT):
        raise UserError(f"--games has {item[:80]!r}: write a number of episodes, 1 or more, such as {name[:40]}:3000")
    return name, int(digits)

"""Rates, prices and baselines as a user types them. A report of a fleet reads them too, and needs no torch."""

from collections.abc import Sequence
from decimal import Decimal, InvalidOperation

from redline.envs.catalog import resolve
from redline.envs.game_lists import GameLimit
from redline.errors import UserError
from redline.plan.time import Speed

UNITS = ("episodes", "steps", "frames")  # of a rate: per hour, per second, per second
MOST = 10**12  # of a rate or a price


def read_number(name: str, text: str, *, or_zero: bool = False) -> Decimal:
    """Return a finite positive number."""
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal("nan")
    least = Decimal(0) if or_zero else 1 / Decimal(MOST)
    if not (value.is_finite() and least <= value <= MOST):
        raise UserError(f"--{name} is {text[:80]!r}: use a number {'of 0 or more' if or_zero else 'above 0'}")
    return value


def read_baseline(words: Sequence[str]) -> tuple[Decimal | None, Sequence[str]]:
    """Return a rate, or the names of runs."""
    try:
        Decimal(words[0] if len(words) == 1 else "no number")
    except InvalidOperation:
        return None, words
    return read_number("baseline", words[0]), ()


def given_speeds(games: Sequence[GameLimit], rate: Decimal, unit: str | None) -> dict[str, Speed]:
    """Return the same rate for every game."""
    found = {}
    for game in games:
        own = rate / resolve(game.game).frame_skip if unit == "frames" else rate
        found[game.game] = Speed(own, "episodes/h" if unit == "episodes" else "steps/s", "given", own, own)
    return found


def refuse_unused(*uses: tuple[str, object, bool, str]) -> None:
    """Refuse flags that would do nothing: each with its value, whether it has a use, and what would give it one."""
    for name, value, has_use, use in uses:
        if value is not None and not has_use:
            raise UserError(f"{name} does nothing here: leave it out, or add {use}")

"""Scores of a fleet: per game and kind of run, over all games, and before and after each change of the list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from redline.envs.reference_scores import normalise, reference_of
from redline.fleet.aggregate import Aggregate, Value, aggregate, difference
from redline.fleet.listing import Listing, Slot, Version
from redline.fleet.results import Result, counted
from redline.report.bands import SHORT_SHARE
from redline.report.statistics import difference_interval, mean_interval

SEED = 0  # the same report from the same runs
UNSET = "usual"  # of a setting that a list leaves alone

Interval = tuple[float, float]


@dataclass(frozen=True)
class Score:
    """What the seeds of one kind of run came to in one game."""

    game: str
    kind: str
    is_listed: bool
    results: tuple[Result, ...]  # all of them, also those that don't count

    @property
    def algorithm(self) -> str:
        """Its algorithm, with its variant: what the versions of a list have in common."""
        slot = self.results[0].slot
        return " ".join(filter(None, (slot.algorithm, slot.variant)))

    @property
    def since(self) -> int:
        """Version of the list that brought it."""
        return self.results[0].since

    @property
    def values(self) -> list[float]:
        """The headline scores that count, one per seed."""
        return [result.score for result in counted(self.results) if result.score is not None]

    @property
    def mean(self) -> float | None:
        """Their mean."""
        return fmean(self.values) if self.values else None

    @property
    def interval(self) -> Interval | None:
        """The 90 % interval of the mean by Student's t; None for fewer than three seeds."""
        return mean_interval(self.values)

    @property
    def normalised(self) -> list[float]:
        """The scores that count, where random play is 0 and a human 1; empty where the game has no reference."""
        reference = reference_of(self.game)
        return [] if reference is None else [normalise(value, reference) for value in self.values]

    @property
    def evaluations(self) -> list[float]:
        """The newest evaluation of each run that counts and has one."""
        found = (result.finding.summary.evaluation_return for result in counted(self.results) if result.finding)
        return [value for value in found if value is not None]

    @property
    def steps(self) -> list[int]:
        """The steps of each run that counts."""
        found = (result.finding.summary.steps for result in counted(self.results) if result.finding)
        return [steps for steps in found if steps is not None]


@dataclass(frozen=True)
class Overall:
    """What one algorithm, with its variant, came to over games."""

    name: str
    games: tuple[str, ...]  # that count
    found: Aggregate


@dataclass(frozen=True)
class GameChange:
    """What a change did in one game: the scores of both sides at the same number of steps."""

    game: str
    old_kind: str
    new_kind: str
    steps: int | None  # that all runs that count have reached
    old: tuple[float, ...]
    new: tuple[float, ...]

    @property
    def difference(self) -> float | None:
        """How much larger the new mean is."""
        return fmean(self.new) - fmean(self.old) if self.old and self.new else None

    @property
    def interval(self) -> Interval | None:
        """The 90 % interval of that, by Welch's t; None for fewer than three seeds on a side."""
        return difference_interval(self.new, self.old)


@dataclass(frozen=True)
class Change:
    """A version of the list after the first: what changed, and what that did."""

    number: int
    version: Version
    settings: tuple[str, ...]  # such as "batch-size: 32 → 64"
    new_slots: int  # that came with it
    games: tuple[GameChange, ...]
    overall: Value | None  # mean difference of human-normalised scores, over the games that changed


def scores_of(results: Sequence[Result]) -> list[Score]:
    """Return the scores of each game and kind, in the order of the list."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.slot.game, result.kind), []).append(result)
    games = list(dict.fromkeys(game for game, _ in groups))
    found = [
        Score(game, kind, any(result.is_listed for result in group), tuple(group))
        for (game, kind), group in groups.items()
    ]
    return sorted(found, key=lambda score: games.index(score.game))


def overall_of(scores: Sequence[Score]) -> tuple[list[Overall], list[Overall]]:
    """Return what each algorithm of the newest list came to over its own games, and over those that all have.

    The latter are empty if all have the same games, or none has them all.
    """
    found: dict[str, dict[str, list[float]]] = {}
    for score in scores:
        if score.is_listed and (values := score.normalised):
            found.setdefault(score.algorithm, {}).setdefault(score.game, []).extend(values)
    games = [set(by_game) for by_game in found.values()]
    common = set.intersection(*games) if games else set()
    if not common or all(names == common for names in games):
        return _overall(found), []
    shared = {
        name: {game: values for game, values in by_game.items() if game in common} for name, by_game in found.items()
    }
    return _overall(found), _overall(shared)


def _overall(found: Mapping[str, Mapping[str, Sequence[float]]]) -> list[Overall]:
    aggregates = [(name, tuple(by_game), aggregate(by_game, seed=SEED)) for name, by_game in found.items()]
    return [Overall(name, games, value) for name, games, value in aggregates if value is not None]


def changes_of(listing: Listing, results: Sequence[Result]) -> list[Change]:
    """Return each version after the first; one that brings back old slots has nothing to compare."""
    by_name = {result.slot.name: result for result in results}
    known = {slot.name for slot in listing.versions[0].slots}
    found = []
    for number, version in enumerate(listing.versions[1:], start=2):
        before = {_key(slot): slot for slot in listing.versions[number - 2].slots}
        fresh = [slot for slot in version.slots if slot.name not in known]
        known |= {slot.name for slot in fresh}
        pairs = [(before[_key(slot)], slot) for slot in fresh if _key(slot) in before]
        found.append(_change(number, version, pairs, by_name, len(fresh)))
    return found


def _key(slot: Slot) -> tuple[str, str, str, int]:
    return slot.game, slot.algorithm, slot.variant, slot.seed


def _change(
    number: int, version: Version, pairs: Sequence[tuple[Slot, Slot]], results: Mapping[str, Result], new_slots: int
) -> Change:
    groups: dict[tuple[str, str, str], list[tuple[Result, Result]]] = {}
    for old, new in pairs:
        sides = results[old.name], results[new.name]
        groups.setdefault((new.game, sides[0].kind, sides[1].kind), []).append(sides)
    games = tuple(
        _game_change(*names, old=[old for old, _ in found], new=[new for _, new in found])
        for names, found in groups.items()
    )
    settings = dict.fromkeys(words for old, new in pairs for words in _differences(old, new))
    scores = [
        {f"{game.game} {game.new_kind}": _normalised(game.game, values) for game, values in side}
        for side in ([(game, game.old) for game in games], [(game, game.new) for game in games])
    ]
    return Change(number, version, tuple(settings), new_slots, games, difference(scores[0], scores[1], seed=SEED))


def _game_change(
    game: str, old_kind: str, new_kind: str, *, old: Sequence[Result], new: Sequence[Result]
) -> GameChange:
    """Compare both sides at the steps that all their runs have reached; a side's short runs don't count."""
    sides = [_long(old), _long(new)]
    steps = [result.finding.summary.steps or 0 for side in sides for result in side if result.finding]
    if not all(sides):
        return GameChange(game, old_kind, new_kind, None, (), ())
    at = min(steps)
    scores = [
        tuple(value for result in side if result.finding and (value := result.finding.score_at(at)) is not None)
        for side in sides
    ]
    return GameChange(game, old_kind, new_kind, at, scores[0], scores[1])


def _long(side: Sequence[Result]) -> list[Result]:
    """Return the runs that count and are at least half as long as the longest."""
    found = [(result, result.finding.summary.steps or 0) for result in counted(side) if result.finding]
    longest = max((steps for _, steps in found), default=0)
    return [result for result, steps in found if steps and steps >= SHORT_SHARE * longest]


def _normalised(game: str, values: Sequence[float]) -> list[float]:
    reference = reference_of(game)
    return [] if reference is None else [normalise(value, reference) for value in values]


def _differences(old: Slot, new: Slot) -> list[str]:
    """Return the settings in which two slots differ."""
    names = [name for name in {**old.settings, **new.settings} if old.settings.get(name) != new.settings.get(name)]
    return [f"{name}: {old.settings.get(name, UNSET)} → {new.settings.get(name, UNSET)}" for name in names]

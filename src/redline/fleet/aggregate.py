"""Scores of many games as one number per algorithm: human-normalised, with intervals over seeds.

Agarwal et al. 2021, "Deep Reinforcement Learning at the Edge of the Statistical Precipice" (arXiv:2108.13264): runs are
resampled within each game, so the intervals say how other seeds might have come out, not other games. The paper has
equally many runs of every game. Where a fleet has not, each run counts once in the IQM, and each game once in the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from redline.report.statistics import LEAST_VALUES, Doubles

LEVEL = 0.95
RESAMPLES = 20_000
RESAMPLES_AT_ONCE = 1_000  # bounds memory for many runs
TRIMMED = 0.25  # of the runs, at each end
HUMAN = 1.0  # the score beyond which there is no gap

Scores = Sequence[Doubles]  # of each game: [resamples, runs]
Statistic = Callable[[Scores], Doubles]  # [resamples]


def mean(scores: Scores) -> Doubles:
    """Return the mean over games of each game's mean."""
    found: Doubles = _game_means(scores).mean(0)
    return found


def median(scores: Scores) -> Doubles:
    """Return the median over games of each game's mean."""
    found: Doubles = np.median(_game_means(scores), axis=0)
    return found


def interquartile_mean(scores: Scores) -> Doubles:
    """Return the mean of the middle half of all runs."""
    runs = np.sort(np.concatenate(scores, axis=1), axis=1)  # [resamples, all runs]
    cut = int(TRIMMED * runs.shape[1])
    found: Doubles = runs[:, cut : runs.shape[1] - cut].mean(1)
    return found


def optimality_gap(scores: Scores) -> Doubles:
    """Return how far runs fall short of a human on average; what is beyond one makes up for nothing."""
    return HUMAN - mean([np.minimum(runs, HUMAN) for runs in scores])


STATISTICS: Mapping[str, Statistic] = {
    "median": median,
    "IQM": interquartile_mean,
    "mean": mean,
    "optimality gap": optimality_gap,
}


@dataclass(frozen=True)
class Value:
    """A number and the ends of its interval; None where there are too few runs."""

    point: float
    interval: tuple[float, float] | None


@dataclass(frozen=True)
class Aggregate:
    """What the scores of an algorithm come to over games."""

    games: int
    runs: int
    values: Mapping[str, Value]  # by names of STATISTICS
    few: tuple[str, ...]  # games with too few runs for an interval

    @property
    def why_no_interval(self) -> str:
        """Why there are no intervals; empty where there are some."""
        if not self.few:
            return ""
        others = f" and {len(self.few) - 1} more" if len(self.few) > 1 else ""
        return f"no interval: fewer than {LEAST_VALUES} runs of {self.few[0]}{others}"


def aggregate(scores: Mapping[str, Sequence[float]], *, seed: int) -> Aggregate | None:
    """Return what the normalised scores of each game's runs come to; None if there are none."""
    told = {game: np.asarray(runs, dtype=np.float64) for game, runs in scores.items() if len(runs)}
    if not told:
        return None
    few = tuple(game for game, runs in told.items() if len(runs) < LEAST_VALUES)
    whole = [runs[np.newaxis] for runs in told.values()]  # as it is: one "resample"
    intervals = {} if few else _intervals(list(told.values()), np.random.default_rng(seed))
    values = {name: Value(float(statistic(whole)[0]), intervals.get(name)) for name, statistic in STATISTICS.items()}
    return Aggregate(games=len(told), runs=sum(map(len, told.values())), values=values, few=few)


def difference(
    before: Mapping[str, Sequence[float]], after: Mapping[str, Sequence[float]], *, seed: int
) -> Value | None:
    """Return how much larger the mean over games has become, over those that have both; None if there are none."""
    games = [game for game, runs in before.items() if len(runs) and len(after.get(game, ()))]
    if not games:
        return None
    sides = [[np.asarray(side[game], dtype=np.float64) for game in games] for side in (before, after)]
    old, new = (float(mean([runs[np.newaxis] for runs in side])[0]) for side in sides)
    if any(len(runs) < LEAST_VALUES for side in sides for runs in side):
        return Value(new - old, None)
    olds, news = (
        _resampled(side, {"mean": mean}, np.random.default_rng(seed + place)) for place, side in enumerate(sides)
    )
    return Value(new - old, _middle(news["mean"] - olds["mean"]))


def _intervals(games: Sequence[Doubles], rng: np.random.Generator) -> dict[str, tuple[float, float]]:
    """Return the percentile interval of each statistic."""
    return {name: _middle(values) for name, values in _resampled(games, STATISTICS, rng).items()}


def _resampled(
    games: Sequence[Doubles], statistics: Mapping[str, Statistic], rng: np.random.Generator
) -> dict[str, Doubles]:
    """Return each statistic of many resamples; runs are drawn with replacement within each game."""
    found: dict[str, list[Doubles]] = {name: [] for name in statistics}
    for _ in range(RESAMPLES // RESAMPLES_AT_ONCE):
        drawn = [runs[rng.integers(len(runs), size=(RESAMPLES_AT_ONCE, len(runs)))] for runs in games]
        for name, statistic in statistics.items():
            found[name].append(statistic(drawn))
    return {name: np.concatenate(values) for name, values in found.items()}


def _middle(values: Doubles) -> tuple[float, float]:
    """Return the ends between which 95 % of the values lie."""
    low, high = np.quantile(values, [(1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0])
    return float(low), float(high)


def _game_means(scores: Scores) -> Doubles:
    return np.stack([runs.mean(1) for runs in scores])  # [games, resamples]

"""Intervals of means, and Spearman's rank correlation with a bootstrap interval and a permutation test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

import numpy as np
import numpy.typing as npt
import scipy  # loads scipy.stats, which takes a second, when it is first used

LEVEL = 0.9
LEAST_VALUES = 3  # two values say almost nothing about their spread
RESAMPLES = 10_000
RESAMPLES_AT_ONCE = 100  # bounds memory for many episodes
LEAST_PAIRS = 4  # three have only six orders: a perfect one is not rare
RANK_RESAMPLES = 5_040  # 7!: exact for up to seven pairs
PERFECT = 1.0 - 1e-9  # |rho| of a perfect order

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class RankCorrelation:
    """A rank correlation and how certain it is."""

    rho: float
    interval: tuple[float, float] | None  # 90 % bootstrap; None for a perfect order or too few differing resamples
    by_chance: float  # share of random orders with a |rho| as large

    @property
    def is_clear(self) -> bool:
        """Whether both the interval and the permutation test agree on its sign."""
        low, high = self.interval or (self.rho, self.rho)
        return (low > 0 or high < 0) and self.by_chance < 1.0 - LEVEL


def mean_interval(values: Sequence[float], *, floor: float | None = None) -> tuple[float, float] | None:
    """Return the 90 % interval of the mean by Student's t, cut at `floor`; None for fewer than three values.

    A bootstrap of so few values would be too narrow.
    """
    if len(values) < LEAST_VALUES:
        return None
    mean, error = fmean(values), float(scipy.stats.sem(values))
    half = error * float(scipy.stats.t.ppf((1.0 + LEVEL) / 2.0, len(values) - 1))
    return (mean - half if floor is None else max(mean - half, floor)), mean + half


def difference_interval(values: Sequence[float], others: Sequence[float]) -> tuple[float, float] | None:
    """Return the 90 % interval of how much larger the mean of `values` is, by Welch's t; None for fewer than three."""
    if min(len(values), len(others)) < LEAST_VALUES:
        return None
    difference = fmean(values) - fmean(others)
    shares = [float(scipy.stats.sem(side)) ** 2 for side in (values, others)]
    if sum(shares) == 0:
        return difference, difference
    freedom = sum(shares) ** 2 / sum(
        part**2 / (len(side) - 1) for part, side in zip(shares, (values, others), strict=True)
    )
    half = sum(shares) ** 0.5 * float(scipy.stats.t.ppf((1.0 + LEVEL) / 2.0, freedom))
    return difference - half, difference + half


def bootstrap_interval(values: Sequence[float], *, seed: int) -> tuple[float, float] | None:
    """Return the 90 % bootstrap interval of the mean; None for a single value."""
    if len(values) < 2:
        return None
    rng = np.random.default_rng(seed)
    sample = np.asarray(values, dtype=np.float64)
    means = [
        sample[rng.integers(len(sample), size=(RESAMPLES_AT_ONCE, len(sample)))].mean(1)
        for _ in range(RESAMPLES // RESAMPLES_AT_ONCE)
    ]
    return _middle(np.concatenate(means))


def spearman(x: Doubles, y: Doubles) -> Doubles:
    """Return Pearson's correlation of the ranks along the last axis, NaN where all values of one side are the same."""
    a, b = (scipy.stats.rankdata(side, axis=-1) for side in (x, y))
    a, b = a - a.mean(-1, keepdims=True), b - b.mean(-1, keepdims=True)
    scale = np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    rho: Doubles = np.clip((a * b).sum(-1) / np.where(scale > 0, scale, np.nan), -1.0, 1.0)
    return rho


def correlate(x: Sequence[float], y: Sequence[float], *, seed: int) -> RankCorrelation | None:
    """Return the correlation and its certainty; None for fewer than four pairs or a constant side."""
    if len(x) < LEAST_PAIRS:
        return None
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    rho = float(spearman(a, b))
    if np.isnan(rho):
        return None
    rng = np.random.default_rng(seed)
    by_chance = scipy.stats.permutation_test(
        (b,),
        lambda order, axis: np.abs(spearman(a, order)),
        permutation_type="pairings",
        alternative="greater",
        vectorized=True,
        n_resamples=RANK_RESAMPLES,
        rng=rng,
    ).pvalue
    return RankCorrelation(rho, _rank_interval(a, b, rho, rng), float(by_chance))


def _rank_interval(x: Doubles, y: Doubles, rho: float, rng: np.random.Generator) -> tuple[float, float] | None:
    if abs(rho) >= PERFECT:
        return None
    rows = rng.integers(len(x), size=(RANK_RESAMPLES, len(x)))
    found = spearman(x[rows], y[rows])
    found = found[~np.isnan(found)]  # a constant resample has no correlation
    if len(found) < RANK_RESAMPLES // 2:
        return None
    return _middle(found)


def _middle(values: Doubles) -> tuple[float, float]:
    """Return the ends between which 90 % of the values lie."""
    low, high = np.quantile(values, [(1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0])
    return float(low), float(high)

"""Spearman's rank correlation of a few pairs: how sure it is, and how often chance alone gives as much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations

import numpy as np

from redline.report.scores import LEVEL
from redline.report.spending import Doubles

LEAST_PAIRS = 4  # three have six orders: even the best of them is nothing rare
MAX_EXACT = 7  # 5,040 orders; of more pairs as many are drawn
RESAMPLES = 5_000
COMPARISONS_AT_ONCE = 1_000_000  # bounds the memory
LEAST_RESAMPLES = RESAMPLES // 2
TOLERANCE = 1e-9
PERFECT = 1.0 - TOLERANCE  # |rho| of pairs in one order


@dataclass(frozen=True)
class RankCorrelation:
    """What the order of the pairs tells."""

    rho: float
    interval: tuple[float, float] | None  # 90 % bootstrap; None for a perfect order, or where resamples hardly differ
    by_chance: float  # share of random orders with a |rho| as large

    @property
    def is_clear(self) -> bool:
        """Whether neither the interval nor chance leaves it open in which direction it goes."""
        low, high = self.interval or (self.rho, self.rho)
        return (low > 0 or high < 0) and self.by_chance < 1.0 - LEVEL


def average_ranks(values: Doubles) -> Doubles:
    """Return the rank of each value along the last axis, from 1; equal values share the mean of theirs."""
    ours, others = values[..., :, None], values[..., None, :]
    ranks: Doubles = (others < ours).sum(-1) + ((others == ours).sum(-1) + 1) / 2.0
    return ranks


def spearman(x: Doubles, y: Doubles) -> Doubles:
    """Return Pearson's correlation of the ranks along the last axis, NaN where all values of one side are the same."""
    a, b = _centred_ranks(x), _centred_ranks(y)
    scale = np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    products = (a * b).sum(-1)
    rho: Doubles = np.clip(products / np.where(scale > 0, scale, np.nan), -1.0, 1.0)
    return rho


def _centred_ranks(values: Doubles) -> Doubles:
    ranks = average_ranks(values)
    centred: Doubles = ranks - ranks.mean(-1, keepdims=True)
    return centred


def correlate(x: Sequence[float], y: Sequence[float], *, seed: int) -> RankCorrelation | None:
    """Return the correlation with its doubts, None for fewer than four pairs or a side without differences."""
    if len(x) < LEAST_PAIRS:
        return None
    a, b = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    rho = float(spearman(a, b))
    if np.isnan(rho):
        return None
    rng = np.random.default_rng(seed)
    return RankCorrelation(rho, _bootstrap(a, b, rho, rng), _by_chance(a, b, rho, rng))


def _bootstrap(x: Doubles, y: Doubles, rho: float, rng: np.random.Generator) -> tuple[float, float] | None:
    if abs(rho) >= PERFECT:
        return None
    drawn = rng.integers(len(x), size=(RESAMPLES, len(x)))
    at_once = max(COMPARISONS_AT_ONCE // len(x) ** 2, 1)
    pieces = [drawn[start : start + at_once] for start in range(0, RESAMPLES, at_once)]
    found = np.concatenate([spearman(x[rows], y[rows]) for rows in pieces])
    found = found[~np.isnan(found)]  # of a resample without differences there is none
    if len(found) < LEAST_RESAMPLES:
        return None
    low, high = np.quantile(found, [(1.0 - LEVEL) / 2.0, (1.0 + LEVEL) / 2.0])
    return float(low), float(high)


def _by_chance(x: Doubles, y: Doubles, rho: float, rng: np.random.Generator) -> float:
    a, b = _centred_ranks(x), _centred_ranks(y)
    if len(a) <= MAX_EXACT:
        orders = np.asarray(list(permutations(range(len(a)))))
    else:
        orders = rng.permuted(np.tile(np.arange(len(a)), (RESAMPLES, 1)), axis=1)
    as_large = np.abs(b[orders] @ a) >= abs(rho) * np.sqrt((a @ a) * (b @ b)) - TOLERANCE
    # the order that was found is one of those that are possible
    return float(as_large.mean() if len(a) <= MAX_EXACT else (as_large.sum() + 1) / (RESAMPLES + 1))

"""How well the mean of a few repeats is known: Student's t, because a bootstrap of four values is too narrow."""

import math
import statistics
from collections.abc import Sequence

# 95 % quantiles of Student's t for 1, 2, … degrees of freedom; beyond, the last is a little too wide
QUANTILES = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812, 1.796, 1.782, 1.771, 1.761, 1.753)


def mean_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the interval of the mean at 90 %, None for a single value: nothing is known of its spread."""
    if len(values) < 2:
        return None
    quantile = QUANTILES[min(len(values) - 1, len(QUANTILES)) - 1]
    half = quantile * statistics.stdev(values) / math.sqrt(len(values))
    mean = statistics.fmean(values)
    return mean - half, mean + half

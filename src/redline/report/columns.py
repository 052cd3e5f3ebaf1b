"""Numbers of many rows by column, in bounded memory, and one point of them for each pixel column of a chart."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

MAX_CELLS = 2_500_000  # of one file: 18 hours of one sample a second with 38 columns
MAX_COLUMNS = 600  # hostile rows have a new name each

Numbers = npt.NDArray[np.float64]


class Columns:
    """Rows of numbers that only grow; NaN where a row lacks a column.

    Very many rows are folded in pairs. `exact` columns, and all of them without `means`, keep the second of each pair,
    the others its mean.
    """

    def __init__(self, *, exact: Collection[str], means: bool = True, max_cells: int = MAX_CELLS) -> None:
        self.folds = 0  # how often pairs were folded
        self._exact = frozenset(exact)
        self._means = means
        self._max_cells = max_cells
        self._arrays: dict[str, array[float]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, name: str) -> bool:
        return name in self._arrays

    @property
    def names(self) -> list[str]:
        """The names of all columns, in the order of their first values."""
        return list(self._arrays)

    def append(self, row: Mapping[str, float]) -> None:
        """Add a row."""
        for name, value in row.items():
            column = self._arrays.get(name)
            if column is None:
                if len(self._arrays) >= MAX_COLUMNS:
                    continue
                column = self._arrays[name] = array("d" if name in self._exact else "f")
            if len(column) < self._count:
                _pad(column, self._count)
            column.append(value)
        self._count += 1
        if self._count * len(self._arrays) > self._max_cells:
            self._fold()

    def values(self, name: str, begin: int = 0) -> Numbers:
        """Return a column from a row on."""
        column = self._arrays.get(name)
        if column is None:
            return np.full(self._count - begin, np.nan)
        _pad(column, self._count)
        return np.array(column[begin:] if begin else column, dtype=np.float64)  # a view would forbid `append`

    def _fold(self) -> None:
        pairs = self._count // 2
        for name, column in self._arrays.items():
            _pad(column, self._count)
            both = np.array(column[: 2 * pairs], dtype=np.float64).reshape(pairs, 2)
            seconds = np.where(np.isnan(both[:, 1]), both[:, 0], both[:, 1])
            folded = seconds
            if self._means and name not in self._exact:
                folded = np.where(np.isnan(both).any(1), seconds, both.mean(1))
            self._arrays[name] = array(column.typecode, folded.tolist() + column[2 * pairs :].tolist())
        self._count -= pairs
        self.folds += 1


def _pad(column: array[float], count: int) -> None:
    if (missing := count - len(column)) > 0:
        column.extend([np.nan] * missing)


class Thinned(NamedTuple):
    """A series with one point for each pixel column."""

    mean: Numbers
    low: Numbers
    high: Numbers


def thin(x: Numbers, series: Iterable[tuple[str, Numbers]], *, pixels: int) -> tuple[Numbers, dict[str, Thinned]]:
    """Return mean, smallest and largest value of each series in each pixel column that holds values.

    `x` must not fall. One series is in memory at a time.
    """
    begins = _begins(x, pixels)
    ends = np.append(begins[1:], len(x)) - 1
    found = {}
    for name, y in series:
        is_known = ~np.isnan(y)
        sums, counts = np.add.reduceat(np.where(is_known, y, 0.0), begins), np.add.reduceat(is_known, begins, dtype=int)
        means = np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)
        found[name] = Thinned(means, np.fmin.reduceat(y, begins), np.fmax.reduceat(y, begins))
    return (x[begins] + x[ends]) / 2.0, found


def extremes(x: Numbers, y: Numbers, *, pixels: int) -> npt.NDArray[np.int64]:
    """Return the places of the smallest and the largest y of each pixel column, in order; `x` must not fall."""
    if len(x) <= 2 * pixels:
        return np.arange(len(x))
    begins = _begins(x, pixels)
    pixel = np.zeros(len(x), np.int64)
    pixel[begins[1:]] = 1
    order = np.lexsort((y, np.cumsum(pixel)))
    ends = np.append(begins[1:], len(x)) - 1
    return np.unique(np.concatenate([order[begins], order[ends]]))


def _begins(x: Numbers, pixels: int) -> npt.NDArray[np.int64]:
    """Return where each pixel column that holds values begins."""
    width = x[-1] - x[0]
    share = (x - x[0]) / width if width > 0 else np.arange(len(x)) / len(x)
    pixel = np.minimum((share * pixels).astype(np.int64), pixels - 1)
    return np.concatenate([[0], np.flatnonzero(np.diff(pixel)) + 1])


def shortened(values: Numbers, digits: int) -> Numbers:
    """Return numbers with so many significant digits, which makes JSON short."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        power = np.floor(np.log10(np.abs(values)))
        factor = 10.0 ** (digits - 1 - np.where(np.isfinite(power), power, 0.0))
        short = np.rint(values * factor) / factor
    return np.where(np.isfinite(short), short, values)

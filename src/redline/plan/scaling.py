"""How fast a training is with 1, 2, 3 … cores: measured for some counts, estimated for the others, and marked so.

Between two measured counts, the time of a step is taken to be linear in 1 / cores. Beyond the last one it follows
Amdahl's law: a serial part, which stays, and a parallel part, which the cores share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from redline.bench.measuring import rate_of

MEASURED, INTERPOLATED, EXTRAPOLATED = "measured", "interpolated", "extrapolated"
LEAST_GAIN = 0.05  # a core that adds less does not pay
MOST_CORES = 1_024
MOST_COUNTS = 8  # that are measured: each is a training of its own, in memory beside the others


@dataclass(frozen=True)
class CoresSpeed:
    """Steps per second with so many cores."""

    steps_per_s: float
    low_steps_per_s: float
    high_steps_per_s: float
    basis: str  # MEASURED, INTERPOLATED or EXTRAPOLATED

    def to_json(self) -> dict[str, Any]:
        """Return it as one plain object."""
        return dict(vars(self))


@dataclass(frozen=True)
class Enough:
    """After how many cores a further one adds less than 5 %."""

    cores: int
    next_gain: float  # of the speed, by the next core
    basis: str  # of the speed with that next core


@dataclass(frozen=True)
class Scaling:
    """Speeds by the number of cores; one core is always among the measured."""

    measured: Mapping[int, CoresSpeed]

    @property
    def most_cores(self) -> int:
        """The most cores that were measured."""
        return max(self.measured)

    @property
    def serial_s(self) -> float:
        """Seconds of a step that more cores don't shorten."""
        return self._fit[0]

    @property
    def parallel_s(self) -> float:
        """Seconds of a step that cores share; 0 where the measured ones gained nothing from each other."""
        return self._fit[1]

    @property
    def _fit(self) -> tuple[float, float]:
        """Fit Amdahl's law to the measured times, by least squares with neither part below 0."""
        seconds = [1.0 / speed.steps_per_s for speed in self.measured.values()]
        shares = [1.0 / cores for cores in self.measured]
        if len(shares) == 1:
            return seconds[0], 0.0
        parallel_s, serial_s = np.polyfit(shares, seconds, 1).tolist()
        if parallel_s <= 0.0:
            return float(np.mean(seconds)), 0.0
        if serial_s < 0.0:
            return 0.0, float(np.dot(shares, seconds) / np.dot(shares, shares))
        return serial_s, parallel_s

    def speed(self, cores: int) -> CoresSpeed:
        """Return the speed with so many cores: measured, or estimated from what was measured."""
        if cores in self.measured:
            return self.measured[cores]
        return self._between(cores) if cores < self.most_cores else self._beyond(cores)

    def enough(self) -> Enough:
        """Return the cores after which the next one no longer pays."""
        for cores in range(1, MOST_CORES):
            following = self.speed(cores + 1)
            gain = following.steps_per_s / self.speed(cores).steps_per_s - 1.0
            if gain < LEAST_GAIN:
                return Enough(cores, gain, following.basis)
        raise ValueError("Amdahl's law never gains 5 % by each of a thousand cores")

    def _between(self, cores: int) -> CoresSpeed:
        fewer = max(count for count in self.measured if count < cores)
        more = min(count for count in self.measured if count > cores)
        weight = (1 / cores - 1 / more) / (1 / fewer - 1 / more)  # 1 with `fewer` cores, 0 with `more`

        def rate(name: str) -> float:
            seconds = [1.0 / getattr(self.measured[count], name) for count in (fewer, more)]
            return float(1.0 / np.dot(seconds, (weight, 1.0 - weight)))

        return CoresSpeed(rate("steps_per_s"), rate("low_steps_per_s"), rate("high_steps_per_s"), INTERPOLATED)

    def _beyond(self, cores: int) -> CoresSpeed:
        """Estimate by Amdahl's law; the low end is that further cores add nothing."""
        last, (serial_s, parallel_s) = self.measured[self.most_cores], self._fit
        gain = (serial_s + parallel_s / self.most_cores) / (serial_s + parallel_s / cores)
        return replace(
            last,
            steps_per_s=last.steps_per_s * gain,
            high_steps_per_s=last.high_steps_per_s * gain,
            basis=EXTRAPOLATED,
        )


def scaling_of(rounds: Mapping[int, Sequence[float]]) -> Scaling:
    """Return the scaling that rounds of measured steps per second show, by the number of cores."""
    found = {cores: rate_of(rates) for cores, rates in sorted(rounds.items())}
    return Scaling(
        {cores: CoresSpeed(rate["median"], rate["low"], rate["high"], MEASURED) for cores, rate in found.items()}
    )


def counts_to_measure(usable_cores: int, wanted: Sequence[int]) -> tuple[int, ...]:
    """Choose how many cores to measure with: 1 and all, those that are wanted, and the small ones between them."""
    possible = [*wanted, *range(1, usable_cores)]
    chosen = [1, usable_cores]
    for cores in possible:
        if cores <= usable_cores and cores not in chosen and len(chosen) < MOST_COUNTS:
            chosen.append(cores)
    return tuple(sorted(set(chosen)))

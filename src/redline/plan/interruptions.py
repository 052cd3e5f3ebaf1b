"""What interruptions of a preemptible machine cost: the time that is lost, with a 90 % interval.

Their number is Poisson's, so many per hour of training. Each takes a restart, and without notice the work since the
last checkpoint, which is anything between nothing and a whole interval. Pure arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import erf, exp, lgamma, log, sqrt

from redline.errors import UserError

TAIL = 0.05  # below the interval, and above it
BEYOND_SDS = 8.0  # of a Poisson count: what lies further from its mean never happens
NARROW = 1e-9  # share of the largest loss by which a quantile may be off
MANY = 10_000.0  # interruptions, whose sum is normal
TAIL_SDS = 1.6448536269514722  # of a normal distribution, to its 95 % quantile


@dataclass(frozen=True)
class Loss:
    """Hours that interruptions take: on average, and 5 % and 95 % quantiles."""

    mean_hours: float
    low_hours: float
    high_hours: float


@dataclass(frozen=True)
class Interruptions:
    """How often a machine is taken away, and what that costs each time."""

    per_hour: float  # of training: restarts don't count
    restart_s: float  # until training goes on: a new machine, the program's start, its replay memory
    checkpoint_minutes: float
    has_notice: bool  # SIGTERM first: a checkpoint is saved and nothing is lost

    def __post_init__(self) -> None:
        if self._redone_share >= 1:
            raise UserError(
                f"{self.per_hour:g} interruptions per hour, each of which undoes {30 * self.most_lost_hours:.1f} min, "
                "leave no progress: use fewer --interruptions-per-hour or fewer --checkpoint-minutes"
            )

    @property
    def most_lost_hours(self) -> float:
        """Work that one interruption can undo."""
        return 0.0 if self.has_notice else self.checkpoint_minutes / 60

    @property
    def _redone_share(self) -> float:
        """The part of each hour of training that is lost again."""
        return self.per_hour * self.most_lost_hours / 2

    @property
    def each_hours(self) -> float:
        """What one interruption costs on average."""
        return self.most_lost_hours / 2 + self.restart_s / 3600

    def loss(self, work_hours: float) -> Loss:
        """Return the time lost while so many hours are trained, on average work × rate × cost of each.

        The upper end also counts what comes while lost work is done again.
        """
        expected = self.per_hour * work_hours
        return Loss(
            mean_hours=expected * self.each_hours,
            low_hours=self._quantile(expected, TAIL),
            high_hours=self._quantile(expected / (1 - self._redone_share), 1 - TAIL),
        )

    def _quantile(self, expected: float, share: float) -> float:
        """Return the loss that is exceeded in a share 1 − `share` of all cases."""
        if expected > MANY:
            sd_hours = sqrt(expected * (self.each_hours**2 + self.most_lost_hours**2 / 12))
            return expected * self.each_hours + (TAIL_SDS if share > TAIL else -TAIL_SDS) * sd_hours
        counts = _poisson(expected)
        low_hours, high_hours = 0.0, max(counts) * (self.most_lost_hours + self.restart_s / 3600)
        if self._share_within(0.0, counts) >= share:
            return 0.0
        narrow_hours = NARROW * high_hours
        while high_hours - low_hours > narrow_hours:
            middle_hours = (low_hours + high_hours) / 2
            if self._share_within(middle_hours, counts) < share:
                low_hours = middle_hours
            else:
                high_hours = middle_hours
        return high_hours

    def _share_within(self, hours: float, counts: dict[int, float]) -> float:
        """Return how likely it is that no more than `hours` are lost."""
        return sum(chance * self._chance_within(hours, count) for count, chance in counts.items())

    def _chance_within(self, hours: float, count: int) -> float:
        """Return the same for a known number of interruptions; their sum is nearly normal, and exact for 0 and 1."""
        over_hours = hours - count * self.restart_s / 3600
        if count == 0 or self.most_lost_hours == 0:
            return float(over_hours >= 0)
        if count == 1:
            return min(max(over_hours / self.most_lost_hours, 0.0), 1.0)
        sd_hours = self.most_lost_hours * sqrt(count / 12)
        return (1 + erf((over_hours - count * self.most_lost_hours / 2) / (sd_hours * sqrt(2)))) / 2


def _poisson(expected: float) -> dict[int, float]:
    """Return how likely each number of events is, those left out that never happen."""
    reach = BEYOND_SDS * sqrt(expected) + BEYOND_SDS
    counts = range(max(int(expected - reach), 0), int(expected + reach) + 1)
    if expected == 0:
        return {0: 1.0}
    return {count: exp(count * log(expected) - expected - lgamma(count + 1)) for count in counts}

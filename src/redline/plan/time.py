"""How long a list of games will train, and what that costs: hours, days and money, before and after.

Pure arithmetic in decimal numbers. Halves are rounded up, and hours before anything that follows from them: days are
the rounded hours ÷ 24, and money is the rounded hours × the price. A total has the rounded sum of the hours; its days
and its money follow from that. Interruptions of a preemptible machine are drawn, always the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from math import exp, expm1, sqrt
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from redline.envs.game_lists import GameLimit
from redline.errors import UserError

HOURS_PER_DAY = 24
SECONDS_PER_HOUR = 3600
MOST_DIGITS = 4  # after the point: a third of a second
TAIL = 0.05  # of all trainings, that lose less than the low end, and more than the high end
DRAWS = 40_000
MOST_PER_INTERVAL = 2.0  # interruptions between two checkpoints
MANY = 1e12  # interruptions: so many are normal, and too many for a whole number
USUAL_GROWTH = Decimal("2.14")  # of an episode of Breakout: 700 steps of a beginner, 1,500 of a good player

RateUnit = Literal["episodes/h", "steps/s"]
RateSource = Literal["given", "measured", "run"]


@dataclass(frozen=True)
class Speed:
    """How fast a game is trained, and how long its episodes are."""

    rate: Decimal
    unit: RateUnit
    source: RateSource
    low_rate: Decimal
    high_rate: Decimal
    episode_steps: Decimal | None = None  # mean, now; None if unknown
    warmup_steps: int = 0  # at the start, at a speed of their own
    warmup_steps_per_s: Decimal | None = None


@dataclass(frozen=True)
class Span:
    """Hours as expected, and between which they should lie."""

    hours: Decimal
    low: Decimal
    high: Decimal

    @property
    def digits(self) -> int:
        """Digits after the point that leave three significant ones of what is expected."""
        return digits_for(self.hours)


@dataclass(frozen=True)
class Interruptions:
    """How often a machine is taken away, and what that costs each time."""

    per_hour: float  # of training: restarts don't count
    restart_s: float  # until training goes on: saving, a new machine, the program's start, its replay memory
    checkpoint_minutes: float
    has_notice: bool  # SIGTERM first: a checkpoint is saved and nothing is lost

    def __post_init__(self) -> None:
        if self._per_interval >= MOST_PER_INTERVAL:
            raise UserError(
                f"{self.per_hour:g} interruptions per hour, each of which undoes {30 * self._most_undone_hours:.1f} "
                "min, undo more than they leave: use fewer --interruptions-per-hour or fewer --checkpoint-minutes"
            )

    @property
    def _most_undone_hours(self) -> float:
        """Work that one interruption can undo: anything up to a whole interval, about half of it on average."""
        return 0.0 if self.has_notice else self.checkpoint_minutes / 60

    @property
    def _per_interval(self) -> float:
        return self.per_hour * self._most_undone_hours

    @property
    def _training_per_work(self) -> float:
        """Hours of training for each hour that is kept: what is done again may be interrupted too."""
        return expm1(self._per_interval) / self._per_interval if self._per_interval else 1.0

    def lost(self, work: Span) -> Span:
        """Return the hours that are lost until so many are kept: what is done again, and the restarts."""
        restarts_hours = self.per_hour * self._training_per_work * self.restart_s / 3600
        return Span(
            hours=exact(float(work.hours) * (self._training_per_work - 1 + restarts_hours)),
            low=exact(self._quantile(float(work.low), TAIL)),
            high=exact(self._quantile(float(work.high), 1 - TAIL)),
        )

    def _quantile(self, work_hours: float, share: float) -> float:
        """Return the hours that are not exceeded in a share of all cases."""
        rng = np.random.default_rng(0)
        counts = self._draw_counts(work_hours, rng)
        hours = counts * (self.restart_s / 3600)
        if self._per_interval:
            # the part of an interval before an interruption that comes in it; the sum of many is nearly normal
            shares = (rng.permutation(DRAWS) + 0.5) / DRAWS  # evenly: their mean counts millions of times
            undone = -np.log1p(shares * expm1(-self._per_interval)) / self._per_interval
            others = np.maximum(counts - 1, 0)
            undone_by_others = others * undone.mean() + np.sqrt(others) * undone.std() * rng.standard_normal(DRAWS)
            undone = np.clip(undone_by_others, 0, others) + (counts > 0) * undone
            hours += undone * self._most_undone_hours
        return float(np.quantile(hours, share, method="inverted_cdf"))

    def _draw_counts(self, work_hours: float, rng: np.random.Generator) -> npt.NDArray[np.float64]:
        """Return numbers of interruptions: Poisson's, or failures of intervals until enough of them are kept."""
        expected = self.per_hour * self._training_per_work * work_hours
        is_kept = exp(-self._per_interval)
        if expected >= MANY:
            return rng.normal(expected, sqrt(expected / is_kept), DRAWS)
        if not self._per_interval or not work_hours:
            return rng.poisson(expected, DRAWS).astype(np.float64)
        return rng.negative_binomial(work_hours / self._most_undone_hours, is_kept, DRAWS).astype(np.float64)


@dataclass(frozen=True)
class Bill:
    """What decides the cost beside the speed of each game."""

    price_per_hour: Decimal | None = None
    concurrency: int = 1  # games that train at a time on one machine
    interruptions: Interruptions | None = None
    episode_growth: Decimal = USUAL_GROWTH  # how much longer episodes may become; only `high` counts on it


@dataclass(frozen=True)
class Row:
    """One game; hours are unrounded, and those that interruptions take are in them."""

    game: GameLimit
    speed: Speed
    steps: Decimal | None  # None where neither the limit nor the length of an episode tells
    work: Span  # without interruptions
    span: Span  # with them
    lost: Span  # them alone


@dataclass(frozen=True)
class Projection:
    """All games together."""

    rows: tuple[Row, ...]
    bill: Bill
    span: Span  # of the machine: until the last game ends
    lost: Span  # to interruptions
    run_hours: Decimal  # the sum over the games, however many train at a time

    @property
    def digits(self) -> int:
        """Digits of the hours after the point: the same in all rows, three significant ones in their sum."""
        return digits_for(self.run_hours)

    def hours(self, exact: Decimal) -> Decimal:
        """Return hours as they are shown."""
        return rounded(exact, self.digits)

    def days(self, exact: Decimal) -> Decimal:
        """Return the days that follow from shown hours."""
        return rounded(self.hours(exact) / HOURS_PER_DAY, self.digits + 1)

    def cost(self, exact: Decimal, *, share: Decimal = Decimal(1)) -> Decimal | None:
        """Return the money that shown hours cost; `share` is a game's part of an hour's price."""
        price = self.bill.price_per_hour
        return None if price is None else rounded(self.hours(exact) * price * share, 2 if self.digits else 0)

    @property
    def share(self) -> Decimal:
        """The part of an hour's price that each running game pays."""
        return Decimal(1) if self.bill.concurrency == 1 else self.span.hours / self.run_hours

    def to_json(self) -> dict[str, Any]:
        """Return rows and total as plain data, rounded as they are shown."""
        return {"rows": [self._row(row) for row in self.rows], "total": self._total()}

    def _row(self, row: Row) -> dict[str, Any]:
        return {
            "game": row.game.game,
            "limit": row.game.limit,
            "unit": row.game.unit,
            "steps": None if row.steps is None else int(rounded(row.steps, 0)),
            "rate": plain(row.speed.rate),
            "rate_unit": row.speed.unit,
            "rate_source": row.speed.source,
            "episode_steps": None if row.speed.episode_steps is None else plain(row.speed.episode_steps),
            **self._spans(row.span, row.lost, share=self.share),
        }

    def _total(self) -> dict[str, Any]:
        units = {row.game.unit for row in self.rows}
        return {
            "games": len(self.rows),
            "limit": sum(row.game.limit or 0 for row in self.rows) if len(units) == 1 else None,
            "unit": units.pop() if len(units) == 1 else None,
            **self._spans(self.span, self.lost, share=Decimal(1)),
            "run_hours": plain(self.hours(self.run_hours)),
            "machine_hours": plain(self.hours(self.span.hours)),
        }

    def _spans(self, span: Span, lost: Span, *, share: Decimal) -> dict[str, Any]:
        cost = self.cost(span.hours, share=share)
        return {
            "hours": plain(self.hours(span.hours)),
            "low": plain(self.hours(span.low)),
            "high": plain(self.hours(span.high)),
            "days": plain(self.days(span.hours)),
            "cost": None if cost is None else plain(cost),
            "lost_hours": plain(rounded(lost.hours, lost.digits)),
            "lost_low": plain(rounded(lost.low, lost.digits)),
            "lost_high": plain(rounded(lost.high, lost.digits)),
            "exact_hours": float(span.hours),
        }


def project(games: Sequence[GameLimit], speeds: Mapping[str, Speed], bill: Bill) -> Projection:
    """Return the hours of every game and of all; `speeds` has one for each game."""
    rows = tuple(_project_row(game, speeds[game.game], bill) for game in games)
    works = [row.work for row in rows]
    machine = Span(*(busy_hours([getattr(work, end) for work in works], bill.concurrency) for end in _ENDS))
    span, lost = _with_interruptions(machine, bill.interruptions)
    return Projection(rows, bill, span, lost, run_hours=sum((row.span.hours for row in rows), Decimal()))


_ENDS = ("hours", "low", "high")


def _project_row(game: GameLimit, speed: Speed, bill: Bill) -> Row:
    growth = bill.episode_growth if game.unit == "episodes" else Decimal(1)
    work = Span(
        hours=hours_of(game, speed, speed.rate),
        low=hours_of(game, speed, speed.high_rate),
        high=hours_of(game, speed, speed.low_rate, growth=growth),
    )
    span, lost = _with_interruptions(work, bill.interruptions)
    length, limit = speed.episode_steps, Decimal(game.limit or 0)
    steps = limit if game.unit == "steps" else None if length is None else limit * length
    return Row(game, speed, steps, work, span, lost)


def hours_of(game: GameLimit, speed: Speed, rate: Decimal, *, growth: Decimal = Decimal(1)) -> Decimal:
    """Return the hours until the limit at a rate, if episodes become `growth` times as long."""
    limit, length = Decimal(game.limit or 0), speed.episode_steps
    if game.unit == "episodes" and speed.unit == "episodes/h":
        return limit * growth / rate  # however long they are
    if game.unit == "steps" and speed.unit == "steps/s":
        return _hours_of_steps(limit, speed, rate)
    if length is None:
        raise UserError(
            f"the limit of {game.game} is in {game.unit} and the rate in {speed.unit}: "
            "say how long an episode is with --episode-steps"
        )
    if game.unit == "steps":
        return limit / length / rate
    return _hours_of_steps(limit * length * growth, speed, rate)


def _hours_of_steps(steps: Decimal, speed: Speed, steps_per_s: Decimal) -> Decimal:
    seconds = Decimal()
    if speed.warmup_steps_per_s:
        warmup_steps = min(steps, Decimal(speed.warmup_steps))
        seconds, steps = warmup_steps / speed.warmup_steps_per_s, steps - warmup_steps
    return (seconds + steps / steps_per_s) / SECONDS_PER_HOUR


def _with_interruptions(work: Span, interruptions: Interruptions | None) -> tuple[Span, Span]:
    """Return the hours with those that are lost, and the lost ones alone."""
    if interruptions is None:
        return work, Span(Decimal(), Decimal(), Decimal())
    lost = interruptions.lost(work)
    return Span(work.hours + lost.hours, work.low + lost.low, work.high + lost.high), lost


def busy_hours(hours: Sequence[Decimal], concurrency: int) -> Decimal:
    """Return when the last game ends if so many train at a time, the longest ones first."""
    ends = [Decimal()] * min(concurrency, len(hours))
    for run_hours in sorted(hours, reverse=True):
        ends[ends.index(min(ends))] += run_hours
    return max(ends)


@dataclass(frozen=True)
class Saving:
    """What an after saves of a before."""

    ratio: Decimal  # of the unrounded hours
    hours: Decimal
    days: Decimal
    cost: Decimal | None
    percent: Decimal  # of the hours

    def describe(self) -> str:
        """Say how much faster or slower it is, and what that is in hours, days and money."""
        way = "less" if self.hours >= 0 else "more"
        told = [f"{abs(self.hours):,} hours", f"{abs(self.days):,} days"]
        if self.cost is not None:
            told.append(f"${abs(self.cost):,}")
        return f"{self.ratio} × as fast: {', '.join(told)} {way} ({abs(self.percent)} %)"

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {name: None if value is None else plain(value) for name, value in vars(self).items()}


def compare(before: Projection, after: Projection) -> Saving:
    """Return what is saved, as the difference of the totals that are shown."""
    old, new = before.span.hours, after.span.hours
    days = before.days(old) - after.days(new)
    old_cost, new_cost = before.cost(old), after.cost(new)
    return Saving(
        ratio=rounded(old / new, digits_for(old / new, significant=2)),
        hours=before.hours(old) - after.hours(new),
        days=rounded(days, digits_for(days)),
        cost=None if old_cost is None or new_cost is None else old_cost - new_cost,
        percent=rounded(100 * (old - new) / old, 0),
    )


# Numbers


def exact(value: float) -> Decimal:
    """Return the decimal number that a float stands for."""
    return Decimal(repr(float(value)))


def rounded(value: Decimal, digits: int) -> Decimal:
    """Round to so many digits after the point, halves up, as a table of prices does."""
    return value.quantize(Decimal(1).scaleb(-digits), rounding=ROUND_HALF_UP)


def digits_for(value: Decimal, *, significant: int = 3) -> int:
    """Return the digits after the point that leave at least three significant ones."""
    return min(max(significant - 1 - value.adjusted(), 0), MOST_DIGITS) if value else 0


def plain(value: Decimal) -> int | float:
    """Return a number as JSON has it: whole ones as integers."""
    return int(value) if value == value.to_integral_value() else float(value)

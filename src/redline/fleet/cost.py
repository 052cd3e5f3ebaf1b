"""Hours and money of a fleet, per game: what it took, and what the same work would have taken before.

The arithmetic is that of `redline plan time`. Hours are those of the clock while a run trained: evaluations,
checkpoints and work that a kill undid are in them. The price is that of all machines together, for the time in which
at least one run trained.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from redline.envs.game_lists import GameLimit, LimitUnit
from redline.errors import UserError
from redline.fleet.listing import FLEET_JSON
from redline.fleet.results import Result, busy_spans
from redline.fleet.slots import RUNS
from redline.fleet.spans import union_of
from redline.plan.run_speed import RunSpeed, read_run_speed
from redline.plan.time import SECONDS_PER_HOUR, Bill, Projection, Row, Saving, Speed, compare, exact, project
from redline.plan.time import Span as Hours
from redline.report.hardware_use import Span
from redline.report.run_files import load_run
from redline.runs.locating import find_recorded

NOTHING = Hours(Decimal(), Decimal(), Decimal())
MAX_TOLD = 3  # runs of a baseline that tell no speed


@dataclass(frozen=True)
class Work:
    """What a fleet has done in one game."""

    game: str
    steps: int
    episodes: int
    hours: Decimal  # of all its runs


@dataclass(frozen=True)
class Baseline:
    """How fast games were trained before: one rate for all, or the runs that tell."""

    speeds: Mapping[str, Speed]  # by game
    unit: LimitUnit  # in which the same work is counted
    concurrency: int
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Cost:
    """Hours and money of a fleet, and of the same work before."""

    after: Projection
    before: Projection | None
    saved: Saving | None
    notes: tuple[str, ...]


def works_of(results: Iterable[Result]) -> list[Work]:
    """Return what was done in each game, by all runs of all versions of the list."""
    found: dict[str, Work] = {}
    for result in results:
        if (finding := result.finding) is not None and finding.busy_s > 0:
            before = found.get(result.slot.game, Work(result.slot.game, 0, 0, Decimal()))
            found[result.slot.game] = Work(
                game=before.game,
                steps=before.steps + (finding.summary.steps or 0),
                episodes=before.episodes + finding.summary.episodes,
                hours=before.hours + exact(finding.busy_s) / SECONDS_PER_HOUR,
            )
    return list(found.values())


def paid_hours(results: Iterable[Result]) -> tuple[Decimal, int]:
    """Return the hours in which at least one run trained, and the most runs at a time."""
    findings = [result.finding for result in results if result.finding is not None]
    total_s, most = union_of([span for finding in findings for span in finding.busy])
    return exact(total_s) / SECONDS_PER_HOUR, max(most, 1)


def spent(
    works: Sequence[Work], machine: Decimal, concurrency: int, price: Decimal | None, unit: LimitUnit
) -> Projection:
    """Return what a fleet took, in the form of a plan whose hours are known."""
    bill = Bill(price_per_hour=price, concurrency=concurrency)
    run_hours = sum((work.hours for work in works), Decimal())
    return Projection(tuple(_row(work, unit) for work in works), bill, _known(machine), NOTHING, run_hours)


def cost_of(
    works: Sequence[Work], machine: Decimal, concurrency: int, price: Decimal | None, baseline: Baseline | None
) -> Cost | None:
    """Return hours and money, and those of the same work before; None if nothing was trained."""
    if not works:
        return None
    if baseline is None:
        return Cost(spent(works, machine, concurrency, price, "steps"), None, None, ())
    after = spent(works, machine, concurrency, price, baseline.unit)
    bill = Bill(price_per_hour=price, concurrency=baseline.concurrency, episode_growth=Decimal(1))
    before = project([row.game for row in after.rows], baseline.speeds, bill)
    saved = compare(before, after) if before.span.hours else None  # nothing of the unit was done
    return Cost(after, before, saved, baseline.notes)


def baseline_runs(path: Path) -> tuple[list[RunSpeed], int, tuple[str, ...]]:
    """Return the speeds of the runs of a fleet or a folder, how many trained at a time, and what can't be told."""
    home = path / RUNS if (path / FLEET_JSON).is_file() else path
    folders = find_recorded(home) if home.is_dir() else []
    speeds, troubles, spans = [], list[str](), list[Span]()
    for folder in folders:
        try:
            speeds.append(read_run_speed(str(folder)))
            spans += busy_spans(load_run(folder).clock)
        except UserError as error:
            troubles.append(str(error))
    if not speeds:
        why = troubles[0] if troubles else f"{path} holds no run: name a fleet, a folder of runs or a rate"
        raise UserError(f"--baseline: {why}")
    notes = [f"left out of the baseline: {trouble}" for trouble in troubles[:MAX_TOLD]]
    if len(troubles) > MAX_TOLD:
        notes.append(f"left out of the baseline: {len(troubles) - MAX_TOLD} more runs")
    return speeds, union_of(spans)[1], tuple(notes)


def _row(work: Work, unit: LimitUnit) -> Row:
    done = work.episodes if unit == "episodes" else work.steps
    hours = _known(work.hours)
    rate = done / work.hours if unit == "episodes" else done / work.hours / SECONDS_PER_HOUR
    length = None if not work.episodes else Decimal(work.steps) / work.episodes
    speed = Speed(rate, "episodes/h" if unit == "episodes" else "steps/s", "run", rate, rate, length)
    return Row(GameLimit(work.game, done, unit), speed, Decimal(work.steps), hours, hours, NOTHING)


def _known(hours: Decimal) -> Hours:
    return Hours(hours, hours, hours)

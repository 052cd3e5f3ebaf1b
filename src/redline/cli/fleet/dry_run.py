"""`redline fleet start --dry-run`: which run starts when, how long all of them take, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Protocol

from redline.cli.flags import parse_train
from redline.cli.output import Printing, give, print_table
from redline.cli.plan.rates import UNITS, given_speeds, read_number
from redline.envs.game_lists import GameLimit
from redline.errors import UserError
from redline.fleet.listing import Listing, Slot, ordered
from redline.plan.run_speed import read_run_speed, speeds_by_game
from redline.plan.time import HOURS_PER_DAY, Speed, digits_for, exact, hours_of, plain, rounded
from redline.runtime.config import Job

MINUTES_PER_HOUR = 60


class RateFlags(Printing, Protocol):
    """How fast runs train, as the user says."""

    @property
    def rate(self) -> str | None: ...
    @property
    def unit(self) -> str | None: ...
    @property
    def from_(self) -> Sequence[str]: ...


@dataclass(frozen=True)
class Turn:
    """A run in the schedule; None where its hours, or those of one before it, are not known."""

    slot: Slot
    hours: Decimal | None
    begin: Decimal | None
    is_most: bool  # it may end earlier


def give_schedule(listing: Listing, flags: RateFlags) -> int:
    """Print the schedule, and return the exit code."""
    jobs = jobs_of(listing.slots)
    speeds, notes = asked_speeds(sorted({slot.game for slot in listing.slots}), flags)
    hours = {slot.name: hours_of_job(slot, jobs[slot.name], speeds) for slot in listing.slots}
    concurrency = listing.wishes.concurrency or 1
    if not listing.wishes.concurrency:
        notes.append("1 run at a time: --concurrency auto finds out what fits when the first run has begun")
    if any(found is None for found, _ in hours.values()):
        notes.append("some hours are unknown: use --max-minutes, --rate 900 --unit episodes, or --from RUN")
    turns = schedule(ordered(listing.slots, listing.wishes.order), hours, concurrency)
    facts = facts_of(listing, turns, concurrency) | {"assumptions": notes}
    return give(facts, flags, show)


def jobs_of(slots: Sequence[Slot]) -> dict[str, Job]:
    """Return what each slot does, by its name; seeds do not matter here."""
    known: dict[str, Job] = {}
    for slot in slots:
        flags = str([slot.game, slot.algorithm, slot.settings])
        if flags not in known:
            known[flags] = parse_train(slot.flags).job
    return {slot.name: known[str([slot.game, slot.algorithm, slot.settings])] for slot in slots}


def asked_speeds(games: Sequence[str], flags: RateFlags) -> tuple[Mapping[str, Speed], list[str]]:
    """Return how fast each game trains, as far as the user says it."""
    if flags.unit not in (None, *UNITS):
        raise UserError(f"--unit is {flags.unit!r}: use {' or '.join(UNITS)}")
    limits = [GameLimit(game) for game in games]
    if flags.rate is not None and flags.from_:
        raise UserError("--rate and --from both tell the rate: keep one")
    if flags.rate is not None:
        return given_speeds(limits, read_number("rate", flags.rate), flags.unit), []
    if flags.unit is not None:
        raise UserError("--unit does nothing here: leave it out, or add --rate")
    return speeds_by_game(limits, [read_run_speed(name) for name in flags.from_]) if flags.from_ else ({}, [])


def hours_of_job(slot: Slot, job: Job, speeds: Mapping[str, Speed]) -> tuple[Decimal | None, bool]:
    """Return the hours until the first limit, and whether a target may end the run earlier."""
    limits, speed = job.limits, speeds.get(slot.game)
    steps = limits.total_steps(frames_per_step=job.env.skip)
    found = [] if limits.max_minutes is None else [exact(limits.max_minutes) / MINUTES_PER_HOUR]
    ends = [GameLimit(slot.game, steps, "steps"), GameLimit(slot.game, limits.max_episodes, "episodes")]
    unknown = 0
    for end in ends if speed is not None else []:
        if end.limit is not None and speed is not None:
            try:
                found.append(hours_of(end, speed, speed.rate))
            except UserError:  # the length of an episode is not known
                unknown += 1
    has_target = limits.target_return is not None or limits.target_eval_return is not None
    is_open = speed is None and limits.max_minutes is not None
    return min(found, default=None), has_target or is_open or unknown > 0


def schedule(slots: Sequence[Slot], hours: Mapping[str, tuple[Decimal | None, bool]], concurrency: int) -> list[Turn]:
    """Return when each run starts if so many train at a time: the next one as soon as one ends."""
    ends: list[Decimal | None] = [Decimal()] * min(concurrency, len(slots))
    turns = []
    for slot in slots:
        known = [end for end in ends if end is not None]
        begin = min(known, default=None)
        own, is_most = hours[slot.name]
        turns.append(Turn(slot, own, begin, is_most))
        if begin is not None:
            ends[ends.index(begin)] = None if own is None else begin + own
    return turns


def facts_of(listing: Listing, turns: Sequence[Turn], concurrency: int) -> dict[str, Any]:
    """Return the schedule as plain data, rounded as it is shown."""
    known = [turn.hours for turn in turns if turn.hours is not None]
    run_hours = sum(known, Decimal())
    digits = digits_for(run_hours)
    ends = [turn.begin + turn.hours for turn in turns if turn.begin is not None and turn.hours is not None]
    is_known = len(ends) == len(turns)
    total = rounded(max(ends), digits) if is_known else None
    price = listing.wishes.price_per_hour
    cost = None if total is None or price is None else rounded(total * exact(price), 2)
    share = None if cost is None or not run_hours else cost / run_hours
    rows = [_row(turn, digits, None if share is None else share) for turn in turns]
    return {
        "dry_run": True,
        "fleet": listing.name,
        "slots": rows,
        "total": {
            "runs": len(turns),
            "concurrency": concurrency,
            "hours": None if total is None else plain(total),
            "days": None if total is None else plain(rounded(total / HOURS_PER_DAY, digits + 1)),
            "cost": None if cost is None else plain(cost),
            "run_hours": plain(rounded(run_hours, digits)) if is_known else None,
        },
    }


def _row(turn: Turn, digits: int, price_of_run_hour: Decimal | None) -> dict[str, Any]:
    slot, hours = turn.slot, turn.hours
    return {
        "slot": slot.name,
        "game": slot.game,
        "algorithm": slot.algorithm,
        "seed": slot.seed,
        "begins_after_hours": None if turn.begin is None else plain(rounded(turn.begin, digits)),
        "hours": None if hours is None else plain(rounded(hours, digits)),
        "may_end_earlier": turn.is_most,
        "cost": None if hours is None or price_of_run_hour is None else plain(rounded(hours * price_of_run_hour, 2)),
    }


def show(facts: Mapping[str, Any], *, plain: bool) -> None:
    """Print the schedule as a table, and what it assumes."""
    has_cost = facts["total"]["cost"] is not None
    head = ("slot", "begins after", "hours", *(["$"] if has_cost else []))
    rows = [
        (
            row["slot"],
            _shown(row["begins_after_hours"], " h"),
            ("≤ " if row["may_end_earlier"] and row["hours"] is not None else "") + _shown(row["hours"]),
            *([_shown(row["cost"])] if has_cost else []),
        )
        for row in facts["slots"]
    ]
    print_table(head, rows, plain=plain, numeric=range(1, len(head)))
    total = facts["total"]
    runs = f"{total['runs']} run{'s' * (total['runs'] != 1)}"
    words = [f"{runs}, {total['concurrency']} at a time: {_shown(total['hours'])} hours"]
    words += [f"{_shown(total['days'])} days"] + ([f"${total['cost']:,}"] if has_cost else [])
    print(", ".join(words))
    for note in facts["assumptions"]:
        print(f"assumed: {note}")


def _shown(value: float | None, unit: str = "") -> str:
    return "unknown" if value is None else f"{value:,}{unit}"

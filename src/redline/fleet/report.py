"""The report of a fleet, as a page and as Markdown, from its files alone: also while it trains, or of what is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

from redline.fleet.aggregate import LEVEL as OVERALL_LEVEL
from redline.fleet.aggregate import Value
from redline.fleet.cost import Baseline, Cost, Work, cost_of, paid_hours, works_of
from redline.fleet.list_sections import change_sections, settings_section
from redline.fleet.listing import Listing, read_listing
from redline.fleet.logbook import Logbook, read_logbook
from redline.fleet.results import NOT_READ, Result, read_results
from redline.fleet.score_sections import colours_of, learning_section, overall_section, score_section
from redline.fleet.scores import Change, Overall, Score, changes_of, overall_of, scores_of
from redline.fleet.slots import STATES, State
from redline.fleet.story_sections import (
    cost_notes,
    cost_section,
    describe_counts,
    incident_section,
    slot_section,
)
from redline.report.markdown import write_markdown
from redline.report.parts import Cell, Notice, Part, Tiles, amount, render_parts
from redline.report.statistics import LEVEL

REPORT_HTML = "report.html"
MAX_PROBLEMS = 100
MANY = 10_000_000

FindBaseline = Callable[[Sequence[Work]], Baseline | None]


@dataclass(frozen=True)
class FleetReport:
    """Everything that a report says, as values."""

    folder: Path
    listing: Listing
    results: Sequence[Result]
    logbook: Logbook
    scores: Sequence[Score]
    overall: Sequence[Overall]
    shared: Sequence[Overall]  # over the games that all algorithms have
    changes: Sequence[Change]
    cost: Cost | None

    def html(self, *, unix_s: float) -> str:
        """Return the page as one file."""
        return render_parts(self._title, self._subtitle, self._parts(), unix_s=unix_s)

    def markdown(self, *, unix_s: float) -> str:
        """Return the same as Markdown."""
        return write_markdown(self._title, self._subtitle, self._parts(), unix_s=unix_s)

    @property
    def _states(self) -> list[State]:
        return [result.status.state for result in self.results if result.is_listed]

    @property
    def _title(self) -> str:
        return f"Fleet {self.listing.name}"

    @property
    def _subtitle(self) -> str:
        slots = self.listing.slots
        kinds = {
            "game": {slot.game for slot in slots},
            "algorithm": {slot.algorithm for slot in slots},
            "seed": {str(slot.seed) for slot in slots},
        }
        words = [
            f"{kind} {next(iter(names))}" if len(names) == 1 else f"{len(names)} {kind}s"
            for kind, names in kinds.items()
        ]
        return " · ".join([*words, describe_counts(self.results)])

    def _parts(self) -> list[Part]:
        colours = colours_of(self.scores)
        notices = [self._given_up(), self._problems()]
        return [
            Tiles(self._tiles()),
            *(notice for notice in notices if notice.sentences),
            score_section(self.scores, colours),
            overall_section(self.overall, self.shared, self.scores, colours),
            *change_sections(self.changes, self.listing),
            *learning_section(self.scores, colours),
            cost_section(self.cost),
            incident_section(self.logbook, self.results),
            slot_section(self.results, self.logbook),
            settings_section(self.listing.versions[-1]),
        ]

    def _tiles(self) -> list[tuple[str, str, str]]:
        summaries = [result.finding.summary for result in self.results if result.finding is not None]
        again = sum(max(result.status.attempt - 1, 0) for result in self.results)
        facts = [
            ("done", f"{self._states.count('done'):,} of {len(self._states):,}", describe_counts(self.results)),
            ("steps", _many(sum(summary.steps or 0 for summary in summaries)), f"in {len(summaries):,} runs"),
            ("episodes", _many(sum(summary.episodes for summary in summaries)), "while training"),
        ]
        if self.cost is not None:
            total = self.cost.after.to_json()["total"]
            facts.append(("hours", f"{total['hours']:,}", f"{total['run_hours']:,} hours of runs"))
            if total["cost"] is not None:
                facts.append(("money", f"${total['cost']:,}", f"${self.cost.after.bill.price_per_hour:,} per hour"))
        facts.append(("started again", amount(again), "after a kill, a stop or an error"))
        facts.append(("incidents", amount(len(self.logbook.incidents)), "of runs and machine"))
        if len(self.listing.versions) > 1:
            facts.append(("versions of the list", amount(len(self.listing.versions)), ""))
        return facts

    def _given_up(self) -> Notice:
        found = [
            Cell(result.slot.name, note=f"attempt {result.status.attempt}: {result.status.reason}", is_strong=True)
            for result in self.results
            if result.status.state == "given up"
        ]
        return Notice("Given up", found, css="missing")

    def _problems(self) -> Notice:
        """Say what can't be read; what a run merely lacks, such as a monitor, is on the run's own page."""
        told = [
            Cell(result.slot.name, note=problem, is_strong=True)
            for result in self.results
            if result.finding is not None and result.left_out == NOT_READ
            for problem in result.finding.files.problems
        ]
        sentences: list[str | Cell] = [*self.logbook.problems, *told]
        return Notice("What can't be read", sentences[:MAX_PROBLEMS], css="missing")

    def to_json(self) -> dict[str, Any]:
        """Return the same numbers as plain data."""
        return {
            "fleet": self.listing.name,
            "folder": str(self.folder),
            "counts": {state: self._states.count(state) for state in STATES},
            "slots": [_slot_facts(result) for result in self.results],
            "scores": [_score_facts(score) for score in self.scores],
            "overall": [_overall_facts(one) for one in self.overall],
            "overall_of_shared_games": [_overall_facts(one) for one in self.shared],
            "changes": [_change_facts(change) for change in self.changes],
            "cost": None if self.cost is None else _cost_facts(self.cost),
            "incidents": list(self.logbook.incidents),
            "packing": list(self.logbook.packing),
            "supervisor": {
                "core_share": self.logbook.supervisor_share,
                "rss_bytes": self.logbook.supervisor_rss_bytes,
            },
            "problems": list(self.logbook.problems),
        }


def read_report(
    folder: Path,
    *,
    price_per_hour: Decimal | None = None,
    find_baseline: FindBaseline = lambda works: None,
    progress: Callable[[float], None] = lambda share: None,
) -> FleetReport:
    """Read a fleet and work out its report; the price is that of the list if none is given."""
    listing = read_listing(folder)
    results = read_results(folder, listing, progress=progress)
    scores = scores_of(results)
    overall, shared = overall_of(scores)
    works = works_of(results)
    hours, concurrency = paid_hours(results)
    if price_per_hour is None and listing.wishes.price_per_hour is not None:
        price_per_hour = Decimal(repr(listing.wishes.price_per_hour))
    baseline = find_baseline(works) if works else None
    return FleetReport(
        folder=folder,
        listing=listing,
        results=results,
        logbook=read_logbook(folder),
        scores=scores,
        overall=overall,
        shared=shared,
        changes=changes_of(listing, results),
        cost=cost_of(works, hours, concurrency, price_per_hour, baseline),
    )


def _many(count: int) -> str:
    """Return a count that fits into a tile."""
    return amount(count) if count < MANY else amount(count / 1e6, "million")


def _slot_facts(result: Result) -> dict[str, Any]:
    summary = None if result.finding is None else result.finding.summary
    return {
        **result.status.to_json(),
        "version": result.since,
        "is_listed": result.is_listed,
        "score": None if summary is None else summary.final_return,
        "score_episodes": 0 if summary is None else summary.final_return_episodes,
        "evaluation": None if summary is None else summary.evaluation_return,
        "evaluation_episodes": 0 if summary is None else summary.evaluation_episodes,
        "steps": result.status.steps if summary is None or summary.steps is None else summary.steps,
        "hours": None if result.finding is None else result.finding.busy_s / 3600,
        "not_counted": result.left_out or None,
        "problems": [] if result.finding is None else list(result.finding.files.problems),
    }


def _score_facts(score: Score) -> dict[str, Any]:
    return {
        "game": score.game,
        "kind": score.kind,
        "is_listed": score.is_listed,
        "n": len(score.values),
        "slots": len(score.results),
        "mean": score.mean,
        "interval": _ends(score.interval, LEVEL),
        "values": score.values,
        "human_normalised": score.normalised,
        "evaluations": score.evaluations,
    }


def _overall_facts(one: Overall) -> dict[str, Any]:
    values = {name: _value_facts(value) for name, value in one.found.values.items()}
    facts = {"algorithm": one.name, "games": list(one.games), "runs": one.found.runs, **values}
    return facts | {"no_interval": one.found.why_no_interval or None}


def _change_facts(change: Change) -> dict[str, Any]:
    games = [
        {**vars(game), "difference": game.difference, "interval": _ends(game.interval, LEVEL)} for game in change.games
    ]
    return {
        "version": change.number,
        "unix_s": change.version.unix_s,
        "command": change.version.command,
        "settings": list(change.settings),
        "new_slots": change.new_slots,
        "games": games,
        "human_normalised": None if change.overall is None else _value_facts(change.overall),
    }


def _cost_facts(cost: Cost) -> dict[str, Any]:
    return {
        **cost.after.to_json(),
        "baseline": None if cost.before is None else cost.before.to_json(),
        "saved": None if cost.saved is None else {**cost.saved.to_json(), "words": cost.saved.describe()},
        "assumptions": list(cost_notes(cost)),
    }


def _value_facts(value: Value) -> dict[str, Any]:
    return {"value": value.point, "interval": _ends(value.interval, OVERALL_LEVEL)}


def _ends(interval: tuple[float, float] | None, level: float) -> dict[str, float] | None:
    return None if interval is None else {"low": interval[0], "high": interval[1], "level": level}

"""What a page shows of how a fleet went: hours and money, incidents, and its slots."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from redline.fleet.cost import Cost
from redline.fleet.incidents import NO_LEARNING
from redline.fleet.logbook import Logbook
from redline.fleet.results import Result
from redline.fleet.slots import STATES
from redline.jsonl import Row, plain_text
from redline.plan.time import Projection
from redline.report.parts import (
    DASH,
    Cell,
    Content,
    Notice,
    Part,
    Section,
    Table,
    Text,
    amount,
    moment,
    share,
    size,
    span,
)
from redline.report.rows import moment as moment_of
from redline.report.rows import number, text
from redline.report.run_page import headline, newest_evaluation

MAX_ROWS = 1_000  # of a table of what happened, the newest


def describe_counts(results: Sequence[Result]) -> str:
    """Say how many slots of the newest list are in which state."""
    states = [result.status.state for result in results if result.is_listed]
    return ", ".join(f"{states.count(state)} {state}" for state in STATES if state in states)


# Hours and money


def cost_section(cost: Cost | None) -> Section:
    """Return hours, days and money per game, beside those before."""
    if cost is None:
        return Section("Hours and money", [Text("Nothing has been trained yet.")], "cost", link="hours and money")
    before = None if cost.before is None else cost.before.to_json()
    after = cost.after.to_json()
    has_price = cost.after.bill.price_per_hour is not None
    unit = cost.after.rows[0].game.unit
    side = ["hours", "days", *(["money"] if has_price else [])]
    head = ["game", unit, f"{unit} per hour" if unit == "episodes" else "steps/s", *side]
    if before is not None:
        head = [*head[:2], *(f"{name}, before" for name in side), *(f"{name}, now" for name in head[2:])]
    rows: list[list[Content]] = []
    for place, row in enumerate(after["rows"]):
        old = [] if before is None else _hours(before["rows"][place], cost.before, has_price)
        rate = [amount(row["rate"])]
        rows.append([row["game"], f"{row['limit']:,}", *old, *rate, *_hours(row, cost.after, has_price)])
    old = [] if before is None else _hours(before["total"], cost.before, has_price)
    total = f"{after['total']['limit']:,}"
    rows.append([Cell("total", is_strong=True), total, *old, DASH, *_hours(after["total"], cost.after, has_price)])
    parts: list[Part] = [Table("Hours and money", head, rows, numeric=range(1, len(head)))]
    if cost.saved is not None:
        parts.append(Text(f"{cost.saved.describe()}."))
    if notes := cost_notes(cost):
        parts.append(Notice("What this assumes", list(notes), css="caveats"))
    return Section("Hours and money", parts, "cost", lead=_cost_lead(cost), link="hours and money")


def _hours(row: dict[str, object], projection: Projection | None, has_price: bool) -> list[Content]:
    digits = 0 if projection is None else projection.digits
    cells: list[Content] = [f"{row['hours']:,.{digits}f}", f"{row['days']:,.{digits + 1}f}"]
    return [*cells, f"${row['cost']:,.{2 if digits else 0}f}"] if has_price else cells


def _cost_lead(cost: Cost) -> str:
    bill = cost.after.bill
    together = f" Up to {bill.concurrency} ran at a time, and shared the price." if bill.concurrency > 1 else ""
    price = "" if bill.price_per_hour is None else f" An hour costs ${bill.price_per_hour:,} ($: your currency)."
    return (
        "Hours of a game are those of its runs by the clock: evaluations, checkpoints and what was done again are in "
        f"them. The total is the time in which at least one run trained.{together}{price}"
    )


def cost_notes(cost: Cost) -> tuple[str, ...]:
    """Return what the hours before assume."""
    if cost.before is None:
        return ()
    rates = {(row.speed.rate, row.speed.unit) for row in cost.before.rows if row.speed.source == "given"}
    told = [f"before: the same work at {rate.normalize():,f} {unit} in every game" for rate, unit in rates]
    if not rates:
        told.append("before: the same work at the speeds of the baseline's runs")
    most = cost.before.bill.concurrency
    told.append(f"before: {'one game' if most == 1 else f'{most} games'} at a time")
    return (*told, *cost.notes)


# Incidents


def incident_section(logbook: Logbook, results: Sequence[Result]) -> Section:
    """Return every incident, the newest last."""
    found = logbook.incidents
    running = {result.slot.name for result in results if result.status.state == "running"}
    link = f"incidents ({len(found):,})" if found else "incidents"
    if not found:
        return Section("Incidents", [Text("None on record.")], "incidents", link=link)
    rows = [
        (
            Cell(moment(moment_of(row)), note=_until(row, running)),
            text(row, "kind") or DASH,
            text(row, "slot") or DASH,
            Cell(text(row, "message") or DASH, note=text(row, "remedy") or ""),
        )
        for row in found[-MAX_ROWS:]
    ]
    lead = f"The newest {MAX_ROWS:,} of {len(found):,}." if len(found) > MAX_ROWS else ""
    table = Table("Incidents", ("when", "kind", "slot", "what happened, and what to do"), rows, css="card long wrap")
    return Section("Incidents", [table], "incidents", lead=lead, link=link)


def _until(row: Row, running: Collection[str]) -> str:
    """Say when an incident was over; one of a run that is over needs no word."""
    if over_unix_s := moment_of(row, "over_unix_s"):
        return f"over at {moment(over_unix_s)}"
    is_open = row.get("lasts") and row.get("kind") != NO_LEARNING and (row.get("slot") or "") in {"", *running}
    return "not over when it was looked at last" if is_open else ""


# What ran


def slot_section(results: Sequence[Result], logbook: Logbook) -> Section:
    """Return every slot with its state, attempts and reason, and every turn that a slot took."""
    head = ("slot", "version", "state", "attempts", "return, last 100", "evaluation", "steps", "trained", "why", "run")
    rows: list[Sequence[Content]] = []
    for result in results:
        summary = None if result.finding is None else result.finding.summary
        rows.append(
            (
                Cell(result.slot.name, note="" if result.is_listed else "no longer on the list"),
                str(result.since),
                result.status.state,
                amount(result.status.attempt),
                DASH if summary is None else headline(summary),
                DASH if summary is None else newest_evaluation(summary),
                amount(result.status.steps if summary is None else summary.steps),
                DASH if result.finding is None else span(result.finding.busy_s),
                result.status.reason or DASH,
                DASH if result.finding is None else result.finding.files.path.name,
            )
        )
    columns = [place for place in range(len(head)) if place != 1 or len({row[1] for row in rows}) > 1]
    cells = [[row[place] for place in columns] for row in rows]
    names = [head[place] for place in columns]
    numeric = [names.index(name) for name in ("attempts", "return, last 100", "evaluation", "steps", "trained")]
    parts: list[Part] = [Table("Slots", names, cells, numeric=numeric, css="card long")]
    if sentences := _supervision(logbook):
        parts.append(Notice("How it was run", sentences, css="caveats"))
    if logbook.turns:
        parts.append(_turns(logbook.turns))
    return Section("What ran", parts, "slots", lead=f"{describe_counts(results)}.", link="what ran")


def _supervision(logbook: Logbook) -> list[str]:
    told = [plain_text(why) for why in logbook.packing[-1:]]
    if logbook.supervisor_share is not None:
        memory = "" if not logbook.supervisor_rss_bytes else f" and at most {size(logbook.supervisor_rss_bytes)}"
        told.append(f"the supervisor took {share(logbook.supervisor_share)} of a core{memory}")
    return told


def _turns(turns: Sequence[Row]) -> Section:
    rows = [
        (
            moment(moment_of(row)),
            text(row, "slot") or DASH,
            text(row, "state") or DASH,
            amount(number(row, "attempt")),
            amount(number(row, "steps")),
            text(row, "host") or DASH,
            amount(number(row, "exit_code")),
            text(row, "reason") or DASH,
        )
        for row in turns[-MAX_ROWS:]
    ]
    head = ("when", "slot", "state", "attempt", "steps", "host", "exit code", "why")
    lead = f"The newest {MAX_ROWS:,} of {len(turns):,}." if len(turns) > MAX_ROWS else ""
    table = Table("Turns of the slots", head, rows, numeric=(3, 4, 6), css="card long")
    note = f"{len(turns):,} turns"
    return Section("Every turn of a slot", [table], "turns", lead=lead, is_folded=True, note=note)

"""The tables of `redline plan time`, and what they assume: a figure without that would promise too much."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from redline.cli.output import print_table
from redline.plan.time import Projection, Row, Saving, digits_for, exact, rounded
from redline.units import duration

Plain = Mapping[str, Any]  # a row or a total, rounded


def show_plan(
    after: Projection, before: Projection | None, saving: Saving | None, notes: Sequence[str], *, plain: bool
) -> None:
    """Print one table, or before and after with what is saved, and what they assume."""
    if before is not None:
        print("before")
        _show(before, plain=plain)
        print("\nafter")
    _show(after, plain=plain)
    if saving is not None:
        print(f"\n{saving.describe()}")
    for note in notes:
        print(f"assumed: {note}")


def _show(projection: Projection, *, plain: bool) -> None:
    content = projection.to_json()
    rows, total = content["rows"], content["total"]
    columns = [name for name in ("range", "lost", "cost") if _is_told(name, [*rows, total])]
    head = ("game", "limit", "rate", "hours", *(HEADS[name] for name in ("range", "lost") if name in columns), "days")
    head = (*head, HEADS["cost"]) if "cost" in columns else head
    lines = [
        (row["game"], _limit(row), f"{_thousands(row['rate'])} {row['rate_unit']}", *_cells(row, projection, columns))
        for row in rows
    ]
    lines.append(("total", _limit(total), "", *_cells(total, projection, columns)))
    print_table(head, lines, plain=plain, numeric=range(1, len(head)))
    if projection.bill.concurrency > 1:
        run_hours, machine_hours = (f"{total[name]:,.{projection.digits}f}" for name in ("run_hours", "machine_hours"))
        print(f"{run_hours} hours of runs in {machine_hours} hours of the machine, which are paid")


HEADS = {"range": "low–high", "lost": "of them lost", "cost": "cost"}


def _is_told(column: str, rows: Sequence[Plain]) -> bool:
    """Tell whether a column says anything."""
    if column == "range":
        return any(row["low"] != row["high"] for row in rows)
    return any(row["lost_hours"] for row in rows) if column == "lost" else rows[-1]["cost"] is not None


def _cells(row: Plain, projection: Projection, columns: Sequence[str]) -> tuple[str, ...]:
    digits = projection.digits
    cells = [f"{row['hours']:,.{digits}f}"]
    if "range" in columns:
        cells.append(f"{row['low']:,.{digits}f}–{row['high']:,.{digits}f}")
    if "lost" in columns:
        lost_digits = digits_for(exact(row["lost_hours"]))
        lost, low, high = (f"{row[name]:,.{lost_digits}f}" for name in ("lost_hours", "lost_low", "lost_high"))
        cells.append(f"{lost} ({low}–{high})")
    cells.append(f"{row['days']:,.{digits + 1}f}")
    if "cost" in columns:
        cells.append(f"${row['cost']:,.{2 if digits else 0}f}")
    return tuple(cells)


def _limit(row: Plain) -> str:
    return "" if row["limit"] is None else f"{row['limit']:,} {row['unit']}"


def _thousands(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"


# What is assumed


def assumptions(projection: Projection) -> list[str]:
    """Return every assumption once."""
    found = [words for row in projection.rows for words in (*_length(row, projection), *_warmup(row))]
    return [*dict.fromkeys(found), *_of_the_machine(projection)]


def _length(row: Row, projection: Projection) -> Iterator[str]:
    """Say how long episodes are taken to be, where a limit or a rate counts them."""
    speed, growth = row.speed, rounded(projection.bill.episode_growth, 2).normalize()
    longer = f"; high: {growth:f} × as long, because a better player may play longer" if growth > 1 else ""
    if row.game.unit == "episodes" and speed.unit == "episodes/h":
        yield f"episodes stay as long as when {speed.rate:,} an hour were played{longer}"
    elif speed.episode_steps is not None and (row.game.unit == "episodes" or speed.unit == "episodes/h"):
        length = f"{rounded(speed.episode_steps, 0):,} steps"
        yield f"an episode of {row.game.game} has {length}" + (longer if row.game.unit == "episodes" else "")


def _warmup(row: Row) -> Iterator[str]:
    speed = row.speed
    if speed.warmup_steps and speed.warmup_steps_per_s:
        rate = rounded(speed.warmup_steps_per_s, 0)
        yield f"{row.game.game}: the first {speed.warmup_steps:,} steps are a warm-up at {rate:,} steps/s"


def _of_the_machine(projection: Projection) -> Iterator[str]:
    bill, interruptions = projection.bill, projection.bill.interruptions
    if bill.concurrency > 1:
        yield (
            f"{bill.concurrency} games train at a time, the longest first, each as fast as its rate says: "
            "a rate that was measured alone is too high beside others"
        )
    if interruptions is not None:
        undone = (
            "none is lost, because SIGTERM comes first"
            if interruptions.has_notice
            else f"on average {duration(interruptions.checkpoint_minutes * 30)} of work is lost without notice"
        )
        yield (
            f"{interruptions.per_hour:g} interruptions per hour of training; after each, training goes on in "
            f"{duration(interruptions.restart_s)}, and {undone}"
        )

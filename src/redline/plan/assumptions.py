"""What a projection of hours assumes, in sentences: a figure without them would promise too much."""

from __future__ import annotations

from collections.abc import Iterator

from redline.plan.time import Projection, Row, rounded
from redline.units import duration


def assumptions(projection: Projection) -> list[str]:
    """Return every assumption once."""
    found = [words for row in projection.rows for words in (*_length(row, projection), *_warmup(row))]
    return [*dict.fromkeys(found), *_of_the_machine(projection)]


def _length(row: Row, projection: Projection) -> Iterator[str]:
    """Say how long episodes are taken to be, where a limit or a rate counts them."""
    speed, growth = row.speed, rounded(projection.bill.episode_growth, 2).normalize()
    longer = f"; high: {growth} × as long, because a better player may play longer" if growth > 1 else ""
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

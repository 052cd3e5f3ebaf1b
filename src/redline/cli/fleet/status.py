"""`redline fleet status`: how the runs of a fleet stand, from its files alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from redline.cli.output import Printing, give, print_table
from redline.cli.parsing import Json, Plain, parse
from redline.fleet.health import read_health
from redline.fleet.listing import read_listing
from redline.fleet.slots import STATES, SlotStatus, State, read_statuses
from redline.report.parts import moment
from redline.units import duration, number

MOST_INCIDENTS = 5  # in the text: --json has them all
Folder = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DIR", help="The folder of a fleet.")]


@dataclass(frozen=True)
class StatusFlags:
    """Show how the runs of a fleet stand. Nothing is changed, and no supervisor is needed."""

    dir: Folder
    plain: Plain = False
    json: Json = False


def run(args: Sequence[str]) -> int:
    """Print how the slots stand."""
    flags = parse(StatusFlags, args, prog="redline fleet status")
    return give_status(flags.dir, flags)


def give_status(folder: Path, flags: Printing, **more: object) -> int:
    """Print how the slots of a fleet stand as a table, or as JSON with more facts."""
    statuses = read_statuses(folder, read_listing(folder))
    counts = {state: sum(status.state == state for status in statuses) for state in STATES}
    slots = [status.to_json() for status in statuses]
    health = read_health(folder)
    facts = {"slots": slots, "counts": counts, "health": health, **more}
    return give(facts, flags, lambda _, plain: show(statuses, counts, health["incidents"], plain=plain))


def show(
    statuses: Sequence[SlotStatus], counts: Mapping[State, int], incidents: Sequence[Mapping[str, Any]], *, plain: bool
) -> None:
    """Print a table of the slots, a line of counts, and the newest incidents."""
    head = ("slot", "state", "attempt", "steps", "time", "mean-100", "reason")
    rows = [
        (
            status.slot.name,
            status.state,
            str(status.attempt),
            f"{status.steps:,}",
            "–" if status.time_s is None else duration(status.time_s),
            number(status.mean_return_100),
            status.reason,
        )
        for status in statuses
    ]
    print_table(head, rows, plain=plain, numeric=(2, 3, 4, 5))
    print(", ".join(f"{count} {state}" for state, count in counts.items() if count))
    if len(incidents) > MOST_INCIDENTS:
        print(f"{len(incidents):,} incidents, the newest:")
    for incident in incidents[-MOST_INCIDENTS:]:
        words = filter(None, (incident["slot"], incident["message"], incident["remedy"]))
        print(f"{moment(incident['unix_s'])}  {': '.join(words)}")

"""`redline fleet status`: how the runs of a fleet stand, from its files alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from redline.cli.output import give, print_table
from redline.cli.parsing import Json, Plain, parse
from redline.fleet.health import read_health
from redline.fleet.listing import read_listing
from redline.fleet.slots import STATES, read_statuses
from redline.units import number

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
    return give(status_of(flags.dir), flags, show)


def status_of(folder: Path) -> dict[str, Any]:
    """Return slots, counts of their states, and what is wrong."""
    statuses = read_statuses(folder, read_listing(folder))
    counts = {state: sum(status.state == state for status in statuses) for state in STATES}
    return {"slots": [status.to_json() for status in statuses], "counts": counts, "health": read_health(folder)}


def show(facts: Mapping[str, Any], *, plain: bool) -> None:
    """Print a table of the slots and a line of counts."""
    head = ("slot", "state", "attempt", "steps", "mean-100", "reason")
    rows = [
        (
            row["slot"],
            row["state"],
            str(row["attempt"]),
            f"{row['steps']:,}",
            number(row["mean_return_100"]),
            row["reason"],
        )
        for row in facts["slots"]
    ]
    print_table(head, rows, plain=plain, numeric=(2, 3, 4))
    print(", ".join(f"{count} {state}" for state, count in facts["counts"].items() if count))

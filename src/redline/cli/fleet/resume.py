"""`redline fleet resume`: go on with a fleet that was stopped or killed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import tyro

from redline.cli.fleet.start import typed_wishes
from redline.cli.fleet.status import Folder
from redline.cli.fleet.supervising import supervise_and_tell
from redline.cli.parsing import Json, Plain, parse
from redline.fleet.listing import Listing, change_listing


@dataclass(frozen=True)
class ResumeFlags:
    """Go on with a fleet, after Ctrl-C, a kill or a reboot: runs that are done stay done, all others go on."""

    dir: Folder
    retry: bool = False
    """Let runs go on that were given up."""
    engine: str | None = None
    """Where the runs train from now on: local, ray or slurm."""
    engine_address: Annotated[str | None, tyro.conf.arg(name="engine.address")] = None
    """HOST:PORT of a Ray cluster."""
    concurrency: str | None = None
    """Runs at a time from now on: a number, or auto."""
    stagger_s: str | None = None
    """Seconds between the starts of two runs from now on."""
    order: str | None = None
    """Which runs start first from now on: longest-first, as-listed or shortest-first."""
    price_per_hour: str | None = None
    """Price of an hour of all machines together."""
    plain: Plain = False
    json: Json = False


def with_wishes(listing: Listing, wishes: Mapping[str, Any]) -> Listing:
    """Return a list with some other wishes."""
    return msgspec.structs.replace(listing, wishes=msgspec.structs.replace(listing.wishes, **wishes))


def run(args: Sequence[str]) -> int:
    """Supervise the runs that are left, and return the exit code."""
    flags = parse(ResumeFlags, args, prog="redline fleet resume")
    if wishes := typed_wishes(flags):
        change_listing(flags.dir, lambda listing: with_wishes(listing, wishes))
    return supervise_and_tell(flags.dir, flags, retry=flags.retry)

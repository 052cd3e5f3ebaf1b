"""`redline fleet stop`: save and stop all runs of a fleet, wherever they train."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from redline.cli.fleet.display import counts_of
from redline.cli.fleet.status import Folder, status_of
from redline.cli.main import DONE, FAILED
from redline.cli.output import command, print_json
from redline.cli.parsing import Json, Plain, parse
from redline.fleet.lease import Watcher, ask_to_stop, read_holder
from redline.fleet.listing import read_listing
from redline.fleet.slots import SUPERVISOR, Book
from redline.fleet.supervisor import STOP_S

LOOK_S = 0.25
MARGIN_S = 10.0  # for the supervisor to end after its runs


@dataclass(frozen=True)
class StopFlags:
    """Ask the supervisor and all runs to save themselves and end, and wait until they have."""

    dir: Folder
    plain: Plain = False
    json: Json = False


def run(args: Sequence[str]) -> int:
    """Stop a fleet, and return 0 when nothing of it runs any more, else 1."""
    flags = parse(StopFlags, args, prog="redline fleet stop")
    left = stop(flags.dir)
    if flags.json:
        print_json(status_of(flags.dir))
        return FAILED if left else DONE
    listing = read_listing(flags.dir)
    print(f"fleet {flags.dir}: {counts_of(Book(flags.dir).statuses(listing))}")
    if left:
        print(f"after {STOP_S:.0f} s these still run: {', '.join(left)}")
        return FAILED
    print(f"continue with: {command('fleet', 'resume', flags.dir)}")
    return DONE


def stop(folder: Path) -> list[str]:
    """Ask whoever runs to stop; return the names of those that did not within the time to save."""
    listing, book, watcher = read_listing(folder), Book(folder), Watcher(folder)
    asked: set[tuple[str, int]] = set()
    end_s = time.monotonic() + STOP_S + MARGIN_S
    while True:
        supervisor = read_holder(folder, SUPERVISOR)
        is_supervised = supervisor is not None and watcher.is_alive(supervisor)
        running = [status for status in map(book.status, listing.all_slots.values()) if status.state == "running"]
        # the supervisor first: else it would start what was stopped
        holders = [supervisor] if is_supervised else [status.holder for status in running]
        for holder in holders:
            if holder is not None and (key := (holder.slot, holder.epoch)) not in asked:
                asked.add(key)
                ask_to_stop(folder, holder)
        if not is_supervised and not running:
            return []
        if time.monotonic() > end_s:
            return [status.slot.name for status in running] + ([SUPERVISOR] if is_supervised else [])
        time.sleep(LOOK_S)

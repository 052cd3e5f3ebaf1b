"""Supervises a fleet in the foreground, and tells how it ended: for `start` and `resume`."""

from collections.abc import Sequence
from pathlib import Path

from redline.cli.displays import open_display
from redline.cli.fleet.display import REFRESH_PER_S, FleetDisplay
from redline.cli.fleet.script import give_script
from redline.cli.fleet.status import give_status
from redline.cli.main import DONE, FAILED, RESUMABLE, FailureError
from redline.cli.output import Printing, command
from redline.cli.process import StopRequest
from redline.fleet.engines import open_engine
from redline.fleet.lease import LeaseHeldError, Watcher, describe, read_holder, wait_until_free
from redline.fleet.listing import read_listing
from redline.fleet.slots import RUNS, SUPERVISOR
from redline.fleet.supervisor import Summary, supervise, write_report


def supervise_and_tell(folder: Path, flags: Printing, *, retry: bool = False) -> int:
    """Train all slots of a fleet to their ends, write the report, and return the exit code."""
    listing = read_listing(folder)
    if listing.wishes.engine == "slurm":
        return give_script(folder, listing, flags)
    title = f"redline fleet · {listing.name} · {len(listing.slots)} runs"
    with StopRequest() as stop, open_display(title, flags, refresh_per_second=REFRESH_PER_S) as shown:
        display = FleetDisplay(shown, title)
        engine = open_engine(folder, listing.wishes)
        try:
            summary = supervise(
                folder,
                engine,
                display,
                lambda: stop.reason() or ("output closed" if shown.is_closed else None),
                retry=retry,
            )
        except LeaseHeldError as error:
            refuse_second_supervisor(folder)
            raise FailureError(f"{folder} is supervised already: {error}") from error
        finally:
            engine.close()
        if summary.stopped is None:
            display.note("writing the report …")
            display.note(write_report(folder))
    display.close()
    give_status(folder, flags, stopped=summary.stopped)
    if not flags.json:
        for line in closing_lines(folder, summary):
            display.note(line)
    return exit_code(summary)


def refuse_second_supervisor(folder: Path) -> None:
    """Refuse to change how a fleet is placed under a supervisor that is at work."""
    try:
        wait_until_free(folder, SUPERVISOR, Watcher(folder))
    except LeaseHeldError:
        holder = read_holder(folder, SUPERVISOR)
        who = "another process" if holder is None else describe(holder)
        raise FailureError(f"{folder} is supervised already: by {who}") from None


def exit_code(summary: Summary) -> int:
    """Return 0 if all is done, 75 if it was stopped, 1 if runs were given up."""
    if summary.stopped is not None:
        return RESUMABLE
    return FAILED if summary.counts["given up"] else DONE


def closing_lines(folder: Path, summary: Summary) -> Sequence[str]:
    """Return what came of a fleet, and what to type next."""
    lines = [f"fleet {folder}; the runs: {command('report', folder / RUNS)}"]
    if summary.stopped is not None:
        return [*lines, f"stopped: {summary.stopped}; continue with: {command('fleet', 'resume', folder)}"]
    if summary.counts["given up"]:
        lines.append(f"try those again with: {command('fleet', 'resume', folder, '--retry')}")
    return lines

"""`redline fleet run`: train one slot in this process; what every engine starts."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated

import tyro

from redline.cli.fleet.status import Folder
from redline.cli.main import FailureError, main
from redline.cli.parsing import Json, Plain, parse
from redline.cli.process import SHORT_SPIN, choose_spin
from redline.fleet.lease import LeaseHeldError
from redline.fleet.runner import run_slot
from redline.runs.host import usable_cores


@dataclass(frozen=True)
class SlotFlags:
    """Train one slot of a fleet: begin its run, or go on with it."""

    dir: Folder
    slot: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SLOT")]
    threads: int = 1
    """Threads of a run that is new."""
    plain: Plain = False
    json: Json = False


def run(args: Sequence[str]) -> int:
    """Train a slot, and return the exit code of its run."""
    flags = parse(SlotFlags, args, prog="redline fleet run")
    # others may train beside it: their threads need the time that spinning takes
    spin = SHORT_SPIN if flags.threads < usable_cores() else choose_spin(["train"])
    for name, value in spin.items():
        os.environ.setdefault(name, value)
    import_module("redline.cli.train")  # before the lease: nothing can beat while a library is loaded from a slow disk
    try:
        return run_slot(flags.dir, flags.slot, flags.threads, main)
    except LeaseHeldError as error:
        raise FailureError(str(error)) from error

"""Where the runs of a fleet are started: this machine, a Ray cluster, or a Slurm cluster."""

from importlib import import_module
from pathlib import Path

from redline.errors import UserError
from redline.fleet.engines.base import Engine
from redline.fleet.engines.local import LocalEngine
from redline.fleet.listing import Wishes


def open_engine(folder: Path, wishes: Wishes) -> Engine:
    """Return the engine that starts the runs of a fleet; UserError if it can't be reached or must not be used."""
    if wishes.engine == "ray":
        engine: Engine = import_module("redline.fleet.engines.ray").open_ray(folder, wishes)
        return engine
    if wishes.engine == "slurm":
        raise UserError("slurm starts the runs of this fleet itself: submit the script that redline fleet start prints")
    return LocalEngine(folder)

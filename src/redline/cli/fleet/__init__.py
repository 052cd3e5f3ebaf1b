"""`redline fleet`: many runs from one list, side by side, and what came of them."""

from collections.abc import Sequence
from functools import partial
from importlib import import_module

from redline.cli.parsing import run_subject

# each is a module here, with a function run(args) -> exit code
SUBJECTS = {
    "start": "train a list of games, algorithms and seeds to the end",
    "status": "how its runs stand",
    "resume": "go on with a fleet that was stopped or killed",
    "stop": "save and stop all runs",
    "change": "give some runs other settings, or take that back",
    "report": "a page of what ran, what it reached and what it cost",
}
HIDDEN = {"run": "slot", "check": "checking"}  # what Redline starts by itself


def run(args: Sequence[str]) -> int:
    """Do what the first word names, and return the exit code."""
    if args[:1] and args[0] in HIDDEN:
        return _run(HIDDEN[args[0]], args[1:])
    return run_subject("fleet", args, {name: (partial(_run, name), summary) for name, summary in SUBJECTS.items()})


def _run(module: str, args: Sequence[str]) -> int:
    code: int = import_module(f"redline.cli.fleet.{module}").run(args)
    return code

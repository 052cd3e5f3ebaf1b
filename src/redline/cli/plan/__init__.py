"""`redline plan`: what a run will need, or what suits this machine, before it starts."""

from collections.abc import Sequence
from functools import partial
from importlib import import_module

from redline.cli.main import failing
from redline.cli.parsing import run_subject
from redline.envs.vector import EnvError

# each is a module here, with a function run(args) -> exit code
SUBJECTS = {
    "memory": "a replay memory in every layout, and what fits this machine",
    "disk": "what a whole run will leave on disk",
    "speed": "the settings with which a training runs fastest here, found by measuring",
    "time": "hours, days and money of training a list of games, before and after",
    "machines": "which machine of your list a training should be paid for",
    "run": "one run on one page: memory, disk, cores, time, money, and what does not fit",
}
MODULES = {"run": "one_run"}  # a module named run would take the place of the function below


def run(args: Sequence[str]) -> int:
    """Plan what the first word names, and return the exit code."""
    with failing(EnvError):
        return run_subject("plan", args, {name: (partial(_run, name), summary) for name, summary in SUBJECTS.items()})


def _run(subject: str, args: Sequence[str]) -> int:
    code: int = import_module(f"redline.cli.plan.{MODULES.get(subject, subject)}").run(args)
    return code

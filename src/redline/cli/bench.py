"""`redline bench SUBJECT`: measurements that a user can repeat; each subject has a module of its own."""

from collections.abc import Sequence
from importlib import import_module

from redline.cli.main import DONE
from redline.errors import UserError, unknown_name

SUBJECTS = {
    "replay": "the replay memory, beside other libraries' on the same data",
    "env": "the env layer, beside the bare emulators",
    "learner": "updates per second, beside what the machine's arithmetic allows",
    "train": "whole trainings, beside the machine's limit and other libraries at the same work",
    "ladder": "from the textbook loop to Redline, one thing switched on at a time",
}


def run(args: Sequence[str]) -> int:
    """Measure what the first word names, and return the exit code."""
    at = next((i for i, arg in enumerate(args) if arg not in ("--plain", "--json")), len(args))
    if at == len(args) or (args[at].startswith("-") and args[at] not in ("--help", "-h")):
        raise UserError(f"bench needs a subject, one of {', '.join(SUBJECTS)}: redline bench train")
    if args[at] in ("--help", "-h"):
        print(_help())
        return DONE
    if args[at] not in SUBJECTS:
        raise unknown_name("bench", args[at], SUBJECTS)
    code: int = import_module(f"redline.cli.bench_{args[at]}").run([*args[:at], *args[at + 1 :]])
    return code


def _help() -> str:
    subjects = "\n".join(f"  {name:<10}{summary}" for name, summary in SUBJECTS.items())
    return f"usage: redline bench SUBJECT [options]\n\n{subjects}\n\nredline bench SUBJECT --help shows the options"

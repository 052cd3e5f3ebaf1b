"""`redline bench SUBJECT`: finds the subject, and prints or writes the one object that every bench makes."""

import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from redline.cli.main import DONE, FAILED
from redline.cli.output import is_plain
from redline.errors import UserError, unknown_name
from redline.jsonl import as_json_value
from redline.units import duration

SUBJECTS = {
    "replay": "the replay memory: bytes per transition, batches and inserts per second",
    "env": "the env layer, beside the bare emulators",
    "learner": "updates per second, beside what the machine's arithmetic allows",
    "train": "a whole training, beside the machine's limit",
}
LADDER = "bench ladder has moved out of the package: use python benchmarks/ladder.py in a copy of the repository"
PEERS = "has moved out of the package: use python benchmarks/speed.py --against sb3 in a copy of the repository"
MOVED_FLAGS = {
    "train": ("--against", "--peer-vec-env", "--peer-same-openmp"),
    "learner": ("--against",),
}

Show = Callable[[Mapping[str, Any], bool], None]  # prints a result, plainly or not


def run(args: Sequence[str]) -> int:
    """Measure what the first word names, and return the exit code."""
    at = next((i for i, arg in enumerate(args) if arg not in ("--plain", "--json")), len(args))
    if at == len(args) or (args[at].startswith("-") and args[at] not in ("--help", "-h")):
        raise UserError(f"bench needs a subject, one of {', '.join(SUBJECTS)}: redline bench train")
    subject, others = args[at], [*args[:at], *args[at + 1 :]]
    if subject in ("--help", "-h"):
        print(_help())
        return DONE
    if subject == "ladder":
        raise UserError(LADDER)
    if subject not in SUBJECTS:
        raise unknown_name("bench", subject, SUBJECTS)
    for flag in MOVED_FLAGS.get(subject, ()):
        if any(arg.partition("=")[0] == flag for arg in others):
            raise UserError(f"bench {subject} {flag} {PEERS}")
    subjects = import_module("redline.cli.bench_subjects")
    code: int = getattr(subjects, f"run_{subject}")(others)
    return code


def _help() -> str:
    subjects = "\n".join(f"  {name:<10}{summary}" for name, summary in SUBJECTS.items())
    return f"usage: redline bench SUBJECT [options]\n\n{subjects}\n\nredline bench SUBJECT --help shows the options"


@dataclass(frozen=True)
class OutputFlags:
    """Where a result goes."""

    out: Path | None = None
    """File for the JSON object."""
    plain: bool = False
    """Plain text, no drawing."""
    json: bool = False
    """Print the result as one JSON object on stdout, and nothing else there."""

    def __post_init__(self) -> None:
        if self.out is not None:
            check_out(self.out)


def check_out(out: Path, flag: str = "out") -> None:
    """Refuse a file that can't be written, before anything is measured."""
    folder = out.absolute().parent
    if out.is_dir():
        raise UserError(f"{flag} {out} is a folder: name a file in it")
    if not folder.is_dir():
        raise UserError(f"{flag} {out} lies in no folder: create {out.parent} first")
    if not os.access(out if out.exists() else folder, os.W_OK):
        raise UserError(f"{flag} {out} can't be written: you may not write there, so name another file")


def check_turns(*, rounds: int, turn_seconds: float) -> None:
    """Refuse lengths that measure nothing, or never end."""
    if not 1 <= rounds <= 1_000:
        raise UserError(f"rounds is {rounds}: use 1 to 1000")
    if not 0.0 < turn_seconds <= 60.0:
        raise UserError(f"turn-seconds is {turn_seconds:g}: use more than 0 and at most 60")


def check_seed(seed: int) -> None:
    """Refuse a seed that some part does not take."""
    if not 0 <= seed < 2**31:
        raise UserError(f"seed is {seed}: use 0 to {2**31 - 1:_}")


def tell(text: str) -> None:
    """Print progress to stderr, away from the result."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and a closed terminal end the work as Ctrl-C does, so that no process outlives it."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        for number in before:
            signal.signal(number, signal.default_int_handler)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def give_out(result: Mapping[str, Any], flags: OutputFlags, *, command: str, args: Sequence[str], show: Show) -> int:
    """Print the result as JSON or in words, and write the file of --out; return 1 if that failed."""
    whole: Any = as_json_value({**result, "command": shlex.join([*command.split(), *args])})
    text = json.dumps(whole, allow_nan=False)
    if flags.json:
        print(text)
    else:
        show(whole, is_plain(plain=flags.plain, as_json=False))
    if flags.out is not None:
        try:
            flags.out.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            tell(f"redline: out {flags.out} can't be written: {(error.strerror or str(error)).lower()}")
            return FAILED
    return DONE


def rate_text(rate: Mapping[str, float], digits: int = 0) -> str:
    """Return a rate with the range that holds 90 % of the rounds."""
    return f"{rate['median']:,.{digits}f} ({rate['low']:,.{digits}f}–{rate['high']:,.{digits}f})"


def print_verdict(result: Mapping[str, Any]) -> None:
    """Print each goal and whether it was met, or why it was not judged, and how long the bench took."""
    if result.get("is_busy"):
        print(f"others used up to {result['others_percent']:.0f} % of the CPU: measure again on a machine that is free")
    words = {True: "met", False: "NOT met", None: "not judged"}
    for name, goal in result["goals"].items():
        low = f" (low {goal['low']:.3f})" if "low" in goal else ""
        reason = f", because: {goal['reason']}" if goal.get("reason") else ""
        print(f"{name}: {goal['value']:,.3f}{low}, goal {goal['goal']:,}: {words[goal['met']]}{reason}")
    print(f"measured in {duration(result['duration_s'])}")

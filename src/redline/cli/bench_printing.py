"""What the bench commands share: the flags of their output, and printing or keeping the one object they make."""

import json
import os
import shlex
import signal
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redline.cli.main import DONE, FAILED
from redline.cli.output import is_plain
from redline.errors import UserError
from redline.records import as_json_value
from redline.units import duration

Shown = Callable[[Mapping[str, Any], bool], None]  # prints a result, plainly or not


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


def check_out(out: Path) -> None:
    """Refuse what can't be written, before anything is measured."""
    folder = out.absolute().parent
    if out.is_dir():
        raise UserError(f"out {out} is a folder: name a file in it")
    if not folder.is_dir():
        raise UserError(f"out {out} lies in no folder: create {out.parent} first")
    if not os.access(out if out.exists() else folder, os.W_OK):
        raise UserError(f"out {out} can't be written: you may not write there, so name another file")


def tell(text: str) -> None:
    """Print progress, away from the result."""
    print(text, file=sys.stderr, flush=True)


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and a terminal that closes end the work as Ctrl-C does, so that no process outlives it."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        for number in before:
            signal.signal(number, signal.default_int_handler)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def give_out(result: Mapping[str, Any], flags: OutputFlags, *, subject: str, args: Sequence[str], show: Shown) -> int:
    """Print the result as an object or in words, write it where it was asked for; return 1 if that failed."""
    whole: Any = as_json_value({**result, "command": shlex.join(["redline", "bench", subject, *args])})
    text = json.dumps(whole, allow_nan=False)
    if flags.json:
        print(text)
    else:
        show(whole, is_plain(plain=flags.plain, as_json=flags.json))
    if flags.out is not None:
        try:
            flags.out.write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            tell(f"redline: out {flags.out} can't be written: {(error.strerror or str(error)).lower()}")
            return FAILED
    return DONE


def check_turns(*, rounds: int, turn_seconds: float) -> None:
    """Refuse lengths that measure nothing, or never end."""
    if not 1 <= rounds <= 1_000:
        raise UserError(f"rounds is {rounds}: use 1 to 1000")
    if not 0.0 < turn_seconds <= 60.0:
        raise UserError(f"turn-seconds is {turn_seconds:g}: use more than 0 and at most 60")


def check_seed(seed: int) -> None:
    """Refuse what no part takes as a seed."""
    if not 0 <= seed < 2**31:
        raise UserError(f"seed is {seed}: use 0 to {2**31 - 1:_}")


def rate_text(rate: Mapping[str, float], digits: int = 0) -> str:
    """Return a rate with what 90 % of the rounds lie between."""
    return f"{rate['median']:,.{digits}f} ({rate['low']:,.{digits}f}–{rate['high']:,.{digits}f})"


def print_verdict(result: Mapping[str, Any]) -> None:
    """Print what must be shown and whether it was, what stood in the way, and how long all took."""
    if result["is_busy"]:
        print(f"others used up to {result['others_percent']:.0f} % of the CPU: measure again on a machine that is free")
    words = {True: "met", False: "NOT met", None: "not judged"}
    for name, goal in result["goals"].items():
        value = "–" if goal["value"] is None else f"{goal['value']:.3f} (low {goal['low']:.3f})"
        reason = "" if goal["reason"] is None else f", because: {goal['reason']}"
        print(f"{name}: {value}, goal {goal['goal']}: {words[goal['met']]}{reason}")
    print(f"measured in {duration(result['duration_s'])}")

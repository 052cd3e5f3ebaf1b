"""A command line → a dataclass: tyro parses, and what it does not like is said in one line."""

import contextlib
import io
import re
from collections.abc import Sequence, Set
from pathlib import Path
from typing import TypeVar

import tyro

from redline.errors import UserError
from redline.runs.locating import locate_run

T = TypeVar("T")

SHORT = {"--lr": "--optimizer.lr", "--gamma": "--returns.gamma"}  # flags by the names that most people know them by

NOT_PARSED = re.compile(r"Error parsing (\S+): no type matching (\S+) could be instantiated from \['(.*?)'\]")
CONTINUED = " " * 10  # begins a line of the help that belongs to the flag above
WRONG_CHOICE = re.compile(r"invalid choice '(.*?)' for argument '(\S+)'\. Expected one of \((.*?)\)")


def parse(kind: type[T], args: Sequence[str], *, default: T, prog: str) -> T:
    """Let tyro parse, and say what it does not like in one line."""
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            return tyro.cli(
                kind,
                args=[_spell_out(arg) for arg in args],
                default=default,
                prog=prog,
                config=(tyro.conf.AvoidSubcommands, tyro.conf.FlagCreatePairsOff),
            )
    except SystemExit as stop:
        if not stop.code:
            raise
        raise UserError(_one_line(complaint.getvalue(), prog)) from None


def help_with(flags: Set[str], whole: str) -> str:
    """Return the help that tyro prints where nothing is drawn, with only these flags in it and without headings."""
    head, _, entries = whole.partition("\n options")
    kept, is_kept = [], False
    for line in entries.splitlines():
        if not line.startswith(CONTINUED):
            entry = re.match(r"  (-.*?)(?:  |$)", line)
            is_kept = entry is not None and not flags.isdisjoint(re.split(r"[ ,]+", entry[1]))
        kept += [line.rstrip()] if is_kept else []
    return "\n".join([head, *kept])


def _spell_out(arg: str) -> str:
    flag, equals, value = arg.partition("=")
    return f"{SHORT.get(flag, flag)}{equals}{value}"


def split_name(args: Sequence[str]) -> tuple[str | None, list[str]]:
    """Part a name that may stand before the flags, or after --plain and --json, from the rest of a command line."""
    at = next((place for place, arg in enumerate(args) if arg not in ("--plain", "--json")), len(args))
    if at == len(args) or args[at].startswith("-"):
        return None, list(args)
    return args[at], [*args[:at], *args[at + 1 :]]


def split_run(args: Sequence[str], command: str, *, or_recording: bool = False) -> tuple[Path, list[str]]:
    """Part the run that stands before the flags of a command from the rest of a command line."""
    name, rest = split_name(args)
    if name is None:
        raise UserError(
            f"{command} needs a run directory, a folder of runs (its newest) or last: redline {command} last"
        )
    return locate_run(name, or_recording=or_recording), rest


def _one_line(complaint: str, prog: str) -> str:
    """Condense tyro's boxed message: its first section, and the flag it suggests."""
    sections: list[list[str]] = [[]]
    for line in complaint.splitlines():
        if re.fullmatch(r"[│\s]*[─-]{10,}[│\s]*", line):
            sections.append([])
        elif (text := line.strip("│ ")) and not text.startswith(("╭", "╰")):
            sections[-1].append(text)
    if not complaint.startswith("╭"):  # where the terminal has no box characters, the title is a section of its own
        sections = sections[1:] or sections
    message = " ".join(sections[0])
    if found := NOT_PARSED.match(message):  # of several types, none fits
        return f"{found[1]} is {found[3]!r}, but it takes {found[2].replace('{None}|', '')}: see {prog} --help"
    if found := WRONG_CHOICE.match(message):
        choices = re.findall(r"'(.*?)'", found[3])
        return f"{found[2]} is {found[1]!r}: use {' or '.join(choices)}"
    flags = [text.split()[0].rstrip(",") for section in sections for text in section if text.startswith("--")]
    is_suggestion = any(text.startswith("Perhaps you meant") for section in sections for text in section)
    remedy = f"did you mean {flags[0]}?" if is_suggestion and flags else f"see {prog} --help"
    return f"{message[:300].rstrip('.')}: {remedy}"

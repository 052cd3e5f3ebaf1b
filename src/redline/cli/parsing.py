"""A command line → a dataclass: tyro parses, and each mistake becomes one line with a remedy."""

import contextlib
import io
import re
from collections.abc import Sequence, Set
from typing import Annotated, Any, TypeVar

import tyro

# private, but documented, and the only way to a mistake in parts; a hook is to let events pass that it does not know
from tyro import _errors as mistakes

from redline.errors import UserError, nearest

T = TypeVar("T")

RUN = "RUN"
Run = Annotated[
    str,
    tyro.conf.Positional,
    tyro.conf.arg(metavar=RUN, help="A run directory, a folder of runs (its newest), or last: the newest in ./runs."),
]
RunEnv = Annotated[
    str | None, tyro.conf.arg(help="The run's env, typed again if it names a module (mypkg:MyEnv-v0) to import.")
]
Plain = Annotated[bool, tyro.conf.arg(help="Plain text, no drawing.")]
Json = Annotated[bool, tyro.conf.arg(help="Print one JSON object on stdout, and nothing else there.")]

SHORT = {"--lr": "--optimizer.lr", "--gamma": "--returns.gamma"}  # the names that most people know
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9.-]*")
CONTINUED = " " * 10  # begins a line of the help that belongs to the flag above


class _MistakeError(Exception):
    """Carries what tyro does not like out of its parser."""

    def __init__(self, event: mistakes.ParseErrorEvent) -> None:
        self.event = event


def parse(kind: type[T], args: Sequence[str], *, prog: str, default: T | None = None) -> T:
    """Let tyro parse; UserError says in one line what is wrong. `default` overrides the defaults of the dataclass.

    With a `default`, the value None can be typed, to switch off a limit that it has.
    """
    config = [tyro.conf.AvoidSubcommands, tyro.conf.FlagCreatePairsOff]
    config += [tyro.conf.DisallowNone] if default is None else []
    typed = [_spell_out(arg) for arg in args]
    try:
        with mistakes.on_parse_error(_raise):
            return tyro.cli(
                kind,
                args=typed,
                default=tyro.MISSING_NONPROP if default is None else default,
                prog=prog,
                config=config,
            )
    except _MistakeError as mistake:
        event = mistake.event
    if isinstance(event, mistakes.UnrecognizedArgs | mistakes.MissingArgs | mistakes.BadValue):
        known = flags_in(help_text(kind, prog=prog, default=default))
        typed_flags = [arg.partition("=")[0].replace("_", "-") for arg in typed if arg.startswith("--")]
        if unknown := [flag for flag in typed_flags if flag not in known]:
            remedy = f"did you mean {close[0]}?" if (close := nearest(unknown[0], known)) else f"see {prog} --help"
            raise UserError(f"unknown option {unknown[0]}: {remedy}")
    raise UserError(_one_line(event, typed, prog))


def help_text(kind: type[T], *, prog: str, default: T | None = None) -> str:
    """Return what `--help` prints."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        parse(kind, ["--help"], prog=prog, default=default)
    return text.getvalue()


def flags_in(text: str) -> list[str]:
    """Return the flags that a help names, each once."""
    return list(dict.fromkeys(FLAG.findall(text)))


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


def split_name(args: Sequence[str]) -> tuple[str | None, list[str]]:
    """Part a name that may stand before the flags, or after --plain and --json, from the rest of a command line."""
    at = next((place for place, arg in enumerate(args) if arg not in ("--plain", "--json")), len(args))
    if at == len(args) or args[at].startswith("-"):
        return None, list(args)
    return args[at], [*args[:at], *args[at + 1 :]]


def _spell_out(arg: str) -> str:
    flag, equals, value = arg.partition("=")
    return f"{SHORT.get(flag, flag)}{equals}{value}"


def _raise(event: mistakes.ParseErrorEvent) -> None:
    known = (
        mistakes.UnrecognizedArgs,
        mistakes.MissingArgs,
        mistakes.InvalidChoice,
        mistakes.BadValue,
        mistakes.InstantiationFailure,
    )
    if isinstance(event, known):  # tyro reports any other in its own way
        raise _MistakeError(event)


def _one_line(event: mistakes.ParseErrorEvent, typed: Sequence[str], prog: str) -> str:
    fact, remedy = "the command line can't be parsed", f"see {prog} --help"
    match event:
        case mistakes.MissingArgs(missing_arguments=[first, *_]) if _name(first.arg) == RUN:
            fact = f"{prog.rsplit(maxsplit=1)[-1]} needs a run directory, a folder of runs (its newest) or last"
            remedy = f"{prog} last"
        case mistakes.MissingArgs(missing_arguments=[first, *_]):
            fact = f"{_name(first.arg)} is missing"
        case mistakes.UnrecognizedArgs(tokens=[first, *_]):
            fact = f"{first!r} is one argument too many"
        case mistakes.InvalidChoice(argument=argument, value=value, choices=choices):
            fact, remedy = f"{_name(argument)} is {value!r}", f"use {' or '.join(choices)}"
        case mistakes.BadValue(argument=argument, reason="fixed"):
            fact = f"{_name(argument)} can't be changed"
        case mistakes.BadValue(argument=argument):
            fact = f"{_name(argument)} needs a value"
        case mistakes.InstantiationFailure(argument=None, message=message):
            fact = message
        case mistakes.InstantiationFailure(argument=argument) if argument is not None:
            takes = str(argument.lowered.metavar).replace("{None}|", "")
            takes = {"INT": "a whole number", "FLOAT": "a number"}.get(takes, takes)
            fact = f"{_name(argument)} is {_value_of(argument, typed)!r}, but it takes {takes}"
    if fact in (f"{RUN} is missing", f"{RUN} needs a value"):
        fact = f"{prog.rsplit(maxsplit=1)[-1]} needs a run directory, a folder of runs (its newest) or last"
        remedy = f"{prog} last"
    return f"{fact}: {remedy}"


def _name(argument: Any) -> str:
    return str(argument.lowered.metavar if argument.is_positional() else argument.lowered.name_or_flags[0])


def _value_of(argument: Any, typed: Sequence[str]) -> str:
    """Return what was typed last for a flag."""
    found = ""
    for place, arg in enumerate(typed):
        flag, equals, value = arg.partition("=")
        if flag.replace("_", "-") in argument.lowered.name_or_flags:
            found = value if equals else " ".join(typed[place + 1 : place + 2])
    return found

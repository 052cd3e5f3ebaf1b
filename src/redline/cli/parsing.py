"""A command line → a dataclass: tyro parses, and each mistake becomes one line with a remedy."""

import contextlib
import io
import re
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import Annotated, Any, TypeVar

import tyro

# private, but documented, and the only way to a mistake in parts; a hook is to let events pass that it does not know
from tyro import _errors as mistakes

from redline.cli.main import DONE
from redline.errors import UserError, nearest, unknown_name

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
FLAG = re.compile(r"--[a-z][a-z0-9.-]*")
ENTRY = re.compile(r"  (-.*?)(?:  |$)")  # of a flag, in the help that tyro prints where nothing is drawn
KNOWN_MISTAKES = (
    mistakes.UnrecognizedArgs,
    mistakes.MissingArgs,
    mistakes.InvalidChoice,
    mistakes.BadValue,
    mistakes.InstantiationFailure,
)
CONTINUED = " " * 10  # begins a line that belongs to the flag above


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
    typed = ["=".join([SHORT.get(flag, flag), *value]) for flag, *value in (arg.split("=", 1) for arg in args)]
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


def positionals_first(args: Sequence[str], with_value: Collection[str]) -> list[str]:
    """Return the arguments with the positional ones before the flags, wherever they were typed."""
    positionals: list[str] = []
    flags: list[str] = []
    for place, arg in enumerate(args):
        is_value = place > 0 and args[place - 1] in with_value
        (flags if is_value or arg.startswith("-") else positionals).append(arg)
    return positionals + flags


def help_text(kind: type[T], *, prog: str, default: T | None = None) -> str:
    text = io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        parse(kind, ["--help"], prog=prog, default=default)
    return text.getvalue()


def flags_in(text: str) -> list[str]:
    """Return the flags that have an entry in a help, each once."""
    entries = filter(None, map(ENTRY.match, text.splitlines()))
    return list(dict.fromkeys(flag for entry in entries for flag in FLAG.findall(entry[1])))


def help_with(flags: Set[str], whole: str) -> str:
    """Return a help with only these flags in it and without headings."""
    head, _, entries = whole.partition("\n options")
    kept, is_kept = [], False
    for line in entries.splitlines():
        if not line.startswith(CONTINUED):
            is_kept = not flags.isdisjoint(flags_in(line))
        kept += [line.rstrip()] if is_kept else []
    return "\n".join([head, *kept])


def run_subject(
    command: str, args: Sequence[str], subjects: Mapping[str, tuple[Callable[[Sequence[str]], int], str]]
) -> int:
    """Run what the first word names, or print what there is, and return the exit code.

    `subjects` has a function and a summary for each word; --plain and --json may stand before it.
    """
    at = next((place for place, arg in enumerate(args) if arg not in ("--plain", "--json")), len(args))
    word = args[at] if at < len(args) else "-"
    if word in ("--help", "-h"):
        lines = "\n".join(f"  {name:<10}{summary}" for name, (_, summary) in subjects.items())
        usage = f"redline {command} {'|'.join(subjects)}"
        print(f"usage: {usage} [options]\n\n{lines}\n\n{usage} --help shows the options")
        return DONE
    if word.startswith("-"):
        raise UserError(f"{command} needs a subject, {' or '.join(subjects)}: redline {command} {next(iter(subjects))}")
    if word not in subjects:
        raise unknown_name(f"subject of {command}", word, subjects)
    return subjects[word][0]([*args[:at], *args[at + 1 :]])


def _raise(event: mistakes.ParseErrorEvent) -> None:
    if isinstance(event, KNOWN_MISTAKES):  # tyro reports any other in its own way
        raise _MistakeError(event)


def _one_line(event: mistakes.ParseErrorEvent, typed: Sequence[str], prog: str) -> str:
    fact, remedy = "the command line can't be parsed", f"see {prog} --help"
    match event:
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
    found = ""
    for place, arg in enumerate(typed):
        flag, equals, value = arg.partition("=")
        if flag.replace("_", "-") in argument.lowered.name_or_flags:
            found = value if equals else " ".join(typed[place + 1 : place + 2])
    return found

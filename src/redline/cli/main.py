"""Entry point: finds the command, and turns an error that a user can mend into one line and an exit code."""

import atexit
import errno
import json
import math
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from unicodedata import category

from redline import __version__, cli
from redline.cli import TRAINING, leave, leave_with, take_signals
from redline.cli.process import SHORT_SPIN, choose_spin, guard_streams, interrupt, output_error, print_object
from redline.errors import UserError, unknown_name

BAD_NAMES = (errno.ENAMETOOLONG, errno.EACCES, errno.ELOOP)  # what a user typed, or may not read
HELP = ("-h", "--help", "help")
LONGEST_WORD = 300  # that is printed of what somebody typed; paths are shorter
DONE, FAILED, BAD_INPUT, RESUMABLE = 0, 1, 2, 75

COMMANDS = {
    "train": "train an agent on a game",
    "resume": "continue a run that was stopped",
    "watch": "watch a run that was started elsewhere",
    "eval": "measure how well a run's agent plays, over whole episodes",
    "episodes": "list the episodes of a run: sorted, filtered, and which are recorded",
    "play": "make videos of recorded episodes, check them bit for bit, or let the policy play new ones",
    "recipes": "list settings that are known to work, and what they reached",
    "algos": "list the algorithms: parts, papers, defaults and results",
    "envs": "list the games and other envs",
    "plan": "find out what a run will need before it starts: memory, disk, time, money",
    "replay": "look inside the replay memory of a run",
    "monitor": "record what any command or process uses of the hardware",
    "report": "make a page of charts from one run, or compare several",
    "dashboard": "show runs and fleets in the browser while they go on",
    "fleet": "train many games, algorithms and seeds from one list, on one machine or many",
    "cluster": "check a Ray cluster before a fleet trains there",
    "tune": "search for better settings, and check the winner on unused seeds",
    "profile": "find where training time goes, by leaving out one part at a time",
    "bench": "measure speed and memory on this machine, beside its limit",
    "completion": "print a script that completes commands, flags and names in bash or zsh",
    "doctor": "print machine, versions and settings for a bug report",
}
# commands that share a module, which has a function run_NAME for each
MODULES = {"resume": "train", "envs": "lists", "recipes": "lists", "doctor": "lists", "completion": "lists"}


class FailureError(UserError):
    """Work that failed or was stopped although the input was good: one line, and an exit code other than 2."""

    def __init__(self, message: str, code: int = FAILED) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def failing(*kinds: type[Exception], after: str = "", code: int = FAILED) -> Iterator[None]:
    """End the command with one line and an exit code on errors of these kinds."""
    try:
        yield
    except kinds as error:
        raise FailureError(f"{error}{after}", code) from error


def main(argv: Sequence[str] | None = None) -> int:
    args = list(sys.argv[1:] if argv is None else argv)
    is_training = bool(args) and args[0] in TRAINING
    cli.is_object_out, cli.interrupted_s = False, -math.inf
    if argv is None:
        atexit.register(leave)
        guard_streams()
        take_signals()
        if not is_training and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, interrupt)
    code = _run(args)
    if (error := output_error()) is not None:
        print(f"redline: a part of the output is lost: {str(error.strerror).lower()}", file=sys.stderr)
        code = code or (DONE if is_training and "--json" not in args else FAILED)
    if argv is None:
        leave_with(code)
    return code


def _run(args: list[str]) -> int:
    end = args.index("--") if "--" in args else len(args)  # what follows is another program's
    args = [*map(_with_dashes, args[:end]), *args[end:]]
    as_json = "--json" in args[:end]
    try:
        args = _with_fleet(args)
        _set_spin(args)
        if not args or args[0] in (*HELP, "-V", "--version"):
            print(f"redline {__version__}" if args and args[0] not in HELP else _help())
            return DONE if args else BAD_INPUT
        for arg in args[:end] if args[0] == "monitor" else args:
            if any(category(letter) == "Cc" for letter in arg):  # it would steer the terminal that it is shown on
                raise UserError(f"{arg!r} holds characters that can't be printed: leave them out")
        if args[0] not in COMMANDS:
            raise unknown_name("command", args[0], COMMANDS)
        if args[0] in ("train", "resume") and "torch" not in sys.modules and sys.stderr.isatty():
            print("loading PyTorch …", file=sys.stderr, flush=True)
        allow_typed_module(args)
        return find_command(args[0])(args[1:])
    except UserError as error:
        return refuse(str(error), as_json=as_json, code=error.code if isinstance(error, FailureError) else BAD_INPUT)
    except KeyboardInterrupt as error:
        return refuse(str(error) or "interrupted", as_json=as_json, code=FAILED)
    except BrokenPipeError:
        sys.stdout = None  # its reader is gone: keep Python from flushing at exit
        return DONE
    except (OSError, MemoryError, RuntimeError) as error:
        if (shortage := _shortage(error)) is None:
            raise
        is_bad_name = isinstance(error, OSError) and error.errno in BAD_NAMES
        return refuse(shortage, as_json=as_json, code=BAD_INPUT if is_bad_name else FAILED)


def _with_fleet(args: list[str]) -> list[str]:
    """Return the command that several runs are: `train --seeds 1-5` and `train --model all` start a fleet."""
    fleet = import_module("redline.cli.several").as_fleet(args[1:]) if args[:1] == ["train"] else None
    return args if fleet is None else ["fleet", "start", *fleet]


def _set_spin(args: list[str]) -> None:
    # `monitor` must not change the environment of the command that it starts, and a fleet's run comes back here
    if args[:1] not in (["monitor"], ["fleet"]) and not SHORT_SPIN.keys() <= os.environ.keys():
        for name, value in choose_spin(args).items():
            os.environ.setdefault(name, value)


def _with_dashes(arg: str) -> str:
    """Return a flag as the help spells it, for `--max_steps 5` too."""
    flag, equals, value = arg.partition("=")
    return f"{flag.replace('_', '-')}{equals}{value}" if arg.startswith("--") else arg


def _shortage(error: Exception) -> str | None:
    """Say what the machine or a limit does not give, if that is what the error is about."""
    if isinstance(error, MemoryError):
        return "out of memory: free some, or use smaller settings"
    number = error.errno if isinstance(error, OSError) else None
    if number in (errno.EMFILE, errno.ENFILE):
        return "too many open files: raise the limit with ulimit -n 1024"
    if number == errno.EAGAIN or "can't start new thread" in str(error):
        return "no more processes or threads are allowed: see ulimit -u and the pids limit of the container"
    if number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ENOMEM, errno.EFBIG, *BAD_NAMES):
        return f"{getattr(error, 'filename', None) or 'a file'}: {str(getattr(error, 'strerror', error)).lower()}"
    return None


def find_command(name: str) -> Callable[[Sequence[str]], int]:
    """Import a command; it takes its arguments and returns the exit code."""
    run: Callable[[Sequence[str]], int]
    if name in MODULES:
        run = getattr(import_module(f"redline.cli.{MODULES[name]}"), f"run_{name}")
    else:
        run = import_module(f"redline.cli.{name}").run
    return run


def allow_typed_module(args: Sequence[str]) -> None:
    """Allow the import of the module in `--env mypkg:MyEnv-v0`, because the user typed it.

    The current folder is searched only if the module is nowhere else: it could answer other imports as well.
    """
    values = [arg.partition("=")[2] for arg in args if arg.startswith(("--env=", "--env.id="))]
    values += [value for flag, value in pairwise(args) if flag in ("--env", "--env.id")]
    for value in values:
        if ":" not in value:
            continue
        import_module("redline.envs.catalog").allow_module(value)
        package = value.partition(":")[0].partition(".")[0]
        with suppress(ValueError):  # no module can have this name; its import will say so
            if find_spec(package) is None:
                sys.path.append(str(Path.cwd()))


def refuse(message: str, *, as_json: bool, code: int) -> int:
    """Print what is wrong in one line, with --json also as an object on stdout; return the exit code."""
    message = _one_line(message)
    print(f"redline: {message}", file=sys.stderr)
    if as_json and not cli.is_object_out:
        try:
            print_object(json.dumps({"schema": 1, "error": message}))
        except BrokenPipeError:
            sys.stdout = None
    return code


def _one_line(message: str) -> str:
    """Return a message without escapes and without words that fill a screen: it may quote what anybody wrote."""
    printable = "".join(letter if letter.isprintable() else " " for letter in message)
    return re.sub(rf"\S{{{LONGEST_WORD},}}", lambda word: f"{word[0][:LONGEST_WORD]}…", printable)


def _help() -> str:
    commands = "\n".join(f"  {name:<12}{summary}" for name, summary in COMMANDS.items())
    return (
        "Redline trains deep-RL agents on Atari at the limit of the machine, and shows what that limit is.\n\n"
        f"usage: redline COMMAND [options]\n\ncommands:\n{commands}\n\n"
        "redline COMMAND --help shows a command's options; --plain and --json work with every command."
    )


if __name__ == "__main__":
    # by its own name, as the commands import it: else their errors would be of another class
    sys.exit(import_module("redline.cli.main").main())

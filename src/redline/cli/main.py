"""Entry point: finds the command, and turns errors that a user can mend into one line and an exit code."""

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

from redline import __version__
from redline.cli.spinning import SHORT_SPIN, choose_spin
from redline.errors import UserError, unknown_name

DONE, FAILED, BAD_INPUT, RESUMABLE = 0, 1, 2, 75
NOBODY = None  # reads: nothing is left to flush to

COMMANDS = {
    "train": "train an agent on a game",
    "resume": "go on with a run that was stopped",
    "watch": "look at a run that was started elsewhere",
    "eval": "measure how well a run's agent plays, by whole episodes",
    "episodes": "list the episodes of a run: sorted, filtered, and which are recorded",
    "play": "watch recorded episodes as video, check them bit for bit, or let the policy play afresh",
    "recipes": "list settings that are known to work, and what they reached",
    "algos": "list the algorithms: parts, papers, defaults and results",
    "envs": "list the games and other envs that can be trained on",
    "plan": "tell what a replay memory, or a whole run on the disk, takes before it is started",
    "replay": "look inside the replay memory of a run",
    "monitor": "record what any command or process does to the hardware",
    "report": "make a page of charts from one run, or compare several",
    "tune": "search for better settings, and check the winner with seeds that the search never used",
    "profile": "find where the time of a training goes, by leaving out one part at a time",
    "bench": "measure speed and memory here, beside the limit of the machine",
    "completion": "print a script by which bash or zsh completes commands, flags and names",
    "doctor": "print on one page what a bug report needs: machine, versions, settings",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    args = list(sys.argv[1:] if argv is None else argv)
    # what `monitor` starts shall find the environment as it was; where the user has chosen, there is nothing to look at
    if args[:1] != ["monitor"] and not SHORT_SPIN.keys() <= os.environ.keys():
        for name, value in choose_spin(args).items():
            os.environ.setdefault(name, value)
    as_json = "--json" in (args[: args.index("--")] if "--" in args else args)
    if not args or args[0] in ("-h", "--help", "help"):
        print(_help())
        return DONE if args else BAD_INPUT
    if args[0] in ("-V", "--version"):
        print(f"redline {__version__}")
        return DONE
    try:
        if args[0] not in COMMANDS:
            raise unknown_name("command", args[0], COMMANDS)
        if args[0] in ("train", "resume") and "torch" not in sys.modules and sys.stderr.isatty():
            print("loading PyTorch …", file=sys.stderr, flush=True)
        allow_typed_module(args)
        code: int = import_module(f"redline.cli.{args[0]}").run(args[1:])
    except UserError as error:
        return refuse(str(error), as_json=as_json)
    except KeyboardInterrupt:
        stands = "; the newest checkpoint stands" if args[0] in ("train", "resume") else ""
        return refuse(f"interrupted{stands}", as_json=as_json, code=FAILED)
    except BrokenPipeError:
        sys.stdout = NOBODY
        return DONE
    return code


def allow_typed_module(args: Sequence[str]) -> None:
    """Let the module of `--env mypkg:MyEnv-v0` be imported, because the user has typed it.

    It may lie in the current folder. Only then is that folder searched: it might answer other imports as well.
    """
    values = [arg.partition("=")[2] for arg in args if arg.startswith(("--env=", "--env.id="))]
    values += [value for flag, value in pairwise(args) if flag in ("--env", "--env.id")]
    for value in values:
        if ":" not in value:
            continue
        import_module("redline.envs.suites").allow_module(value)
        package = value.partition(":")[0].partition(".")[0]
        with suppress(ValueError):  # a name that no module has; its import will say so
            if find_spec(package) is None:
                sys.path.append(str(Path.cwd()))


def refuse(message: str, *, as_json: bool, code: int = BAD_INPUT) -> int:
    """Say what is wrong in one line, as an object on stdout too if one was asked for; return the exit code."""
    print(f"redline: {message}", file=sys.stderr)
    if as_json:
        try:
            print(json.dumps({"schema": 1, "error": message}), flush=True)
        except BrokenPipeError:
            sys.stdout = NOBODY
    return code


def _help() -> str:
    commands = "\n".join(f"  {name:<12}{summary}" for name, summary in COMMANDS.items())
    return (
        "Redline trains deep-RL agents on Atari at the limit of the machine, and shows what that limit is.\n\n"
        f"usage: redline COMMAND [options]\n\ncommands:\n{commands}\n\n"
        "redline COMMAND --help shows a command's options; --plain and --json work with every command."
    )


if __name__ == "__main__":
    sys.exit(main())

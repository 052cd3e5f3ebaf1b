"""Makes and checks lists of trainings with the parser of `redline train`, in a process of its own: that loads torch.

A supervisor lives as long as its fleet and should be small.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from redline.cli.main import DONE
from redline.cli.output import print_json
from redline.cli.parsing import SHORT
from redline.errors import UserError
from redline.fleet.listing import Setting, Slot
from redline.jsonl import plain_text

HEAVY = "torch"
PROGRAM = ("-m", "redline.cli.main", "fleet", "check", "--json")


class Question(msgspec.Struct):
    """What is to be checked: a file or flags, or slots that are made already."""

    file: str | None = None
    games: str | None = None
    models: str | None = None
    seeds: str | None = None
    settings: dict[str, Setting] = {}
    slots: tuple[Slot, ...] = ()


class Answer(msgspec.Struct):
    """A list of which every slot can be trained."""

    name: str
    slots: tuple[Slot, ...]
    wishes: dict[str, Any] = {}


def ask(question: Question) -> Answer:
    """Return the checked list; UserError in one line."""
    if HEAVY in sys.modules:
        return answer(question)
    if sys.stderr.isatty():
        print("checking the list …", file=sys.stderr, flush=True)
    asked = json.dumps(msgspec.to_builtins(question))
    said = subprocess.run([sys.executable, *PROGRAM], input=asked, capture_output=True, text=True, check=False)
    try:
        found = json.loads(said.stdout)
        if "error" in found:
            raise UserError(found["error"])
        return msgspec.convert(found["list"], Answer)
    except (ValueError, KeyError, TypeError, msgspec.MsgspecError):
        words = said.stderr.strip().splitlines() or [f"exit code {said.returncode}"]
        raise UserError(f"the list can't be checked: {plain_text(words[-1])}") from None


def run(args: Sequence[str]) -> int:
    """Answer the question on stdin."""
    question = msgspec.convert(json.loads(sys.stdin.read()), Question)
    print_json({"list": msgspec.to_builtins(answer(question))})
    return DONE


def answer(question: Question) -> Answer:
    """Make the list, and let the parser of `redline train` read the flags of every slot."""
    from redline.fleet.list_file import Asked, line_of, list_of_flags, read_list

    file = None if question.file is None else Path(question.file)
    if question.slots:
        asked = Asked("", question.slots)
    elif file is not None:
        asked = read_list(file, question.settings)
    else:
        asked = list_of_flags(question.games, question.models, question.seeds or "1", question.settings)
    check = Checker()
    try:
        return Answer(asked.name, tuple(map(check, asked.slots)), dict(asked.wishes))
    except UserError as error:
        raise UserError(str(error) if file is None else f"{file}{line_of(file, str(error))}: {error}") from None


class Checker:
    """Checks slots; those that differ by their seeds alone are parsed once."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, Setting]] = {}

    def __call__(self, slot: Slot) -> Slot:
        """Return a slot with the flags that its settings stand for; UserError if a run would refuse them."""
        key = json.dumps([slot.game, slot.algorithm, slot.settings])
        if key not in self._known:
            try:
                self._known[key] = _as_flags(slot)
                _parse(msgspec.structs.replace(slot, settings=self._known[key]))
            except UserError as error:
                raise UserError(f"{slot.game} {slot.algorithm}: {error}") from None
        return msgspec.structs.replace(slot, settings=self._known[key])


def _parse(slot: Slot) -> None:
    from redline.cli.flags import parse_train
    from redline.runtime.resolve import check_topology

    check_topology(parse_train(slot.flags).job)


def _as_flags(slot: Slot) -> dict[str, Setting]:
    """Return settings under the names of their flags: `clip-rewards = false` is the flag `no-clip-rewards`."""
    settings = {long_name(key): value for key, value in slot.settings.items()}
    if not any(isinstance(value, bool) for value in settings.values()):
        return settings
    known = _known_flags(slot)
    found: dict[str, Setting] = {}
    for key, value in settings.items():
        if not isinstance(value, bool):
            found[key] = value
        elif (name := key if value else _negated(key)) in known or not {key, _negated(key)} & known:
            found[name] = True
        # else it is so without a flag
    return found


def long_name(key: str) -> str:
    """Return the setting for which a short flag stands: `lr` is `optimizer.lr`."""
    return SHORT.get(f"--{key}", key).removeprefix("--")


def _known_flags(slot: Slot) -> set[str]:
    from redline.cli.flags import TrainFlags, train_defaults
    from redline.cli.parsing import flags_in, help_text

    plain = {key: value for key, value in slot.settings.items() if not isinstance(value, bool)}
    default = train_defaults(msgspec.structs.replace(slot, settings=plain).flags)
    return {flag.removeprefix("--") for flag in flags_in(help_text(TrainFlags, prog="redline train", default=default))}


def _negated(key: str) -> str:
    """Return the name of the flag that switches a setting off, or on again."""
    table, dot, name = key.rpartition(".")
    return f"{table}{dot}{name.removeprefix('no-') if name.startswith('no-') else f'no-{name}'}"

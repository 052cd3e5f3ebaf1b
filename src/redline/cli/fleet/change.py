"""`redline fleet change`: give some runs of a fleet other settings, or take the last change back."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import tyro

from redline.cli.fleet.checking import Question, ask, long_name
from redline.cli.fleet.start import read_setting
from redline.cli.fleet.status import Folder
from redline.cli.output import command, give
from redline.cli.parsing import Json, Plain, parse
from redline.errors import UserError
from redline.fleet.lease import Watcher, read_holder
from redline.fleet.listing import Listing, Setting, change_listing, changed, check_settings, undone
from redline.fleet.slots import SUPERVISOR

Settings = Annotated[tuple[str, ...], tyro.conf.UseAppendAction, tyro.conf.arg(metavar="NAME=VALUE")]


@dataclass(frozen=True)
class ChangeFlags:
    """Give runs of a fleet other settings: they begin anew under new names, and the old runs are kept.

    A supervisor that is at work takes the change over at once.
    """

    dir: Folder
    only: str | None = None
    """Games, algorithms, variants or slots to change, such as breakout,pong; all if not given."""
    set: Settings = ()
    """A setting, by the name of its flag in redline train: --set batch-size=64; may be repeated."""
    undo: bool = False
    """Take the newest change back: the old runs go on."""
    plain: Plain = False
    json: Json = False


def run(args: Sequence[str]) -> int:
    """Write a further version of the list, and return the exit code."""
    flags = parse(ChangeFlags, args, prog="redline fleet change")
    settings = dict(map(_read, flags.set))
    check_settings(settings)
    if flags.undo and (flags.set or flags.only is not None):
        raise UserError("--undo takes the newest change back: leave --only and --set out")
    if not flags.undo and not settings:
        raise UserError("fleet change needs a setting: --set batch-size=64, or --undo")
    words = [word.strip() for word in (flags.only or "").split(",") if word.strip()]
    if flags.only is not None and not words:  # an empty variable of a script must not change all runs
        raise UserError("--only is empty: name games, algorithms, variants or slots, or leave it out for all runs")
    typed = shlex.join(["redline", "fleet", "change", *args])

    def change(before: Listing) -> Listing:
        return undone(before, typed) if flags.undo else checked(before, changed(before, words, settings, typed))

    before, after = change_listing(flags.dir, change)
    watcher, supervisor = Watcher(flags.dir), read_holder(flags.dir, SUPERVISOR)
    is_supervised = supervisor is not None and watcher.is_alive(supervisor)
    old, new = ({slot.name for slot in listing.slots} for listing in (before, after))
    facts = {
        "version": len(after.versions),
        "slots": len(after.slots),
        "new": [slot.name for slot in after.slots if slot.name not in old],
        "left": [slot.name for slot in before.slots if slot.name not in new],
        "next": "the supervisor takes it over" if is_supervised else command("fleet", "resume", flags.dir),
    }
    return give(facts, flags, show)


def show(facts: dict[str, Any], *, plain: bool) -> None:
    """Print what has changed."""
    del plain
    print(f"version {facts['version']} of the list, {facts['slots']} runs")
    for old, new in zip(facts["left"], facts["new"], strict=True):
        print(f"{old} → {new}")
    print(f"next: {facts['next']}")


def checked(before: Listing, after: Listing) -> Listing:
    """Return a changed list of which every new slot can be trained."""
    known = {slot.name for slot in before.slots}
    new = tuple(slot for slot in after.slots if slot.name not in known)
    sound = {slot.name: slot for slot in ask(Question(slots=new)).slots}
    slots = tuple(sound.get(slot.name, slot) for slot in after.slots)
    version = msgspec.structs.replace(after.versions[-1], slots=slots)
    return msgspec.structs.replace(after, versions=(*after.versions[:-1], version))


def _read(text: str) -> tuple[str, Setting]:
    name, equals, value = text.partition("=")
    if not name.strip() or not equals:
        raise UserError(f"--set is {text[:80]!r}: write NAME=VALUE, such as batch-size=64")
    plain = long_name(name.strip().removeprefix("--").replace("_", "-"))
    if value.strip().lower() in ("true", "false"):
        return plain, value.strip().lower() == "true"
    return plain, read_setting([value.strip()])

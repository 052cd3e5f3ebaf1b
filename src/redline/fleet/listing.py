"""The list of a fleet: games × algorithms × seeds × settings, frozen in `fleet.json` with all its versions.

A slot is one training of the list. A change of the list is a further version: slots that it changes get new names, so
that their old runs stay, and undoing it brings the old slots back.
"""

from __future__ import annotations

import json
import math
import re
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from redline import __version__
from redline.errors import UserError
from redline.files import explained, read_json_object, replace_file
from redline.jsonl import SCHEMA, as_json_value, plain_text, tamed
from redline.runs.directory import RunLock, slug

FLEET_JSON, LOCK = "fleet.json", "fleet.lock"
MAX_FLEET_BYTES = 64_000_000
MAX_SLOTS = 10_000
MAX_VERSIONS = 1_000
MAX_NAME_CHARACTERS = 40  # of a slot, without seed and version: a run's folder has the name too
SLOT_NAME = re.compile(r"-s[0-9]+(\.v[0-9]+)?$")
VERSION_NAME = re.compile(r"\.v[0-9]+$")

# what a training of the slower kind does in a minute
LIMITS_PER_MINUTE = {"max-minutes": 1.0, "max-steps": 10_000.0, "max-frames": 40_000.0, "max-episodes": 5.0}

EngineName = Literal["local", "ray", "slurm"]
Order = Literal["longest-first", "as-listed", "shortest-first"]
Setting = str | int | float | bool | list[str | int | float]
Write = Callable[[Path, list[bytes]], None]
SETTING_NAME = re.compile(r"[a-z][a-z0-9]*([.-][a-z0-9]+)*", re.ASCII)
# flags of `redline train` that belong to the fleet, or make sense for one run alone
NO_SETTINGS = frozenset(
    {
        *("env", "env.id", "algo", "model", "seed", "seeds", "log-dir", "plain", "json", "auto", "print-config"),
        *("help", "help-all", "h"),
    }
)


class Slot(msgspec.Struct, frozen=True):
    """One training of a fleet: the flags of `redline train`, and the names that tell it from the others."""

    name: str
    game: str
    algorithm: str
    seed: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    settings: dict[str, Setting]  # by the flags' names, True where a flag has no value; without env, algorithm and seed
    variant: str = ""  # name of its settings, where a list has several

    def __post_init__(self) -> None:
        if slug(self.name) != self.name or not SLOT_NAME.search(self.name):
            raise ValueError(f"{self.name!r} is no name of a slot")
        check_settings(self.settings)
        if ":" in self.game or ":" in str(self.settings.get("recipe", "")):
            raise UserError(
                f"{plain_text(self.game)}: a fleet trains envs of installed packages, not of a typed module"
            )

    @property
    def flags(self) -> list[str]:
        """The flags of `redline train` for this slot."""
        flags = ["--env", self.game, "--model", self.algorithm, "--seed", str(self.seed)]
        for key, value in self.settings.items():
            if isinstance(value, list):
                flags += [f"--{key}", *map(str, value)]
            else:
                flags.append(f"--{key}" if value is True else f"--{key}={value}")
        return flags


class Version(msgspec.Struct, frozen=True):
    """A list of slots, and how it came about."""

    slots: tuple[Slot, ...]
    unix_s: float
    command: str
    undo_to: int | None = None  # place of the version that an undo brings back; None: nothing was changed


class Wishes(msgspec.Struct, frozen=True):
    """How the runs of a fleet are to be placed."""

    engine: EngineName = "local"
    address: str = ""  # of a cluster
    concurrency: Annotated[int, msgspec.Meta(ge=0, le=MAX_SLOTS)] = 0  # runs at a time; 0: as measured
    stagger_s: Annotated[float, msgspec.Meta(ge=0, le=86_400)] = 20.0
    order: Order = "longest-first"
    price_per_hour: Annotated[float, msgspec.Meta(ge=0, le=1e9)] | None = None  # of all machines together


# what a file or flags say → the name in `Wishes`
ASKED = {
    "engine": "engine",
    "engine.address": "address",
    "concurrency": "concurrency",
    "stagger-s": "stagger_s",
    "order": "order",
    "price-per-hour": "price_per_hour",
}
WORDS_OF_WISHES = {
    "engine": "local, ray or slurm",
    "engine.address": "HOST:PORT",
    "concurrency": f"auto, or 1 to {MAX_SLOTS:_} runs at a time",
    "stagger-s": "0 to 86_400 seconds",
    "order": "longest-first, as-listed or shortest-first",
    "price-per-hour": "a price of 0 or more",
}


def read_wish(key: str, value: object) -> tuple[str, object]:
    """Return a wish by its name in `Wishes`; UserError says what it may be."""
    name, plain = ASKED[key], value
    if key == "concurrency":
        plain = 0 if value == "auto" else int(value) if isinstance(value, str) and value.isdecimal() else value
    try:
        if key == "concurrency" and value != "auto" and plain == 0:
            raise ValueError("0 stands for auto in the file alone")
        return name, getattr(msgspec.convert({name: plain}, Wishes), name)
    except (ValueError, msgspec.ValidationError):
        raise UserError(f"{key} is {plain_text(value, 80)!r}: use {WORDS_OF_WISHES[key]}") from None


class Listing(msgspec.Struct, frozen=True):
    """What `fleet.json` holds."""

    name: str
    wishes: Wishes
    versions: tuple[Version, ...]  # the newest last; never empty

    def __post_init__(self) -> None:
        if slug(self.name) != self.name:
            raise ValueError(f"{self.name!r} is no name of a fleet")

    @property
    def slots(self) -> tuple[Slot, ...]:
        """The slots of the newest version."""
        return self.versions[-1].slots

    @property
    def all_slots(self) -> dict[str, Slot]:
        """The slots of all versions, by name."""
        return {slot.name: slot for version in self.versions for slot in version.slots}


@dataclass(frozen=True)
class Part:
    """Some games with some algorithms and seeds, and settings for all of them."""

    games: tuple[str, ...]
    algorithms: tuple[str, ...]
    seeds: tuple[int, ...]
    settings: Mapping[str, Setting]
    variant: str = ""


def make_slots(parts: Iterable[Part]) -> tuple[Slot, ...]:
    """Return the slots of a list, each with a name of its own; UserError if two are the same or there is none."""
    slots = [
        Slot(_name(game, algorithm, part.variant, seed), game, algorithm, seed, dict(part.settings), part.variant)
        for part in parts
        for game in part.games
        for algorithm in part.algorithms
        for seed in part.seeds
    ]
    names = Counter(slot.name for slot in slots)
    if not slots:
        raise UserError("the fleet has no runs: name games, algorithms and seeds")
    if len(slots) > MAX_SLOTS:
        raise UserError(f"the fleet has {len(slots):,} runs: use at most {MAX_SLOTS:,}")
    if twice := next((name for name, count in names.items() if count > 1), None):
        raise UserError(f"the fleet has {twice} twice: keep one, or give one of them a variant")
    return tuple(slots)


def check_settings(settings: Mapping[str, Setting]) -> None:
    """Refuse settings that are none of a run in a fleet; whether `redline train` knows the others is not looked at."""
    for key in settings:
        if key in NO_SETTINGS:
            raise UserError(f"{key} is no setting of a run in a fleet: the list and the fleet itself decide it")
        if not SETTING_NAME.fullmatch(key):
            raise UserError(
                f"setting {plain_text(key)!r}: write the name of a flag of redline train, without dashes before it"
            )


def new_listing(name: str, wishes: Wishes, slots: Sequence[Slot], command: str) -> Listing:
    """Return a list in its first version."""
    return Listing(name, wishes, (Version(tuple(slots), time.time(), command),))


def changed(listing: Listing, only: Sequence[str], settings: Mapping[str, Setting], command: str) -> Listing:
    """Return the list with a further version, in which some slots have other settings and new names.

    `only` holds games, algorithms, variants or slots; empty means all.
    """
    known = {word for slot in listing.slots for word in _words(slot)}
    if unknown := next((word for word in only if word not in known), None):
        raise UserError(f"--only names {plain_text(unknown)!r}, which is not in the fleet: use {_some(sorted(known))}")
    number = len(listing.versions) + 1
    slots = [
        _changed_slot(slot, settings, number) if not only or not _words(slot).isdisjoint(only) else slot
        for slot in listing.slots
    ]
    if slots == list(listing.slots):
        raise UserError(f"{', '.join(settings)}: these runs have that already, so nothing changes")
    return _with_version(listing, slots, command, undo_to=len(listing.versions) - 1)


def undone(listing: Listing, command: str) -> Listing:
    """Return the list with a further version that takes the newest change back."""
    if (place := listing.versions[-1].undo_to) is None:
        raise UserError("there is no change to undo: redline fleet change makes one")
    before = listing.versions[place]
    return _with_version(listing, before.slots, command, undo_to=before.undo_to)


def ordered(slots: Sequence[Slot], order: Order) -> list[Slot]:
    """Return slots in the order in which they start; equally long ones stay as listed."""
    if order == "as-listed":
        return list(slots)
    return sorted(slots, key=expected_minutes, reverse=order == "longest-first")


def expected_minutes(slot: Slot) -> float:
    """Return about how long a slot trains by its limits alone: good enough to order slots, not to plan with."""
    minutes = [
        limit / per_minute
        for name, per_minute in LIMITS_PER_MINUTE.items()
        if isinstance(limit := slot.settings.get(name), int | float)
    ]
    return min(minutes, default=math.inf)


def read_listing(folder: Path) -> Listing:
    """Return the list of a fleet; UserError if the folder holds none, or a damaged one."""
    source = folder / FLEET_JSON
    with explained(UserError, source, before=f"{folder} is not a fleet: "):
        content = tamed(read_json_object(source, max_bytes=MAX_FLEET_BYTES))
    try:
        if content.pop("schema", None) != SCHEMA:
            raise ValueError("of another schema")
        listing = msgspec.convert(content.get("fleet"), Listing)
        places = range(len(listing.versions))
        if not listing.versions or any(
            not version.slots or version.undo_to not in (None, *places) for version in listing.versions
        ):
            raise ValueError("a version is missing")
        if len({slot.name for slot in listing.slots}) != len(listing.slots):
            raise ValueError("a name stands for two slots")
    except (ValueError, UserError, msgspec.MsgspecError) as error:
        raise UserError(f"{source} is damaged, or of another version of Redline: {plain_text(error)}") from None
    return listing


def write_listing(folder: Path, listing: Listing, *, write: Write = replace_file) -> None:
    """Write `fleet.json`: in place of an older one, or by `create_file` where there must be none."""
    content = {"schema": SCHEMA, "redline": __version__, "fleet": msgspec.to_builtins(listing)}
    with explained(UserError, folder, before="cannot write the fleet's list: "):
        write(folder / FLEET_JSON, [(json.dumps(as_json_value(content), indent=1) + "\n").encode()])


def change_listing(folder: Path, change: Callable[[Listing], Listing]) -> tuple[Listing, Listing]:
    """Replace the list of a fleet by what `change` makes of it; return both. One process at a time does that."""
    before = read_listing(folder)  # says so if there is none
    lock = RunLock(folder, LOCK)
    try:
        before = read_listing(folder)
        after = change(before)
        write_listing(folder, after)
    finally:
        lock.release()
    return before, after


def _with_version(listing: Listing, slots: Sequence[Slot], command: str, *, undo_to: int | None) -> Listing:
    if len(listing.versions) >= MAX_VERSIONS:
        raise UserError(f"the fleet was changed {MAX_VERSIONS:,} times: start a new one")
    version = Version(tuple(slots), time.time(), command, undo_to)
    return msgspec.structs.replace(listing, versions=(*listing.versions, version))


def _changed_slot(slot: Slot, settings: Mapping[str, Setting], version: int) -> Slot:
    """Return the successor of a slot; a slot that has these settings already stays, and its run goes on."""
    if (after := {**slot.settings, **settings}) == slot.settings:
        return slot
    stem = VERSION_NAME.sub("", slot.name)
    return msgspec.structs.replace(slot, name=f"{stem}.v{version}", settings=after)


def _name(game: str, algorithm: str, variant: str, seed: int) -> str:
    told = "-".join(filter(None, (game, algorithm, variant)))
    words = slug(told)
    if len(words) > MAX_NAME_CHARACTERS:  # two long names may begin alike: a checksum of the whole parts them
        words = f"{words[: MAX_NAME_CHARACTERS - 9].rstrip('-._')}-{zlib.crc32(told.encode()):08x}"
    return f"{words}-s{seed}"


def _words(slot: Slot) -> set[str]:
    """Return the words by which a change may name a slot."""
    return {slot.name, slot.game, slot.algorithm, *filter(None, [slot.variant])}


def _some(words: Sequence[str]) -> str:
    return ", ".join(words[:10]) + (", …" if len(words) > 10 else "")

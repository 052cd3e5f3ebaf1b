"""`redline fleet start`: train a list of games, algorithms and seeds to the end."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import msgspec
import tyro

from redline.cli.fleet.checking import Question, ask
from redline.cli.fleet.supervising import refuse_second_supervisor, supervise_and_tell
from redline.cli.parsing import Json, Plain, parse
from redline.errors import UserError
from redline.files import create_file, explained, make_folder
from redline.fleet.listing import (
    ASKED,
    FLEET_JSON,
    Listing,
    Setting,
    Wishes,
    new_listing,
    read_listing,
    read_wish,
    write_listing,
)
from redline.runs.directory import slug

FLEETS = Path("fleets")


@dataclass(frozen=True)
class StartFlags:
    """Train games × algorithms × seeds, side by side as far as the machine allows, until all are done.

    All other flags are those of redline train, and count for every run. Ctrl-C saves and stops all runs.
    """

    file: Annotated[Path | None, tyro.conf.Positional, tyro.conf.arg(metavar="[FILE]")] = None
    """TOML file of the list (docs/fleet.md), instead of --games, --model and --seeds."""
    games: Annotated[str | None, tyro.conf.arg(aliases=("--env",))] = None
    """Games, such as pong,breakout:3000 (episodes), or ten."""
    model: Annotated[str | None, tyro.conf.arg(aliases=("--algo",))] = None
    """Algorithms, such as dqn,ppo, or all; dqn if not given."""
    seeds: str | None = None
    """Seeds, such as 1-3 or 1,5,8; 1 if not given."""
    engine: str | None = None
    """Where the runs train: local, ray or slurm; local if not given."""
    engine_address: Annotated[str | None, tyro.conf.arg(name="engine.address")] = None
    """HOST:PORT of a Ray cluster."""
    concurrency: str | None = None
    """Runs at a time: a number, or auto, by what the first run needs; auto if not given."""
    stagger_s: str | None = None
    """Seconds between the starts of two runs; 20 if not given."""
    order: str | None = None
    """Which runs start first: longest-first, as-listed or shortest-first; longest-first if not given."""
    price_per_hour: str | None = None
    """Price of an hour of all machines together."""
    dir: Path | None = None
    """Folder of the fleet. By default fleets/<name>; the same command goes on there."""
    dry_run: bool = False
    """Print the schedule with hours and money, and train nothing."""
    rate: str | None = None
    """For --dry-run: how fast a run trains, in --unit, where its limit is not in minutes."""
    unit: str | None = None
    """Of --rate: episodes (per hour), steps (per second; usual) or frames (the same)."""
    from_: Annotated[tuple[str, ...], tyro.conf.arg(name="from", metavar="RUN…")] = ()
    """For --dry-run: runs that tell the rate."""
    plain: Plain = False
    json: Json = False


SWITCHES = ("--dry-run", "--plain", "--json", "--help", "-h")
WITH_VALUE = (
    *("--games", "--env", "--model", "--algo", "--seeds", "--dir", "--rate", "--unit", "--from"),
    *(f"--{name}" for name in ASKED),
)


def run(args: Sequence[str]) -> int:
    """Write the list, supervise its runs, and return the exit code."""
    own, settings = split(args)
    flags = parse(StartFlags, own, prog="redline fleet start")
    wishes = typed_wishes(flags)
    found = ask(question_of(flags, settings))
    listing = new_listing(
        slug(found.name),
        msgspec.convert(found.wishes | wishes, Wishes),
        found.slots,
        shlex.join(["redline", "fleet", "start", *args]),
    )
    if flags.dry_run:
        from redline.cli.fleet.dry_run import give_schedule

        return give_schedule(listing, flags)
    if listing.wishes.engine == "ray":
        import_module("redline.fleet.engines.ray_cluster").check_address(listing.wishes.address)
    folder = flags.dir or FLEETS / listing.name
    freeze(folder, listing)
    return supervise_and_tell(folder, flags)


def split(args: Sequence[str]) -> tuple[list[str], dict[str, Setting]]:
    """Part the flags of a fleet from those of its runs, which are settings for all of them."""
    own: list[str] = []
    settings: dict[str, Setting] = {}
    rest = list(args)
    while rest:
        flag, equals, value = (word := rest.pop(0)).partition("=")
        if not word.startswith("--"):
            own.append(word)
            continue
        values = [value] if equals else []
        while not equals and flag not in SWITCHES and rest and not rest[0].startswith("--"):
            values.append(rest.pop(0))
            if flag in WITH_VALUE and flag != "--from":
                break
        if flag in (*SWITCHES, *WITH_VALUE):
            own += [word] if equals else [flag, *values]
        else:
            settings[flag.removeprefix("--")] = read_setting(values)
    return own, settings


def read_setting(values: Sequence[str]) -> Setting:
    """Return what follows a flag: numbers as numbers, several values as a list, True if there is none."""
    plain = [_read_value(value) for value in values]
    return True if not plain else plain[0] if len(plain) == 1 else plain


def _read_value(text: str) -> str | int | float:
    for kind in (int, float):
        try:
            if len(text) < 40 and text.strip("+-").lower() not in ("nan", "inf", "infinity"):
                return kind(text)
        except ValueError:
            pass
    return text


def question_of(flags: StartFlags, settings: Mapping[str, Setting]) -> Question:
    """Return what is to be checked."""
    listed = {"--games": flags.games, "--model": flags.model, "--seeds": flags.seeds}
    if flags.file is not None and (typed := [name for name, value in listed.items() if value is not None]):
        raise UserError(f"{flags.file} lists the runs: leave {typed[0]} out, or change the file")
    if flags.file is None and flags.games is None and settings.keys().isdisjoint(("recipe", "config")):
        raise UserError("fleet start needs a list: a file (redline fleet start fleet.toml), or --games ten --model ppo")
    file = None if flags.file is None else str(flags.file)
    return Question(file, flags.games, flags.model, flags.seeds, dict(settings))


def freeze(folder: Path, listing: Listing) -> None:
    """Write the list into a new folder; one that has the same list goes on."""
    if (folder / FLEET_JSON).exists():
        before = read_listing(folder)
        if before.versions[0].slots != listing.slots:
            raise UserError(
                f"{folder} is a fleet with another list: use another --dir, or redline fleet change {folder}"
            )
        if before.wishes != listing.wishes:
            refuse_second_supervisor(folder)
            write_listing(folder, msgspec.structs.replace(before, wishes=listing.wishes))
        return
    with explained(UserError, folder, before="cannot make a fleet: ", after=": use another --dir"):
        make_folder(folder, mode=0o700)
        if any(folder.iterdir()):
            raise UserError(f"{folder} is not empty and no fleet: use another --dir")
    write_listing(folder, listing, write=create_file)  # another start may be quicker


def typed_wishes(flags: object) -> dict[str, Any]:
    """Return the wishes that flags name, by their names in `Wishes`."""
    return dict(read_wish(key, value) for key in ASKED if (value := _typed(flags, key)) is not None)


def _typed(flags: object, key: str) -> str | int | float | None:
    value: str | None = getattr(flags, key.replace("-", "_").replace(".", "_"))
    if key in ("stagger-s", "price-per-hour") and value is not None:
        number = _read_value(value)
        return number if not isinstance(number, str) else value
    return value

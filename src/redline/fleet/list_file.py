"""A list of trainings as a user writes it: `fleet.toml`, or the flags of `redline fleet start`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redline.algorithms.catalog import ALGORITHMS, canonical_name, find_algorithm
from redline.envs.game_lists import TEN, GameLimit, parse_games
from redline.errors import UserError, check_range, unknown_name
from redline.files import read_bounded
from redline.fleet.listing import ASKED, Part, Setting, Slot, make_slots, read_wish
from redline.jsonl import plain_text
from redline.recipes import MAX_BYTES, find_recipe, read_toml
from redline.runs.manifest import RUN_JSON
from redline.runs.run_json import read_run_json
from redline.runtime.config import flatten

ALL = "all"
MOST_WORDS = 5  # in the name of a fleet
LISTED = ("games", "models", "seeds", "recipe", "settings", "variants")
TOP = ("name", *LISTED, "runs", "overrides", *ASKED)
OVERRIDE = ("games", "models", "variants", "recipe", "settings")
SPELLINGS = {"game": "games", "env": "games", "model": "models", "algo": "models", "algorithms": "models"}
SPELLINGS |= {"seed": "seeds", "variant": "variants", "run": "runs", "override": "overrides"}
SPELLINGS |= {"address": "engine.address"}
LIMITS = ("max-steps", "max-frames", "max-episodes", "max-minutes", "target-return", "target-eval-return", "recipe")
MAX_SEED = 2**31 - 1
MAX_SEEDS, MAX_SEEDS_CHARACTERS = 1_000, 40  # in one range
ASSIGNED = re.compile(r"\s*[\"']?([A-Za-z][\w.-]*)[\"']?\s*=")  # in TOML

Table = Mapping[str, Any]


@dataclass(frozen=True)
class Asked:
    """A list as it was asked for."""

    name: str
    slots: tuple[Slot, ...]
    wishes: Mapping[str, Any] = field(default_factory=dict)  # those of a file, by the names of `Wishes`


def read_list(path: Path, typed: Mapping[str, Setting]) -> Asked:
    """Return what a file lists; typed settings override its own. UserError names the line where that is clear."""
    content = read_toml(path, "fleet file")
    try:
        content = _checked(content, TOP, "")
        name = content.get("name", path.stem)
        if not isinstance(name, str):
            raise UserError(f"name is {plain_text(name, 80)}: write it in quotes")
        wishes = dict(read_wish(key, content[key]) for key in ASKED if key in content)
        return Asked(name, make_slots(_parts(content, typed)), wishes)
    except UserError as error:
        raise UserError(f"{path}{line_of(path, str(error))}: {error}") from None


def list_of_flags(games: str | None, models: str | None, seeds: str, settings: Mapping[str, Setting]) -> Asked:
    """Return what flags list; a recipe or a file of settings names the game and the algorithm where no flag does."""
    own = dict(settings)
    game, model = _named_by(own.get("config"))
    asked = {"games": games or game, "models": models or model, "seeds": seeds, "recipe": own.pop("recipe", None)}
    slots = make_slots(_parts({key: value for key, value in asked.items() if value is not None}, own))
    words = dict.fromkeys(word for slot in slots for word in (slot.game, slot.algorithm))
    listed = [TEN] if games == TEN else [slots[0].game]
    listed += [ALL] if models == ALL else [word for word in words if word in ALGORITHMS]
    others = [word for word in words if word not in ALGORITHMS and word not in listed and games != TEN]
    return Asked("-".join([*listed, *others][:MOST_WORDS]), slots)


def _named_by(config: object) -> tuple[str | None, str | None]:
    """Return the game and the algorithm that a file of settings names."""
    if not isinstance(config, str):
        return None, None
    path = Path(config)
    if path.name == RUN_JSON:
        run = read_run_json(path.parent)
        return str(run["config"]["env"]["id"]), str(run["algorithm"])
    content = read_toml(path, "config file")
    env, model = content.get("env"), content.get("model", content.get("algo"))
    env = env.get("id") if isinstance(env, Mapping) else env
    return env if isinstance(env, str) else None, model if isinstance(model, str) else None


def line_of(path: Path, message: str) -> str:
    """Return ` line N` if one line of a file sets what a message is about; empty if that is unclear."""
    told = message.replace("_", "-").replace("--", " ")
    found: dict[str, list[int]] = {}
    with suppress(OSError, UserError):
        content = read_bounded(path, max_bytes=MAX_BYTES, follow_links=True).decode(errors="replace")
        for number, line in enumerate(content.splitlines(), 1):
            if assigned := ASSIGNED.match(line):
                found.setdefault(assigned[1].replace("_", "-"), []).append(number)
    hits = {key: re.search(rf"(?<![\w-]){re.escape(key)}(?![\w-])", told) for key in found}
    # a message begins with what is wrong; of those that begin there, the longest says most
    places = {key: (hit.start(), -len(key)) for key, hit in hits.items() if hit is not None}
    lines = found[min(places, key=places.__getitem__)] if places else []
    return f" line {lines[0]}" if len(lines) == 1 else ""


def read_seeds(value: object) -> tuple[int, ...]:
    """Return the seeds of a number, a list of numbers, or a text such as 1-3,7, each once."""
    if value == []:
        raise UserError("seeds are empty: use a range such as 1-3")
    if isinstance(value, list):
        return tuple(dict.fromkeys(seed for item in value for seed in read_seeds(item)))
    seeds: list[int] = []
    for part in str(value).split(","):
        first, dash, last = part.strip().partition("-")
        is_short = len(part) <= MAX_SEEDS_CHARACTERS
        if not (is_short and first.isdecimal() and (last.isdecimal() or not dash)):
            raise UserError(f"seeds is {plain_text(value, 80)!r}: use a range such as 1-3, or a list such as 1,5,8")
        low, high = int(first), int(last or first)
        if not low <= high < low + MAX_SEEDS:
            raise UserError(f"seeds {part.strip()} names no seeds, or more than {MAX_SEEDS}: use a range such as 1-3")
        check_range("seeds", high, 0, MAX_SEED)
        seeds += range(low, high + 1)
    return tuple(dict.fromkeys(seeds))


def _parts(content: Table, typed: Mapping[str, Setting]) -> Iterator[Part]:
    """Yield games × algorithms × variants, each with the settings that it will have."""
    overrides = [_checked(table, OVERRIDE, f"overrides {number}: ") for number, table in _tables(content, "overrides")]
    runs: list[Table] = [
        _merged(content, _checked(table, LISTED, f"runs {number}: ")) for number, table in _tables(content, "runs")
    ]
    unused = set(range(len(overrides)))
    for entry in runs or [content]:
        recipe = None if (name := _text(entry, "recipe")) is None else find_recipe(name)
        usual = None if recipe is None or recipe.game == "any" else recipe.game
        variants = _variants(entry)
        for game, is_asked in _games(entry, usual):
            for algorithm in _models(entry, "dqn" if recipe is None else recipe.algorithm):
                for variant, varied in variants.items():
                    settings: dict[str, Setting] = {} if name is None else {"recipe": name}
                    settings |= _settings(entry) | varied
                    for place, override in enumerate(overrides):
                        if _suits(override, game.game, algorithm, variant):
                            unused.discard(place)
                            settings |= _own_recipe(override) | _settings(override)
                    settings |= typed
                    limit = _limit(game, settings, is_asked=is_asked)
                    seeds = read_seeds(entry.get("seeds", 1))
                    yield Part((game.game,), (algorithm,), seeds, {**limit, **settings}, variant)
    if unused:
        raise UserError(f"overrides {min(unused) + 1} fits no run of the fleet: correct what it names")


def _limit(game: GameLimit, settings: Mapping[str, Setting], *, is_asked: bool) -> dict[str, Setting]:
    """Return the episodes of `pong:3000`; those that `ten` has count where nothing else limits a run."""
    if game.limit is None or not (is_asked or settings.keys().isdisjoint(LIMITS)):
        return {}
    return {"max-episodes": game.limit, "max-steps": "None"}


def _games(entry: Table, usual: str | None) -> list[tuple[GameLimit, bool]]:
    """Return the games of an entry, and whether the limit of each was asked for."""
    if "games" not in entry and usual is None:
        raise UserError("games are missing: name some, such as pong,breakout, or ten")
    texts = [item for text in _texts(entry, "games", usual) for item in text.split(",") if item.strip()]
    found = [(game, text.strip().lower() != TEN) for text in texts for game in parse_games(text)]
    names = [game.game for game, _ in found]
    if not names:
        raise UserError("games are empty: name some, such as pong,breakout, or ten")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise UserError(f"games has {twice} twice: keep one")
    return found


def _models(entry: Table, usual: str) -> list[str]:
    names = [name.strip() for text in _texts(entry, "models", usual) for name in text.split(",") if name.strip()]
    if not names:
        raise UserError("models are empty: name algorithms, such as dqn,ppo")
    known = [known for name in names for known in (ALGORITHMS if name.lower() == ALL else [canonical_name(name)])]
    for name in known:
        find_algorithm(name)
    if twice := next((name for name in known if known.count(name) > 1), None):
        raise UserError(f"models has {twice} twice: keep one")
    return known


def _variants(entry: Table) -> dict[str, dict[str, Setting]]:
    """Return settings by the names of their variants; one without a name where there are none."""
    tables = entry.get("variants", {"": {}})
    if not isinstance(tables, Mapping) or not all(isinstance(table, Mapping) for table in tables.values()):
        raise UserError("variants is no table of tables: write [variants.NAME] above the settings of each")
    return {name: _flat(table) for name, table in tables.items()}


def _suits(override: Table, game: str, algorithm: str, variant: str) -> bool:
    """Tell whether an override is for a part: all that it names must hold."""
    games = [found.game for found, _ in _games(override, None)] if "games" in override else [game]
    models = _models(override, algorithm) if "models" in override else [algorithm]
    return game in games and algorithm in models and variant in _texts(override, "variants", variant)


def _own_recipe(table: Table) -> dict[str, Setting]:
    name = _text(table, "recipe")
    return {} if name is None else {"recipe": find_recipe(name).name}


def _settings(table: Table) -> dict[str, Setting]:
    settings = table.get("settings", {})
    if not isinstance(settings, Mapping):
        raise UserError("settings is no table: write [settings] above lines such as batch-size = 64")
    return _flat(settings)


def _flat(settings: Mapping[str, Any]) -> dict[str, Setting]:
    """Return nested settings by the names of their flags."""
    found = {key.replace("_", "-"): value for key, value in flatten(settings)}
    for key, value in list(found.items()):
        if value is None and any(other.startswith(f"{key}.") for other in found):
            del found[key]  # a table without a name of its own
        elif isinstance(value, list) and not all(isinstance(item, str | int | float) for item in value):
            raise UserError(f"{key} is {plain_text(value, 80)}: use numbers or text in a list")
        elif not isinstance(value, str | int | float | list):
            raise UserError(f"{key} is {plain_text(value, 80)}: use a number, text, true, false or a list")
    return found


def _merged(above: Table, table: Table) -> dict[str, Any]:
    """Return an entry with what the file says for all of them."""
    shared = {key: above[key] for key in LISTED if key in above}
    settings = {**_settings(above), **_settings(table)}
    return {**shared, **table, "settings": settings}


def _checked(table: object, known: Sequence[str], where: str) -> dict[str, Any]:
    """Return a table with our spelling of its keys; UserError for one that is unknown or given twice."""
    if not isinstance(table, Mapping):
        raise UserError(f"{where}this is no table")
    found: dict[str, Any] = {}
    for key, value in table.items():
        name = SPELLINGS.get(plain := key.replace("_", "-"), plain)
        if name not in known:
            raise UserError(f"{where}{unknown_name('key', key, known)} (settings of the runs go below [settings])")
        if name in found:
            raise UserError(f"{where}{key} and {name} mean the same: keep one")
        found[name] = value
    return found


def _tables(content: Table, key: str) -> Iterator[tuple[int, object]]:
    tables = content.get(key, [])
    if not isinstance(tables, list):
        raise UserError(f"{key} is no list of tables: write [[{key}]] above each")
    return iter(list(enumerate(tables, 1)))


def _text(table: Table, key: str) -> str | None:
    value = table.get(key)
    if value is not None and not isinstance(value, str):
        raise UserError(f"{key} is {plain_text(value, 80)}: write it in quotes")
    return value


def _texts(table: Table, key: str, usual: str | None) -> list[str]:
    """Return a text or a list of them."""
    value = table.get(key, usual)
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        raise UserError(f"{key} is {plain_text(value, 80)}: write names in quotes")
    return texts

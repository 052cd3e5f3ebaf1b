"""Files of settings in TOML, and recipes: settings known to work for a game, whose files lie beside this one.

A recipe is a configuration file: settings named as the flags of `redline train` are. Its table `recipe` says what it is
for, what departs from the usual protocol, and what each seed of its record reached.
"""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from redline.errors import UserError, unknown_name
from redline.files import explained, read_bounded, reason_of, replace_file
from redline.jsonl import plain_text

TABLE = "recipe"  # in the file, beside the settings
SUFFIX = ".toml"
MAX_BYTES = 1_000_000
MAX_TABLES = 32


@dataclass(frozen=True)
class Result:
    """What one seed of a recipe's record reached."""

    seed: int
    minutes: float  # until it was solved, or until the run ended
    score: float  # mean of the last evaluation
    solved: bool | None = None  # None: the recipe has no target


@dataclass(frozen=True)
class Recipe:
    """Settings, and why one may trust them."""

    name: str
    text: str  # of the file
    about: str
    departs: str  # from the usual protocol
    record: str  # in benchmarks/records; "" if there is none yet
    results: tuple[Result, ...]
    settings: Mapping[str, Any]

    @property
    def algorithm(self) -> str:
        """Return the algorithm that the recipe is for."""
        return str(self.settings.get("model", "dqn"))

    @property
    def game(self) -> str:
        """Return the game that the recipe is for; "any" if it names none."""
        env = self.settings.get("env", {})
        return str(env.get("id", "any")) if isinstance(env, Mapping) else str(env)


def recipe_names() -> list[str]:
    """Return the names of all recipes."""
    found = (entry.name for entry in files(__name__).iterdir())
    return sorted(name.removesuffix(SUFFIX) for name in found if name.endswith(SUFFIX))


def find_recipe(name: str) -> Recipe:
    """Return the recipe called `name`."""
    if name not in (known := recipe_names()):
        if name.endswith(SUFFIX):
            raise UserError(f"{name} is a file, not the name of a recipe: use redline train --config {name}")
        raise unknown_name("recipe", name, known)
    return parse_recipe(name, (files(__name__) / f"{name}{SUFFIX}").read_text(encoding="utf-8"))


def parse_recipe(name: str, text: str) -> Recipe:
    """Return the recipe that a file holds."""
    settings, told = without_table(tomllib.loads(text))
    return Recipe(
        name=name,
        text=text,
        about=str(told.get("about", "")),
        departs=str(told.get("departs", "nothing")),
        record=str(told.get("record", "")),
        results=tuple(Result(**row) for row in told.get("results", [])),
        settings=settings,
    )


def without_table(content: Mapping[str, Any]) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Part the settings of a file from what it tells of itself as a recipe."""
    told = content.get(TABLE, {})
    if not isinstance(told, Mapping):
        raise UserError(f"setting {TABLE} is {told!r}, but it is a table that describes a recipe: use [{TABLE}]")
    return {key: value for key, value in content.items() if key != TABLE}, told


# Any file of settings


def read_toml(path: Path, what: str) -> dict[str, Any]:
    """Read a TOML file; `what` names it in the line that says what is wrong with it."""
    try:
        content = tomllib.loads(read_bounded(path, max_bytes=MAX_BYTES, follow_links=True).decode())
    except OSError as error:
        raise UserError(f"{what} {path} can't be read: {reason_of(error)}") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{what} {path} is not TOML: {plain_text(error)}") from None
    if _is_deeper(content, MAX_TABLES):
        raise UserError(f"{what} {path} has more than {MAX_TABLES} tables inside each other: is it the right file?")
    return content


def _is_deeper(value: object, levels: int) -> bool:
    """Tell whether tables and lists lie inside each other more than so many times."""
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels < 0 or any(_is_deeper(item, levels - 1) for item in items)


def to_toml(settings: Mapping[str, Any], comment: Sequence[str] = ()) -> str:
    """Return flat settings as TOML; a part with settings of its own is a table with a `name`."""
    lines = [f"# {' '.join(line.split())}".rstrip() for line in comment]
    for key, value in settings.items():
        has_settings = any(other.startswith(f"{key}.") for other in settings)
        name = f"{key}.{'id' if key == 'env' else 'name'}" if has_settings or key == "env" else key
        lines.append(f"{name} = {to_toml_value(value)}")
    return "\n".join(lines) + "\n"


def to_toml_value(value: Any) -> str:
    """Return a plain value as TOML."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(to_toml_value, value))}]"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    raise UserError(f"a setting is {value!r}: use numbers, text, true, false or lists of these")


def write_settings(path: Path, settings: Mapping[str, Any], comment: Sequence[str] = ()) -> None:
    """Write a file of settings, whole or not at all."""
    with explained(UserError, path, before="cannot write "):
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, [to_toml(settings, comment).encode()])

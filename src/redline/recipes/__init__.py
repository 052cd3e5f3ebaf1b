"""Recipes: settings for a game that are known to work, each with what it reached; the TOML files lie beside this one.

A recipe is a configuration file: settings named as the flags of `redline train` are. Its table `recipe` says what it is
for, what departs from the usual protocol, and what each seed of its record reached.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from redline.errors import UserError, unknown_name

TABLE = "recipe"  # in the file, beside the settings
SUFFIX = ".toml"


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

"""Search spaces: which settings vary and how far, from TOML files; every bound is tried on a real job."""

import json
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

from redline.errors import UserError, unknown_name
from redline.jsonl import plain_text

LARGEST = 2**53  # beyond it, floats skip integers
FIXED = "fixed"
NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
RANGE_KEYS = ("low", "high", "log", "choices")
HOW = "use {low = …, high = …} or {choices = […]}, or put it under [fixed]"
# settings that the search itself decides, and the flag for each
OWNED: dict[str, str] = {
    **dict.fromkeys(("env", "env.id"), "--env"),
    **dict.fromkeys(("algo", "model"), "--model"),
    **dict.fromkeys(("seed", "log-dir", "config", "recipe", "json", "plain"), ""),
    **dict.fromkeys(("learner.threads", "actor.threads"), "--side-by-side"),
    "max-minutes": "--minutes-per-trial",
    **dict.fromkeys(("target-return", "target-eval-return"), "--goal"),
}

SettingsCheck = Callable[[Mapping[str, Any]], object]  # raises UserError for invalid settings


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included."""

    low: float
    high: float
    log: bool = False
    is_int: bool = False

    def corners(self) -> list[Any]:
        """Return its bounds."""
        return [self.low] if self.low == self.high else [self.low, self.high]

    def holds(self, value: Any) -> bool:
        """Tell whether a value is in it."""
        is_number = isinstance(value, int if self.is_int else int | float) and not isinstance(value, bool)
        return is_number and self.low <= value <= self.high

    def to_plain(self) -> dict[str, Any]:
        """Return it in the form of the file."""
        return {"low": self.low, "high": self.high, **({"log": True} if self.log else {})}


@dataclass(frozen=True)
class Choices:
    """A few values without an order, each as JSON text, because Optuna can't draw lists."""

    texts: tuple[str, ...]

    def corners(self) -> list[Any]:
        """Return all values."""
        return [json.loads(text) for text in self.texts]

    def holds(self, value: Any) -> bool:
        """Tell whether a value is in it."""
        return json.dumps(value) in self.texts

    def to_plain(self) -> dict[str, Any]:
        """Return them in the form of the file."""
        return {"choices": self.corners()}


Dimension = Range | Choices


@dataclass(frozen=True)
class Space:
    """Settings that vary, and settings that all runs share, by the names of their flags."""

    name: str  # of the file
    dimensions: Mapping[str, Dimension]
    fixed: Mapping[str, Any]

    def to_plain(self) -> dict[str, Any]:
        """Return it in the form of its file."""
        varied = {key: dimension.to_plain() for key, dimension in self.dimensions.items()}
        return {**varied, FIXED: dict(self.fixed)}


def describe_settings(settings: Mapping[str, Any]) -> str:
    """Return settings in one line."""
    return ", ".join(f"{key} {describe_value(value)}" for key, value in settings.items())


def describe_value(value: Any) -> str:
    """Return a setting's value in short."""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def shipped_space(family: str, *, sees_pictures: bool) -> tuple[str, dict[str, Any]]:
    """Return the name and the content of the space that Redline ships for a family of algorithms."""
    name = f"{family}-{'pictures' if sees_pictures else 'vectors'}.toml"
    return name, tomllib.loads(files("redline.tune").joinpath("spaces", name).read_text(encoding="utf-8"))


def parse_space(name: str, content: Mapping[str, Any]) -> Space:
    """Return the space that a file describes; refuse mistakes that need no job to be seen."""
    fixed_table = content.get(FIXED, {})
    if not isinstance(fixed_table, Mapping):
        raise UserError(f"{name}: fixed is {plain_text(fixed_table)}: make it a table, [fixed]")
    fixed = [(key.removesuffix(".name"), value) for key, value in _walk(fixed_table, lambda _: True)]
    varied = list(_walk({key: value for key, value in content.items() if key != FIXED}, _holds_tables))
    keys = [key for key, _ in (*varied, *fixed)]
    for key in keys:
        if not NAME.fullmatch(key):
            what = f"{plain_text(repr(key))} is not the name of a setting"
            raise UserError(f"{name}: {what}: use the flags' names, such as optimizer.lr")
        if key in OWNED:
            how = f"use {OWNED[key]}" if OWNED[key] else "leave it out"
            raise UserError(f'{name}: the search itself decides "{key}": {how}')
        if keys.count(key) > 1:
            raise UserError(f'{name}: "{key}" is given twice: keep one')
    if not varied:
        raise UserError(f'{name} lets nothing vary: add a line such as "optimizer.lr" = {{low = 1e-4, high = 1e-3}}')
    dimensions: dict[str, Dimension] = {}
    for key, given in varied:
        try:
            dimensions[key] = _dimension(given)
        except UserError as error:
            raise UserError(f'{name}, "{key}": {error}') from None
    return Space(name=name, dimensions=dimensions, fixed=dict(fixed))


def check_space(space: Space, check: SettingsCheck) -> Space:
    """Try every bound and choice on a job with default settings; return the space with integer ranges marked."""

    def try_out(where: str, settings: Mapping[str, Any]) -> None:
        try:
            check({**space.fixed, **settings})
        except UserError as error:
            raise UserError(f"{space.name}, {where}: {error}") from None

    try_out("[fixed]", {})
    dimensions: dict[str, Dimension] = {}
    for key, given in space.dimensions.items():
        dimension = _with_type(space, key, given, check) if isinstance(given, Range) else given
        for value in dimension.corners():
            try_out(f'"{key}"', {key: value})
        dimensions[key] = dimension
    return replace(space, dimensions=dimensions)


def _with_type(space: Space, key: str, given: Range, check: SettingsCheck) -> Range:
    """Return a range of integers if the setting takes no others."""
    as_float = replace(given, low=float(given.low), high=float(given.high))
    if not (isinstance(given.low, int) and isinstance(given.high, int)):
        return as_float
    try:
        check({**space.fixed, key: as_float.low})
    except UserError:
        return replace(given, is_int=True)
    return as_float


def _walk(
    table: Mapping[str, Any], is_inner: Callable[[Mapping[str, Any]], bool], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    """Yield (dotted name, value); a file may write names with dots or as inner tables."""
    for key, value in table.items():
        name = prefix + canonical_key(key)
        if isinstance(value, Mapping) and is_inner(value):
            yield from _walk(value, is_inner, f"{name}.")
        else:
            yield name, value


def _holds_tables(table: Mapping[str, Any]) -> bool:
    return bool(table) and all(isinstance(value, Mapping) for value in table.values())


def _dimension(given: Any) -> Dimension:
    if not isinstance(given, Mapping):
        raise UserError(f"it is {plain_text(repr(given))}: {HOW}")
    for key in given:
        if key not in RANGE_KEYS:
            raise unknown_name("key of a range", str(key), RANGE_KEYS)
    if "choices" in given:
        if len(given) > 1:
            raise UserError("it has choices and a range: keep one of them")
        return _choices(given["choices"])
    for key in ("low", "high"):
        if key not in given:
            raise UserError(f"{key} is missing: {HOW}")
        value = given[key]
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) <= LARGEST:
            raise UserError(f"{key} is {plain_text(repr(value))}: use a finite number, up to 2^53")
    low, high, log = given["low"], given["high"], given.get("log", False)
    if not isinstance(log, bool):
        raise UserError(f"log is {plain_text(repr(log))}: use true or false")
    if low > high:
        raise UserError(f"low is {low} and high is {high}: exchange them")
    if log and low <= 0:
        raise UserError(f"low is {low}, which has no logarithm: use a low above 0, or leave log out")
    return Range(low=low, high=high, log=log)


def _choices(values: Any) -> Choices:
    if not isinstance(values, list) or not values:
        raise UserError(f"choices are {plain_text(repr(values))}: use a list of at least one value")
    try:
        texts = tuple(json.dumps(value, allow_nan=False) for value in values)
    except (TypeError, ValueError):
        said = plain_text(repr(values))
        raise UserError(f"choices are {said}: use finite numbers, text, true, false or lists of these") from None
    if len(set(texts)) < len(texts):
        raise UserError("a choice is there twice: keep one")
    return Choices(texts=texts)


def canonical_key(key: str) -> str:
    """Return a setting's name in the form of its flag: `optimizer.clip_norm` is optimizer.clip-norm."""
    return key.strip().lower().replace("_", "-")

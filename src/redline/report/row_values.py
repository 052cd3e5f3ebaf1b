"""Values of rows that may hold anything: a number, a text or a setting, and None where it is something else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from redline.records import Row

LARGEST = 1e100  # squares and sums of such numbers are still finite
UNIX_S = (1e9, 1e11)  # a clock that was never set lies outside
MAX_DEPTH = 8
MAX_TEXT_CHARACTERS = 500


def as_number(value: object) -> float | None:
    """Return a finite number, None for anything else."""
    if isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST < value < LARGEST:  # false for NaN
        return float(value)
    return None


def number(row: Mapping[str, Any], key: str) -> float | None:
    """Return a field that is a number."""
    return as_number(row.get(key))


def numbers(rows: list[Row], key: str) -> list[float]:
    """Return a field of all rows in which it is a number."""
    return [value for row in rows if (value := as_number(row.get(key))) is not None]


def moment(row: Mapping[str, Any]) -> float | None:
    """Return when a row was written, None where its clock can't be right."""
    return as_moment(row.get("unix_s"))


def as_moment(value: object) -> float | None:
    """Return a time of the wall clock, None where it can't be one."""
    unix_s = as_number(value)
    return unix_s if unix_s is not None and UNIX_S[0] <= unix_s <= UNIX_S[1] else None


def text(row: Mapping[str, Any], key: str) -> str | None:
    """Return a field that is a text, on one line."""
    value = row.get(key)
    return one_line(value) if isinstance(value, str) else None


def role_of(episode: Mapping[str, Any]) -> str:
    """Return who played an episode; foreign code may not tell, and then it was played while training."""
    return text(episode, "role") or "actor"


def one_line(value: str) -> str:
    """Return a text without line breaks and control characters, and not endless."""
    short = value[: MAX_TEXT_CHARACTERS + 1]
    plain = "".join(character if character.isprintable() else " " for character in short).strip()
    return f"{plain[:MAX_TEXT_CHARACTERS]}…" if len(short) > MAX_TEXT_CHARACTERS else plain


def members(row: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the objects of a field that is a list of them."""
    value = row.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def part(row: Mapping[str, Any] | None, key: str) -> Mapping[str, Any]:
    """Return a field that is an object, {} for anything else."""
    value = None if row is None else row.get(key)
    return value if isinstance(value, dict) else {}


def setting(run: Mapping[str, Any] | None, name: str) -> object:
    """Return a setting of run.json by its dotted name, None where it has none."""
    value: object = part(run, "config")
    for key in name.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def without_depth(value: object, *, depth: int = 0) -> object:
    """Return JSON that is nested no deeper than any of ours: what lies below becomes null."""
    if isinstance(value, dict | list) and depth >= MAX_DEPTH:
        return None
    if isinstance(value, dict):
        return {key: without_depth(item, depth=depth + 1) for key, item in value.items()}
    if isinstance(value, list):
        return [without_depth(item, depth=depth + 1) for item in value]
    return value

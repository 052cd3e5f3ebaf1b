"""Jobs as plain data and back: what `run.json` holds and what a configuration file may say."""

import dataclasses
import types
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from redline.algorithms.catalog import PARTS, find_part, part_name
from redline.errors import UserError, unknown_name
from redline.runtime.job import Job

T = TypeVar("T")

NONE = "none"  # in a file, for a setting that may be None: TOML has no word for it

# these parts of a job have no prefix on the command line, and so none in a file
FLAT = ("algorithm", "limits", "recording")


def to_settings(job: Job) -> dict[str, Any]:
    """Return the job as nested plain data, keyed as on the command line."""
    settings: dict[str, Any] = _to_plain(job)
    for name in FLAT:
        settings |= settings.pop(name)
    return settings


def from_settings(job: Job, settings: Mapping[str, Any]) -> Job:
    """Return `job` with what `settings` says replaced; unknown keys and wrong types are the user's to mend."""
    rest: dict[str, Any] = {}
    for key, value in settings.items():
        if _key(key) in rest:
            raise UserError(f"setting {key} is given twice, as {_key(key)} too: keep one")
        rest[_key(key)] = value
    if isinstance(rest.get("env"), str):  # `env = "pong"` as on the command line
        rest["env"] = {"id": rest["env"]}
    flat: dict[str, dict[str, Any]] = {}
    for name in FLAT:
        known = {field.name for field in dataclasses.fields(getattr(job, name))}
        flat[name] = {key: rest.pop(key) for key in list(rest) if _key(key) in known}
    known_keys = [key for key, _ in flatten(to_settings(job))]
    for name in FLAT:
        if name in rest:
            raise unknown_name("setting", name, known_keys)
    return _replace(job, rest | {name: part for name, part in flat.items() if part}, path="", known=known_keys)


def flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Walk nested settings as (dotted key, value)."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield prefix + key, value.get("name")
            yield from flatten(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _to_plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        plain = {}
        for field in dataclasses.fields(value):
            part = getattr(value, field.name)
            plain[field.name] = _to_plain(part)
            if field.name in PARTS:
                plain[field.name] = {"name": part_name(part), **plain[field.name]}
        return plain
    if isinstance(value, tuple):
        return [_to_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _key(key: str) -> str:
    return key.replace("-", "_")


def _replace(value: T, settings: Mapping[str, Any], *, path: str, known: list[str]) -> T:
    hints = get_type_hints(type(value))
    changes: dict[str, Any] = {}
    for given, wanted in settings.items():
        key, setting = _key(given), wanted
        if key not in hints or key not in {field.name for field in dataclasses.fields(value)}:  # type: ignore[arg-type]
            raise unknown_name("setting", path + given, known)
        current = getattr(value, key)
        if key in PARTS and isinstance(setting, str):
            setting = {"name": setting}
        if key in PARTS and isinstance(setting, Mapping) and "name" in setting:
            found = find_part(key, str(setting["name"]))
            current = current if type(found) is type(current) else found
            setting = {k: v for k, v in setting.items() if k != "name"}
        if dataclasses.is_dataclass(current) and isinstance(setting, Mapping):
            inner = path if key in FLAT and not path else f"{path}{key}."
            changes[key] = _replace(current, setting, path=inner, known=known)
        else:
            changes[key] = _convert(setting, hints[key], key=path + key)
    return dataclasses.replace(value, **changes)  # type: ignore[type-var]


def _convert(value: Any, hint: Any, *, key: str) -> Any:
    """Check a plain value against a field's type, widening int → float and str (`record = 3`) and list → tuple."""
    if get_origin(hint) in (Union, types.UnionType):
        if value in (None, NONE) and type(None) in get_args(hint):
            return None
        (hint,) = (option for option in get_args(hint) if option is not type(None))
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise UserError(f"setting {key} is {value!r}: use {' or '.join(map(str, get_args(hint)))}")
        return value
    if hint is Path and isinstance(value, str):
        return Path(value)
    if hint in (float, str) and isinstance(value, int) and not isinstance(value, bool):
        return hint(value)
    if get_origin(hint) is tuple and isinstance(value, list | tuple):
        return tuple(_convert(item, get_args(hint)[0], key=key) for item in value)
    if isinstance(hint, type) and isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    wanted = getattr(hint, "__name__", str(hint))
    raise UserError(f"setting {key} is {value!r}, but it takes a value of type {wanted}")

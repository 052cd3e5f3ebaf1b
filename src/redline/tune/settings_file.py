"""TOML files of settings, read and written: one line for each setting, with the name of its flag."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from redline.algorithms.catalog import PARTS
from redline.errors import UserError
from redline.files import explained, read_bounded, reason_of, replace_file
from redline.jsonl import plain_text

MAX_BYTES = 1_000_000
MAX_TABLES = 32


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


def canonical_key(key: str) -> str:
    """Return a setting's name in the form of its flag: `optimizer.clip_norm` is optimizer.clip-norm."""
    return key.strip().lower().replace("_", "-")


def to_toml(settings: Mapping[str, Any], comment: Sequence[str] = ()) -> str:
    """Return flat settings as TOML; a part with settings of its own is a table with a `name`."""
    lines = [f"# {' '.join(line.split())}".rstrip() for line in comment]
    for key, value in settings.items():
        has_settings = any(other.startswith(f"{key}.") for other in settings)
        name = f"{key}.{'name' if key in PARTS else 'id'}" if has_settings or key == "env" else key
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

"""Settings as TOML for `redline train --config`: one line each, with the names of the flags."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from redline.algorithms.catalog import PARTS
from redline.errors import UserError
from redline.runs.atomic import replace_file
from redline.runs.errors import explain


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
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, [to_toml(settings, comment).encode()])
    except OSError as error:
        raise UserError(f"cannot write {explain(error, path)}") from error

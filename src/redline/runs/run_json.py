"""`run.json`: what a run was asked to do and where, with a checksum, and a copy in every checkpoint."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypedDict

import msgspec

from redline.errors import AlteredError, DamagedError, UserError
from redline.files import explain, read_bounded, read_json_object
from redline.jsonl import SCHEMA, as_json_value, plain_text, tamed
from redline.runs.manifest import CHECKPOINTS, RUN_COPY, RUN_JSON, checkpoint_folders

MAX_RUN_JSON_BYTES = 16_000_000
MAX_TOLD_CHANGES = 3


class Resumed(TypedDict, total=False):
    """What `run.json` says of a resume."""

    host: dict[str, str | int | None]
    versions: dict[str, str | None]
    device: str


class RunJson(TypedDict, total=False):
    """What readers rely on in `run.json`."""

    schema: int
    algorithm: str
    protocol: str
    created_unix_s: float
    resumes: list[Resumed]
    command: str | None
    commit: str | None
    host: dict[str, str | int | None]
    versions: dict[str, str | None]
    device: str
    config: dict[str, Any]


def read_run_json(directory: Path) -> dict[str, Any]:
    """Read `run.json` of any run, also of one that another process is writing."""
    return _read_run_json(directory)[0]


def read_unaltered_run_json(directory: Path) -> dict[str, Any]:
    """Read `run.json`; UserError if it is no longer what Redline wrote, because it decides how a run goes on."""
    run, is_as_written = _read_run_json(directory)
    if not is_as_written:
        known = _newest_copy(directory)
        before = {} if known is None else _read_run_json(known.parent, known.name)[0].get("config", {})
        changes = _differences(before, run.get("config", {})) if before else "no checkpoint tells what it was"
        raise AlteredError(
            f"{directory / RUN_JSON} is not as Redline wrote it ({changes}): "
            f"{_way_back(directory) or 'no copy is left'}; "
            f"accept the change with: redline resume {directory} --accept-changes"
        )
    return run


def _read_run_json(directory: Path, name: str = RUN_JSON) -> tuple[dict[str, Any], bool]:
    """Return what the file says, and whether it has the checksum that Redline wrote; older ones have none."""
    path = directory / name
    try:
        content = read_json_object(path, max_bytes=MAX_RUN_JSON_BYTES)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(f"{directory} is not a run directory: it holds no {RUN_JSON}") from error
    except OSError as error:
        raise UserError(explain(error, path)) from error
    except DamagedError as error:
        raise DamagedError(f"{error}: {way_back}" if (way_back := _way_back(directory)) else str(error)) from error
    if content.get("schema") != SCHEMA:
        raise UserError(f"{path} does not have schema {SCHEMA}: another version of Redline wrote it")
    checksum, run = content.pop("sha256", None), tamed(content)
    try:
        msgspec.convert(run, RunJson)
    except msgspec.ValidationError as error:
        way_back = _way_back(directory)
        said = f"{path} is damaged: {error}" + (f": {way_back}" if way_back else "")
        raise DamagedError(said.replace("`", "")) from error
    if checksum is None:  # of an older version, unless a checkpoint knows better
        return run, _newest_copy(directory) is None
    return run, checksum == _checksum(content)


def encode_run_json(run: Mapping[str, object]) -> bytes:
    """Return the content of `run.json`, with its checksum."""
    content: Any = as_json_value({"schema": SCHEMA, **run})
    return (json.dumps({**content, "sha256": _checksum(content)}, allow_nan=False, indent=2) + "\n").encode()


def _checksum(run: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(run, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _newest_copy(directory: Path) -> Path | None:
    """Return the copy of `run.json` in the newest checkpoint that has one as Redline wrote it."""
    copies = (folder / RUN_COPY for folder in checkpoint_folders(directory / CHECKPOINTS))
    return next((copy for copy in copies if _has_checksum(copy)), None)


def _has_checksum(path: Path) -> bool:
    with suppress(OSError, DamagedError, ValueError, RecursionError):
        content = read_json_object(path, max_bytes=MAX_RUN_JSON_BYTES)
        return bool(content.pop("sha256", None) == _checksum(content))
    return False


def good_run_json(directory: Path) -> bytes | None:
    """Return `run.json` as Redline wrote it; if somebody changed it since, the newest copy that is sound."""
    path = directory / RUN_JSON
    sound = path if _has_checksum(path) else _newest_copy(directory)
    return None if sound is None else read_bounded(sound, max_bytes=MAX_RUN_JSON_BYTES)


def _way_back(directory: Path) -> str:
    copy = _newest_copy(directory)
    return "" if copy is None else f"restore it with: cp {copy} {directory / RUN_JSON}"


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> str:
    old, new = dict(flat_settings(before)), dict(flat_settings(after))
    changes = [
        f"{key} {plain_text(old.get(key))} → {plain_text(new.get(key))}"
        for key in {**old, **new}
        if old.get(key) != new.get(key)
    ]
    return ", ".join(changes[:MAX_TOLD_CHANGES]) or "its settings are the same"


def flat_settings(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Yield the settings of a run by their dotted names."""
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from flat_settings(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value

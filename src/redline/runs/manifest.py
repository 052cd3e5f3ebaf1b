"""What a checkpoint's folder holds and how it is verified; reading needs no lock.

`manifest.json` is written last. It carries size and sha256 of every other file, the places of the
replay's chunks, and a sha256 of itself, so that no altered byte goes unnoticed.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from redline.errors import UserError
from redline.records import SCHEMA, as_python
from redline.runs.atomic import open_regular, sha256_of_file
from redline.runs.errors import DamagedError, explain
from redline.runs.segments import find_locations, read_chunk

MANIFEST = "manifest.json"
STATE = "state.json"
CHECKPOINTS = "checkpoints"
REPLAY = "replay"
REPLACED = ".replaced"  # a checkpoint's name while its successor of the same steps is renamed into place
MAX_JSON_BYTES = 64_000_000
MAX_FILE_BYTES = 32_000_000_000
FILE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
FOLDER_NAME = re.compile(r"(0|[1-9][0-9]{0,17})(\.replaced)?", re.ASCII)

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose every file has been verified, and every chunk of its replay."""

    path: Path
    steps: int
    score: float | None
    state: dict[str, Any]
    replay: dict[str, Any] | None
    files: dict[str, Path]  # as given to `save`, without state and manifest
    skipped: tuple[str, ...] = ()  # newer checkpoints that are damaged, and why
    damaged_replay: tuple[Mapping[str, Any], ...] = ()  # locations of chunks that can't be trusted


def encode_json(value: object) -> bytes:
    """Encode exactly: a NaN is an error here, because a state must come back as it went."""
    text = json.dumps(value, allow_nan=False, default=as_python, separators=(",", ":"))
    if len(text) > MAX_JSON_BYTES:
        raise ValueError(f"{len(text):_} bytes of JSON: at most {MAX_JSON_BYTES:_} can be read back")
    return text.encode()


def describe_file(data: bytes | bytearray | memoryview) -> dict[str, object]:
    """Return what the manifest says of a file."""
    return {"bytes": memoryview(data).nbytes, "sha256": hashlib.sha256(data).hexdigest()}


def encode_manifest(
    *,
    steps: int,
    score: float | None,
    files: Mapping[str, Mapping[str, object]],
    replay: Mapping[str, object] | None,
) -> bytes:
    """Return the content of `manifest.json`."""
    manifest: Manifest = {
        "schema": SCHEMA,
        "steps": steps,
        "unix_s": time.time(),
        "score": score,
        "files": files,
        "replay": replay,
    }
    return encode_json({**manifest, "manifest_sha256": hashlib.sha256(encode_json(manifest)).hexdigest()})


def read_manifest(folder: Path) -> Manifest:
    """Read a checkpoint's manifest and verify it, but none of the files it names."""
    path = folder / MANIFEST
    manifest = _read_json(path)
    if manifest.get("schema") != SCHEMA:
        raise DamagedError(f"{path} has schema {manifest.get('schema')!r}, not {SCHEMA}")
    expected = manifest.pop("manifest_sha256", None)
    try:
        actual = hashlib.sha256(encode_json(manifest)).hexdigest()
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} holds what Redline never writes: {error}") from error
    if actual != expected:
        raise DamagedError(f"{path} has not the sha256 that was written")
    _check_structure(path, manifest)
    if manifest["steps"] != steps_of(folder):
        raise DamagedError(f"{path} is of step {manifest['steps']}")
    return manifest


def load_checkpoint(folder: Path, *, with_replay: bool = True) -> Checkpoint:
    """Load a checkpoint after verifying it; damage of any file is a `DamagedError`.

    Damage of the replay costs experience, which can be had again, and is only listed. `with_replay` false leaves its
    chunks unread: for playing and evaluating.
    """
    manifest = read_manifest(folder)
    files = {name: _verify_file(folder, name, facts) for name, facts in manifest["files"].items()}
    replay = manifest["replay"]
    state = _read_json(files.pop(STATE))
    return Checkpoint(
        path=folder,
        steps=manifest["steps"],
        score=manifest["score"],
        state=state,
        replay=replay,
        files=files,
        damaged_replay=_damaged_chunks(folder.parent.parent / REPLAY, replay) if with_replay else (),
    )


def _damaged_chunks(folder: Path, replay: object) -> tuple[Mapping[str, Any], ...]:
    damaged = []
    for location in find_locations(replay):
        try:
            read_chunk(folder, location)
        except DamagedError:
            damaged.append(location)
    return tuple(damaged)


def newest_valid(run: Path, *, with_replay: bool = True) -> Checkpoint:
    """Load the newest checkpoint of a run that is whole; none is a `UserError`, never a fresh start."""
    skipped: list[str] = []
    for folder in checkpoint_folders(run / CHECKPOINTS):
        try:
            found = load_checkpoint(folder, with_replay=with_replay)
        except DamagedError as error:
            skipped.append(f"checkpoint {folder.name} skipped: {error}")
            continue
        return replace(found, skipped=tuple(skipped))
    reasons = "; ".join(skipped) or "none was ever completed"
    raise UserError(f"{run} holds no valid checkpoint to resume from: {reasons}")


def checkpoint_folders(folder: Path) -> list[Path]:
    """Return the complete checkpoints' folders, newest first; temporary ones are not among them."""
    found: dict[int, Path] = {}
    # sorted: `500` after `500.replaced`, which counts only while its successor is not there
    for path in sorted(folder.iterdir(), reverse=True) if folder.is_dir() else []:
        if FOLDER_NAME.fullmatch(path.name) and path.is_dir() and not path.is_symlink():
            found[steps_of(path)] = path
    return [path for _, path in sorted(found.items(), reverse=True)]


def steps_of(folder: Path) -> int:
    """Return the step a checkpoint's folder is named after."""
    match = FOLDER_NAME.fullmatch(folder.name)
    if match is None:
        raise DamagedError(f"{folder} is no checkpoint: its name is no number of steps")
    return int(match[1])


def _check_structure(path: Path, manifest: Manifest) -> None:
    # a sum guards against damage, not against a file that someone else made
    files, score, replay = (manifest.get(key) for key in ("files", "score", "replay"))
    is_sound = (
        type(manifest.get("steps")) is int
        and (score is None or isinstance(score, int | float))
        and (replay is None or isinstance(replay, dict))
        and isinstance(files, dict)
        and STATE in files
        and all(isinstance(facts, dict) and type(facts.get("bytes")) is int for facts in files.values())
    )
    if not is_sound:
        raise DamagedError(f"{path} lacks what a manifest must hold")


def _verify_file(folder: Path, name: str, facts: Mapping[str, Any]) -> Path:
    if FILE_NAME.fullmatch(name) is None:
        raise DamagedError(f"{folder / MANIFEST} names a file {name!r}, which is no plain name")
    path = folder / name
    try:
        size_bytes = path.lstat().st_size
        if size_bytes != facts["bytes"] or size_bytes > MAX_FILE_BYTES:
            raise DamagedError(f"{path} has {size_bytes:_} bytes, not {facts['bytes']:_}")
        if sha256_of_file(path) != facts.get("sha256"):
            raise DamagedError(f"{path} has not the sha256 that was written")
    except OSError as error:
        raise DamagedError(explain(error, path)) from error
    return path


def _read_json(path: Path) -> dict[str, Any]:
    try:
        with open_regular(path) as file:
            content = file.read(MAX_JSON_BYTES + 1)
    except OSError as error:
        raise DamagedError(explain(error, path)) from error
    if len(content) > MAX_JSON_BYTES:
        raise DamagedError(f"{path} is larger than {MAX_JSON_BYTES:_} bytes")
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} is no JSON: {error}") from error
    if not isinstance(value, dict):
        raise DamagedError(f"{path} is no JSON object")
    return value

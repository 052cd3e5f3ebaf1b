"""The content of a checkpoint's folder, how it is verified, and how one is found; reading needs no lock.

`manifest.json` is written last. It carries size and sha256 of every other file, the locations of the replay's chunks,
and a sha256 of itself, so that no altered byte goes unnoticed.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from redline.errors import DamagedError, UserError
from redline.files import explained, read_json_object, sha256_of_file
from redline.jsonl import SCHEMA, as_python
from redline.runs.segments import find_locations, read_chunk

RUN_JSON = "run.json"
RUN_COPY = "run.copy.json"  # of run.json, in each checkpoint
MANIFEST = "manifest.json"
STATE = "state.json"
CHECKPOINTS = "checkpoints"
REPLAY = "replay"
REPLACED = ".replaced"  # a checkpoint's name while its successor of the same steps is renamed into place
MAX_JSON_BYTES = 64_000_000
MAX_FILE_BYTES = 32_000_000_000
FILE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}", re.ASCII)
FOLDER_NAME = re.compile(r"(0|[1-9][0-9]{0,17})(\.replaced)?", re.ASCII)

NEWEST, BEST = "newest", "best"  # of the checkpoints of a run

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
    """Encode exactly: a NaN is an error, because a state must be restored exactly."""
    text = json.dumps(value, allow_nan=False, default=as_python, separators=(",", ":"))
    if len(text) > MAX_JSON_BYTES:
        raise ValueError(f"{len(text):_} bytes of JSON: at most {MAX_JSON_BYTES:_} can be read back")
    return text.encode()


def describe_file(data: bytes | bytearray | memoryview) -> dict[str, object]:
    """Return what the manifest says of a file."""
    return {"bytes": memoryview(data).nbytes, "sha256": hashlib.sha256(data).hexdigest()}


def encode_manifest(
    *, steps: int, score: float | None, files: Mapping[str, Mapping[str, object]], replay: Mapping[str, object] | None
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
        raise DamagedError(f"{path} holds values that Redline never writes: {error}") from error
    if actual != expected:
        raise DamagedError(f"{path} does not have the sha256 that was written")
    _check_structure(path, manifest)
    if manifest["steps"] != steps_of(folder):
        raise DamagedError(f"{path} is of step {manifest['steps']}")
    return manifest


def load_checkpoint(folder: Path, *, with_replay: bool = True) -> Checkpoint:
    """Load a checkpoint after verifying it; damage of any file is a `DamagedError`.

    Damage of the replay costs only experience, and is only listed. Without `with_replay` its chunks are not read: for
    playing and evaluating.
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
        raise DamagedError(f"{folder} is no checkpoint: its name is not a number of steps")
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
        raise DamagedError(f"{path} lacks fields of a manifest")


def _verify_file(folder: Path, name: str, facts: Mapping[str, Any]) -> Path:
    if FILE_NAME.fullmatch(name) is None:
        raise DamagedError(f"{folder / MANIFEST} names a file {name!r}, which is not a plain name")
    path = folder / name
    with explained(DamagedError, path):
        size_bytes = path.lstat().st_size
        if size_bytes != facts["bytes"] or size_bytes > MAX_FILE_BYTES:
            raise DamagedError(f"{path} has {size_bytes:_} bytes, not {facts['bytes']:_}")
        if sha256_of_file(path) != facts.get("sha256"):
            raise DamagedError(f"{path} does not have the sha256 that was written")
    return path


def _read_json(path: Path) -> dict[str, Any]:
    with explained(DamagedError, path):
        return read_json_object(path, max_bytes=MAX_JSON_BYTES)


def find_checkpoint(run: Path, which: str | int, *, with_replay: bool) -> Checkpoint:
    """Load the newest valid checkpoint, the best one, or the one of so many steps."""
    if which == NEWEST:
        return newest_valid(run, with_replay=with_replay)
    folders = {steps_of(folder): folder for folder in checkpoint_folders(run / CHECKPOINTS)}
    if which == BEST:
        return load_checkpoint(_best_folder(run, list(folders.values())), with_replay=with_replay)
    steps = which if isinstance(which, int) else _parse_steps(which, example=max(folders, default=0))
    if steps not in folders:
        known = ", ".join(str(count) for count in sorted(folders)) or "none"
        raise UserError(f"{run} has no checkpoint {steps}: it has {known}")
    return load_checkpoint(folders[steps], with_replay=with_replay)


def _parse_steps(text: str, *, example: int) -> int:
    digits = text.replace(",", "").replace("_", "")
    if not (digits.isascii() and digits.isdigit()):
        raise UserError(f"checkpoint is {text!r}: use {NEWEST}, {BEST} or its steps, such as {example}")
    return int(digits)


def _best_folder(run: Path, folders: list[Path]) -> Path:
    scores: dict[Path, float] = {}
    for folder in folders:
        with suppress(DamagedError):
            if (score := read_manifest(folder)["score"]) is not None:
                scores[folder] = float(score)
    if not scores:
        raise UserError(f"no checkpoint of {run} has a score, which takes 100 episodes: use --checkpoint {NEWEST}")
    return max(scores, key=lambda folder: (scores[folder], steps_of(folder)))

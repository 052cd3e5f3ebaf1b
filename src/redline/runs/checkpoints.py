"""Checkpoints of one run: saved whole or not at all, pruned to the newest three and the best."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol, Self

from redline.errors import CheckpointError, DamagedError
from redline.files import BytesLike, explained, make_own_folder, remove_tree, sync_directory, write_synced
from redline.runs.manifest import (
    CHECKPOINTS,
    FILE_NAME,
    MANIFEST,
    REPLACED,
    REPLAY,
    RUN_COPY,
    STATE,
    Checkpoint,
    Manifest,
    checkpoint_folders,
    describe_file,
    encode_json,
    encode_manifest,
    newest_valid,
    read_manifest,
    steps_of,
)
from redline.runs.run_json import good_run_json
from redline.runs.segments import SegmentStore, check_location, find_locations

KEPT_NEWEST = 3
SAVING = ".saving-"  # prefixes of temporary folders: no checkpoint's name starts with a dot
REMOVING = ".removing-"


class LockedRun(Protocol):
    """A run directory that this process has locked."""

    @property
    def path(self) -> Path:
        """Where it is."""

    def sync_records(self) -> None:
        """Return when all rows are on the disk."""


class CheckpointStore:
    """The checkpoints of a run that this process has locked, and the replay segments they share."""

    def __init__(self, run: LockedRun) -> None:
        self.run = run
        self.path = run.path / CHECKPOINTS
        self._damaged: set[Path] = set()
        with explained(CheckpointError, self.path):
            make_own_folder(self.path)
            self._clean_up_after_kill()
            self.segments = SegmentStore(run.path / REPLAY)
            sync_directory(run.path)

    def save(
        self,
        *,
        steps: int,
        files: Mapping[str, BytesLike],
        state: Mapping[str, object],
        replay: Mapping[str, object] | None = None,
        score: float | None = None,
    ) -> Path:
        """Write `checkpoints/<steps>` and return its path once it is durable.

        `replay` holds locations from `segments.append`, at any depth. A checkpoint of the same steps is replaced: the
        state that was saved last is the one to go on from. On any error the earlier checkpoints stay as they were.
        """
        contents = {**_checked(files), **self._run_json(), STATE: encode_json(state)}
        for location in find_locations(replay):
            check_location(self.segments.folder, location)
        manifest = encode_manifest(
            steps=steps,
            score=score if score is not None and math.isfinite(score) else None,
            files={name: describe_file(data) for name, data in contents.items()},
            replay=replay,
        )
        target = self.path / str(steps)
        temporary = self.path / f"{SAVING}{steps}"
        try:
            with explained(CheckpointError, self.path, before=f"checkpoint {steps} is not saved: "):
                self.run.sync_records()
                self.segments.sync()
                make_own_folder(self.path)  # somebody may have removed it
                _write_folder(temporary, contents | {MANIFEST: manifest})
                self._publish(temporary, target)
        finally:
            remove_tree(temporary)
        self._damaged.discard(target)
        return target

    def prune(self) -> list[int]:
        """Remove all but the newest three and the best, then the segments that none of these names.

        Checkpoints known as damaged are not counted and go too. Returns the removed ones' steps.
        """
        manifests = self._readable_manifests()
        if not manifests:
            return []
        kept = set(sorted(manifests, key=steps_of)[-KEPT_NEWEST:])
        scored = [folder for folder in manifests if manifests[folder]["score"] is not None]
        if scored:
            kept.add(max(scored, key=lambda folder: (manifests[folder]["score"], steps_of(folder))))
        doomed = [folder for folder in checkpoint_folders(self.path) if folder not in kept]
        named = {place["segment"] for folder in kept for place in find_locations(manifests[folder]["replay"])}
        with explained(CheckpointError, self.path, before="cannot remove old checkpoints: "):
            for folder in doomed:
                self._remove(folder)
            # before the segments go: a checkpoint must not come back without its replay
            sync_directory(self.path)
            self.segments.collect(named)
        return [steps_of(folder) for folder in doomed]

    def newest_valid(self) -> Checkpoint:
        """Load the newest checkpoint that is whole; `skipped` says which were not, and why."""
        found = newest_valid(self.run.path)
        self._damaged.update(folder for folder in checkpoint_folders(self.path) if steps_of(folder) > found.steps)
        return found

    def close(self) -> None:
        """Close the open segment; closing twice is harmless."""
        self.segments.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run_json(self) -> dict[str, BytesLike]:
        """Return the run's settings, with which they can be restored if somebody damages them."""
        with suppress(OSError, DamagedError):
            if (content := good_run_json(self.run.path)) is not None:
                return {RUN_COPY: content}
        return {}

    def _publish(self, temporary: Path, target: Path) -> None:
        if not target.exists():
            temporary.rename(target)
            sync_directory(self.path)
            return
        # readers fall back to `<steps>.replaced` while `<steps>` is missing: one of them always counts
        replaced = target.with_name(target.name + REPLACED)
        remove_tree(replaced)
        target.rename(replaced)
        try:
            temporary.rename(target)
        except OSError:
            replaced.rename(target)
            raise
        sync_directory(self.path)
        self._remove(replaced)

    def _readable_manifests(self) -> dict[Path, Manifest]:
        manifests: dict[Path, Manifest] = {}
        for folder in checkpoint_folders(self.path):
            if folder not in self._damaged:
                with suppress(DamagedError):
                    manifests[folder] = read_manifest(folder)
        return manifests

    def _remove(self, folder: Path) -> None:
        # renamed first: a kill half-way must not leave something that looks like a damaged checkpoint
        doomed = self.path / f"{REMOVING}{folder.name}"
        remove_tree(doomed)
        folder.rename(doomed)
        remove_tree(doomed)

    def _clean_up_after_kill(self) -> None:
        for path in list(self.path.iterdir()):
            if path.name.startswith((SAVING, REMOVING)):
                remove_tree(path)
            elif path.name.endswith(REPLACED):
                target = path.with_name(path.name.removesuffix(REPLACED))
                if target.exists():
                    self._remove(path)
                else:
                    path.rename(target)


def _checked(files: Mapping[str, BytesLike]) -> dict[str, BytesLike]:
    for name in files:
        if FILE_NAME.fullmatch(name) is None or name in (MANIFEST, STATE, RUN_COPY):
            raise ValueError(f"{name!r} cannot name a file of a checkpoint")
    return dict(files)


def _write_folder(folder: Path, contents: Mapping[str, Any]) -> None:
    remove_tree(folder)
    folder.mkdir()
    for name, data in contents.items():  # the manifest comes last
        write_synced(folder / name, [data])
    sync_directory(folder)

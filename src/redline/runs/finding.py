"""Which checkpoint of a run is meant: the newest, the best, or the one of so many steps; the run is only read."""

from __future__ import annotations

from pathlib import Path

from redline.errors import UserError
from redline.runs.errors import DamagedError
from redline.runs.manifest import (
    CHECKPOINTS,
    Checkpoint,
    checkpoint_folders,
    load_checkpoint,
    newest_valid,
    read_manifest,
    steps_of,
)

NEWEST, BEST = "newest", "best"


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
        try:
            score = read_manifest(folder)["score"]
        except DamagedError:
            continue
        if score is not None:
            scores[folder] = float(score)
    if not scores:
        raise UserError(f"no checkpoint of {run} has a score, which takes 100 episodes: use --checkpoint {NEWEST}")
    return max(scores, key=lambda folder: (scores[folder], steps_of(folder)))

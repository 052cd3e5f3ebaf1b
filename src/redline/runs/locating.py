"""Which folders are runs, or recordings of foreign code: told by the files that they hold."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from redline.errors import UserError
from redline.runs.directory import RUN_JSON
from redline.runs.lock import LOCK_NAME

RUN_FILES = (RUN_JSON, LOCK_NAME, "metrics.jsonl")
RECORDING_FILES = ("hardware.jsonl", "events.jsonl", "episodes.jsonl")
LAST = "last"  # in place of a run: the newest one in RUNS
RUNS = Path("runs")  # where runs are kept by default
MAX_DEPTH = 4  # a log folder holds games, which hold algorithms, which hold runs


def is_run(folder: Path) -> bool:
    """Tell whether Redline trains here, or did."""
    return _holds(folder, RUN_FILES)


def is_recorded(folder: Path) -> bool:
    """Tell whether there is anything to be read here, of a run or of foreign code."""
    return _holds(folder, (*RUN_FILES, *RECORDING_FILES))


def find_recorded(folder: Path) -> list[Path]:
    """Return the folder itself if it is a run or a recording, else those inside it, by name."""
    if is_recorded(folder):
        return [folder]
    found = []
    links = []
    for root, folders, _ in os.walk(folder):
        here = Path(root)
        if here != folder and is_recorded(here):
            found.append(here)
            folders.clear()
        elif len(here.relative_to(folder).parts) >= MAX_DEPTH:
            folders.clear()
        # a link may lead in a circle, so it is looked at and not walked into
        links += [here / name for name in folders if (here / name).is_symlink() and is_recorded(here / name)]
    known = {path.resolve() for path in found}
    return sorted([*found, *(link for link in links if link.resolve() not in known)])


def locate_run(name: str, *, or_recording: bool = False) -> Path:
    """Return the run that a user means: a run directory, the newest in a folder of runs, or `last`.

    Runs come before recordings of foreign code, which only some commands can read, unless `or_recording`.
    What is neither is returned as it is: its reader says what is wrong with it.
    """
    if name == LAST and not Path(name).exists():
        if not RUNS.is_dir() or not find_recorded(RUNS):
            raise UserError(f"there is no run in {RUNS}: redline train starts one, or name a run directory")
        return locate_run(str(RUNS), or_recording=or_recording)
    folder = Path(name)
    found = find_recorded(folder) if folder.is_dir() else []
    runs = [run for run in found if (run / RUN_JSON).is_file() and not or_recording]
    return max(runs or found, key=_begun, default=folder)


def newest_recorded(folder: Path) -> Path:
    """Return the run or recording in a folder that was started or resumed last."""
    if not folder.is_dir():
        raise UserError(f"{folder} is no folder: give a run directory, or a folder that holds some")
    found = find_recorded(folder)
    if not found:
        raise UserError(f"{folder} holds no run and no recording: none of {', '.join((*RUN_FILES, *RECORDING_FILES))}")
    return max(found, key=_begun)


def _holds(folder: Path, names: tuple[str, ...]) -> bool:
    with suppress(OSError):  # a folder that may not be entered
        return any((folder / name).is_file() for name in names)
    return False


def _begun(run: Path) -> tuple[float, Path]:
    return _begun_unix_s(run), run


def _begun_unix_s(run: Path) -> float:
    # run.json is replaced by each resume; the names in a recording's folder change when it begins
    for path in (run / RUN_JSON, run):
        with suppress(OSError):
            return path.stat().st_mtime
    return 0.0

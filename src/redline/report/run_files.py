"""The files of a run as they are on the disk, whatever became of them: rows that can be used, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from redline.errors import UserError
from redline.records import Row
from redline.report.clean_rows import read_rows
from redline.report.row_values import part, role_of, without_depth
from redline.report.run_clock import covered_share
from redline.report.run_labels import label_runs
from redline.runs.directory import RUN_JSON, read_run_json
from redline.runs.locating import find_recorded

KINDS = ("metrics", "episodes", "events", "hardware")
ENOUGH_COVER = 0.95  # of a run by samples
NAMES = (RUN_JSON, *(f"{kind}.jsonl" for kind in KINDS))


@dataclass(frozen=True)
class RunFiles:
    """One run, or one recording of foreign code; rows are in the order of time, and their times are numbers."""

    path: Path
    label: str  # short, and different for each run of a report
    run: Mapping[str, Any] | None  # run.json; None where there is none
    metrics: list[Row]
    episodes: list[Row]
    events: list[Row]
    hardware: list[Row]
    problems: tuple[str, ...]  # what is missing or unreadable, each in one sentence


def load_runs(paths: Sequence[Path]) -> list[RunFiles]:
    """Read the run directories among `paths`, and those inside a folder that is none itself."""
    folders = {folder.resolve(): folder for path in paths for folder in _find_runs(Path(path))}
    runs = [load_run(folder) for folder in folders.values()]
    labels = label_runs([(run.path.resolve().name, run.run) for run in runs])
    return [replace(run, label=label) for run, label in zip(runs, labels, strict=True)]


def load_run(folder: Path) -> RunFiles:
    """Read one run directory."""
    problems: list[str] = []
    run = _read_facts(folder, problems)
    rows: dict[str, list[Row]] = {}
    absent = []
    for kind in KINDS:
        cleaned = read_rows(folder, kind)
        rows[kind] = [] if cleaned is None else cleaned.rows
        problems += [] if cleaned is None else cleaned.problems
        absent += [kind] if cleaned is None else []
    found = RunFiles(folder, folder.name, run, **rows, problems=())
    return replace(found, problems=(*_what_is_missing(run, rows, absent), *problems, *_what_is_not_covered(found)))


def _find_runs(path: Path) -> list[Path]:
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise UserError(f"{path} {what}: name a run directory, or a folder with some")
    found = find_recorded(path)
    if not found:
        raise UserError(f"{path} holds no run: a run directory has one of {', '.join(NAMES)}")
    return found


def _read_facts(folder: Path, problems: list[str]) -> Mapping[str, Any] | None:
    if not (folder / RUN_JSON).exists():
        return None
    try:
        run: dict[str, Any] = read_run_json(folder)
    except UserError as error:
        problems.append(f"{str(error).replace(str(folder / RUN_JSON), RUN_JSON)}.")
        return None
    facts = {key: without_depth(value, depth=1) for key, value in run.items()}
    if not part(facts, "config"):
        problems.append(f"{RUN_JSON} holds no settings.")
    return facts


def _what_is_missing(run: Mapping[str, Any] | None, rows: Mapping[str, list[Row]], absent: Sequence[str]) -> list[str]:
    missing = [*([RUN_JSON] if run is None else []), *(f"{kind}.jsonl" for kind in absent)]
    told = []
    if {RUN_JSON, "metrics.jsonl"} <= set(missing):
        told.append(
            "There is neither run.json nor metrics.jsonl, as for a program that is not Redline: "
            "settings, updates and phases are unknown."
        )
    elif RUN_JSON in missing:
        told.append("run.json is missing or unusable: algorithm, settings, seed and machine are unknown.")
    elif "metrics.jsonl" in missing:
        told.append("metrics.jsonl is missing: speed, updates and phases are unknown.")
    if "hardware.jsonl" in missing:
        told.append("hardware.jsonl is missing, as for a run without the monitor: what the hardware did is unknown.")
    if not rows["episodes"]:
        told.append("No episode has ended: there is no learning curve.")
    elif not any(role_of(row) == "actor" for row in rows["episodes"]):
        told.append("No episode of training has ended, only some of evaluations: there is no learning curve.")
    if "events.jsonl" in missing:
        told.append("events.jsonl is missing: checkpoints, evaluations and how the run ended are unknown.")
    else:
        told += _how_it_ended(rows["events"])
    return told


def _what_is_not_covered(run: RunFiles) -> list[str]:
    share = covered_share(run)
    if not run.hardware or share > ENOUGH_COVER:
        return []
    return [
        f"hardware.jsonl covers {share:.0%} of the time between the first and the last row: "
        "CPU seconds, GPU seconds and energy are those of that part."
    ]


def _how_it_ended(events: Sequence[Row]) -> list[str]:
    told = []
    for begins, ends, what in (
        (("start", "resume"), ("stop", "error"), "run"),
        (("monitor-start",), ("monitor-stop",), "monitor"),
    ):
        last = next((row["event"] for row in reversed(events) if row["event"] in (*begins, *ends)), None)
        if last in begins:
            told.append(f"events.jsonl does not tell that the {what} has ended: it was killed, or goes on.")
    return told

"""The files of a run as they are on the disk, whatever became of them: rows that can be used, and what is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from redline.errors import UserError
from redline.jsonl import Row, tamed
from redline.report.rows import Cleaned, numbers, one_line, part, read_rows, role_of, setting, text
from redline.report.run_clock import what_is_not_covered
from redline.runs.directory import read_run_json
from redline.runs.locating import find_recorded
from redline.runs.manifest import RUN_JSON

KINDS = ("metrics", "episodes", "events", "hardware")
NAMES = (RUN_JSON, *(f"{kind}.jsonl" for kind in KINDS))
MAX_LABEL_CHARACTERS = 120
# setting → how its value is written
FACTS: Mapping[str, str] = {
    "env.id": "{}",
    "batch_size": "batch {}",
    "learner.threads": "{} threads",
    "num_envs": "{} envs",
    "topology": "{}",
    "seed": "s{}",
}


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
    files = {kind: read_rows(folder, kind) for kind in KINDS}
    rows = {kind: [] if file is None else file.rows for kind, file in files.items()}
    problems += [problem for file in files.values() if file is not None for problem in file.problems]
    found = RunFiles(folder, folder.name, run, **rows, problems=())
    return replace(found, problems=(*_what_is_missing(found, files), *problems, *what_is_not_covered(found)))


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
    facts = tamed(run)
    if not part(facts, "config"):
        problems.append(f"{RUN_JSON} holds no settings.")
    return facts


def _what_is_missing(run: RunFiles, files: Mapping[str, Cleaned | None]) -> list[str]:
    missing = [*([RUN_JSON] if run.run is None else []), *(f"{kind}.jsonl" for kind in KINDS if files[kind] is None)]
    told = []
    if {RUN_JSON, "metrics.jsonl"} <= set(missing):
        told.append(
            "run.json and metrics.jsonl are missing, as for a program that is not Redline: "
            "settings, updates and phases are unknown."
        )
    elif RUN_JSON in missing:
        told.append("run.json is missing or unusable: algorithm, settings, seed and machine are unknown.")
    elif "metrics.jsonl" in missing:
        told.append("metrics.jsonl is missing: speed, updates and phases are unknown.")
    if "hardware.jsonl" in missing:
        told.append("hardware.jsonl is missing, as for a run without the monitor: what the hardware did is unknown.")
    told += _which_episodes(run, files["episodes"])
    if "events.jsonl" in missing:
        told.append("events.jsonl is missing: checkpoints, evaluations and how the run ended are unknown.")
    else:
        told += _how_it_ended(run.events)
    return told


def _which_episodes(run: RunFiles, file: Cleaned | None) -> list[str]:
    """Say why there is no learning curve; that no episode has ended only where nothing speaks against it."""
    if file is None:
        return ["episodes.jsonl is missing: returns are unknown."]
    if any(role_of(row) == "actor" for row in file.rows):
        return []
    if file.is_damaged:
        return ["No episode of training can be read in episodes.jsonl: returns are unknown."]
    counted = max(numbers(run.metrics, "episodes"), default=0.0)
    if counted > 0:
        return [f"metrics.jsonl counts {counted:,.0f} episodes, but episodes.jsonl holds none: returns are unknown."]
    if file.rows:
        return ["No episode of training has ended, only some of evaluations: there is no learning curve."]
    return ["No episode has ended: there is no learning curve."]


def _how_it_ended(events: Sequence[Row]) -> list[str]:
    told = []
    for begins, ends, what in (
        (("start", "resume"), ("stop", "error"), "run"),
        (("monitor-start",), ("monitor-stop",), "monitor"),
    ):
        last = next((row["event"] for row in reversed(events) if row["event"] in (*begins, *ends)), None)
        if last in begins:
            told.append(f"events.jsonl does not say that the {what} ended: it was killed or is still running.")
    return told


def label_runs(runs: Sequence[tuple[str, Mapping[str, Any] | None]]) -> list[str]:
    """Return a label for each run, given the name of its folder and its run.json."""
    told = [name for name in FACTS if len({str(setting(run, name)) for _, run in runs if run is not None}) > 1]
    if len(runs) == 1:
        told = ["env.id", "seed"]
    labels = [_label(folder, run, told) for folder, run in runs]
    many = Counter(labels)
    # runs of the same settings differ by when they were started, which their folders are named after
    labels = [
        label if many[label] == 1 else f"{label} {one_line(folder)[-MAX_LABEL_CHARACTERS:]}".strip()
        for label, (folder, _) in zip(labels, runs, strict=True)
    ]
    return _numbered(labels)


def _label(folder: str, run: Mapping[str, Any] | None, told: Sequence[str]) -> str:
    algorithm = None if run is None else text(run, "algorithm")
    if not algorithm:
        return one_line(folder)[:MAX_LABEL_CHARACTERS] or "run"
    values = [(name, setting(run, name)) for name in told]
    facts = [_in_words(name, value) for name, value in values if value is not None]
    return " ".join([algorithm, *facts])[:MAX_LABEL_CHARACTERS].strip()


def _in_words(name: str, value: object) -> str:
    words = FACTS[name].format(one_line(str(value)))
    return words.removesuffix("s") if value == 1 and words.startswith("1 ") else words


def _numbered(labels: Sequence[str]) -> list[str]:
    """Put a number behind those that are still the same."""
    found: list[str] = []
    taken = set(labels)
    for label in labels:
        name, count = label, 1
        while name in found or (count > 1 and name in taken):
            count += 1
            name = f"{label} ({count})"
        found.append(name)
    return found

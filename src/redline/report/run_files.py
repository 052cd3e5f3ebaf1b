"""A run's files, complete or not: usable rows, the run's clock, and what is missing."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from redline.errors import UserError
from redline.jsonl import Row, tamed
from redline.report.hardware_use import LEAST_S, Processes, Samples, Span
from redline.report.rows import RowFile, moment, number, numbers, one_line, part, read_rows, role_of, setting, text
from redline.runs.locating import find_recorded
from redline.runs.manifest import RUN_JSON
from redline.runs.run_json import read_run_json

KINDS = ("metrics", "episodes", "events", "hardware")
NAMES = (RUN_JSON, *(f"{kind}.jsonl" for kind in KINDS))
MAX_LABEL_CHARACTERS = 120
# setting → its value in a label
FACTS: Mapping[str, str] = {
    "env.id": "{}",
    "batch_size": "batch {}",
    "learner.threads": "{} threads",
    "num_envs": "{} envs",
    "topology": "{}",
    "seed": "s{}",
}
# a shorter gap is no pause: a resume proves that the run stood still, but a monitor may just start slowly
MIN_PAUSE_S = {"resume": 0.0, "monitor-start": 60.0}
MAX_START_UP_S = 600.0  # before the first row; anything earlier is another run's clock
ENOUGH_COVER = 0.95  # of a run by samples, beside its start-up
START_UP_S = 30.0  # allowed before the first sample and after the last,
START_UP_SHARE = 0.05  # but at most this share of the run
LEAST_COVER = 0.5  # of the learning time: a mean over less is not shown
LEAST_LEARNING_S = 2.0  # a shorter span of learning has no hardware means
CPU_USE, GPU_USE = "cpu_cores_used", "utilisation_percent"
LEARNING, RECORDING = "learning", "recording"
SPAN_WORDS = {LEARNING: "the time of learning", RECORDING: "the recording"}


@dataclass(frozen=True)
class RunClock:
    """Converts the wall clock into minutes of the run, pauses left out."""

    begin_unix_s: float
    end_unix_s: float
    pauses: tuple[Span, ...]  # in order, disjoint

    def minutes(self, unix_s: float) -> float:
        """Return the minutes since the start; a moment within a pause counts as its beginning."""
        paused_s = sum(min(max(unix_s - begin_s, 0.0), end_s - begin_s) for begin_s, end_s in self.pauses)
        return (unix_s - self.begin_unix_s - paused_s) / 60.0

    @property
    def total_s(self) -> float:
        """Seconds from the start to the last row, without pauses."""
        return self.minutes(self.end_unix_s) * 60.0


@dataclass(frozen=True)
class RunFiles:
    """One run, or one recording of foreign code; rows are in order of time, and their times are numbers."""

    path: Path
    label: str  # short, unique within a report
    run: Mapping[str, Any] | None  # run.json; None where there is none
    metrics: list[Row]
    episodes: list[Row]
    events: list[Row]
    hardware: list[Row]  # flat samples
    problems: tuple[str, ...]  # sentences on what is missing or unreadable
    processes: Processes  # watched by the monitor

    @cached_property
    def clock(self) -> RunClock:
        """Return the clock of the run."""
        kinds = (self.metrics, self.episodes, self.events, self.hardware)
        moments = sorted(unix_s for rows in kinds for row in rows if (unix_s := moment(row)) is not None) or [0.0]
        first_s = moments[0]
        if self.hardware:
            first_s = min(first_s, self.hardware[0]["unix_s"] - self.hardware[0]["interval_s"])
        created_s = number(self.run or {}, "created_unix_s")
        if created_s is not None and 0 <= first_s - created_s <= MAX_START_UP_S:
            first_s = created_s
        pauses: list[Span] = []
        for begin_s, event in self.moments_of(*MIN_PAUSE_S):
            # the gap before a resume or a new recording
            pause = (moments[max(bisect_left(moments, begin_s) - 1, 0)], begin_s)
            if pause[1] - pause[0] > MIN_PAUSE_S[event] and pause not in pauses[-1:]:
                pauses.append(pause)
        return RunClock(first_s, moments[-1], tuple(pauses))

    @cached_property
    def samples(self) -> Samples:
        """Return the samples of the hardware by column."""
        return Samples(self.hardware)

    def moments_of(self, *events: str) -> list[tuple[float, str]]:
        """Return the time and name of each such event, in order."""
        told = ((moment(row), row["event"]) for row in self.events if row["event"] in events)
        return sorted((unix_s, event) for unix_s, event in told if unix_s is not None)

    def episodes_of(self, role: str) -> list[Row]:
        """Return the episodes of training ("actor"), or those of evaluations ("greedy")."""
        return [row for row in self.episodes if role_of(row) == role]

    @property
    def while_learning(self) -> list[Row]:
        """The rows of metrics.jsonl after the first update."""
        return [row for row in self.metrics if (number(row, "updates") or 0.0) > 0]

    @property
    def covered_share(self) -> float:
        """The share of the run that samples of the hardware cover, 0 … 1."""
        covered_s = float(self.samples.interval_s.sum())
        return covered_s / max(self.clock.total_s, covered_s) if covered_s else 0.0

    @property
    def is_covered(self) -> bool:
        """Whether samples cover the run apart from its start-up."""
        if self.clock.total_s <= 0:
            return bool(self.hardware)
        return self.covered_share + min(START_UP_S / self.clock.total_s, START_UP_SHARE) > ENOUGH_COVER

    def use_span(self) -> tuple[Span, str] | None:
        """Return the span of the hardware means and its name: learning, or else the whole recording."""
        rows = self.while_learning
        if rows and rows[-1]["unix_s"] - rows[0]["unix_s"] >= LEAST_LEARNING_S:
            return (float(rows[0]["unix_s"]), float(rows[-1]["unix_s"])), LEARNING
        if not self.hardware:
            return None
        return (self.hardware[0]["unix_s"] - self.hardware[0]["interval_s"], self.hardware[-1]["unix_s"]), RECORDING

    def covers(self) -> dict[str, float]:
        """Return the share of that span, pauses left out, in which the CPU and each GPU were sampled."""
        over = self.use_span()
        if over is None:
            return {}
        begin_s, end_s = (self.clock.minutes(at_s) * 60.0 for at_s in over[0])
        length_s = max(end_s - begin_s, LEAST_S)
        names = [CPU_USE, *self.samples.of_gpus(GPU_USE)]
        return {name: self.samples.covered_s(name, over[0]) / length_s for name in names}


def load_runs(paths: Sequence[Path]) -> list[RunFiles]:
    """Read the run directories among `paths`, and those inside other folders."""
    folders = {folder.resolve(): folder for path in paths for folder in _find_runs(Path(path))}
    runs = [load_run(folder) for folder in folders.values()]
    labels = label_runs([(run.path.resolve().name, run.run) for run in runs])
    return [replace(run, label=label) for run, label in zip(runs, labels, strict=True)]


def load_run(folder: Path) -> RunFiles:
    """Read one run directory."""
    problems: list[str] = []
    run = _read_facts(folder, problems)
    processes = Processes()
    files = {kind: read_rows(folder, kind) for kind in KINDS[:-1]}
    files["hardware"] = read_rows(folder, "hardware", watch=processes.add)
    rows = {kind: [] if file is None else file.rows for kind, file in files.items()}
    problems += [problem for file in files.values() if file is not None for problem in file.problems]
    found = RunFiles(folder, folder.name, run, **rows, problems=(), processes=processes)
    return replace(found, problems=(*_what_is_missing(found, files), *problems, *_what_is_not_covered(found)))


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


def _what_is_missing(run: RunFiles, files: Mapping[str, RowFile | None]) -> list[str]:
    told = []
    if run.run is None and files["metrics"] is None:
        told.append(
            "run.json and metrics.jsonl are missing, as for a program that is not Redline: "
            "settings, updates and phases are unknown."
        )
    elif run.run is None:
        told.append("run.json is missing or unusable: algorithm, settings, seed and machine are unknown.")
    elif files["metrics"] is None:
        told.append("metrics.jsonl is missing: speed, updates and phases are unknown.")
    if files["hardware"] is None:
        told.append("hardware.jsonl is missing, as for a run without the monitor: what the hardware did is unknown.")
    told += _which_episodes(run, files["episodes"])
    if files["events"] is None:
        told.append("events.jsonl is missing: checkpoints, evaluations and how the run ended are unknown.")
    for begins, ends, what in (
        (("start", "resume"), ("stop", "error"), "run"),
        (("monitor-start",), ("monitor-stop",), "monitor"),
    ):
        last = next((row["event"] for row in reversed(run.events) if row["event"] in (*begins, *ends)), None)
        if last in begins:
            told.append(f"events.jsonl does not say that the {what} ended: it was killed or is still running.")
    return told


def _which_episodes(run: RunFiles, file: RowFile | None) -> list[str]:
    """Say why there is no learning curve."""
    if file is None:
        return ["episodes.jsonl is missing: returns are unknown."]
    if run.episodes_of("actor"):
        return []
    if file.is_damaged:
        return ["No episode of training can be read in episodes.jsonl: returns are unknown."]
    counted = max(numbers(run.metrics, "episodes"), default=0.0)
    if counted > 0:
        return [f"metrics.jsonl counts {counted:,.0f} episodes, but episodes.jsonl holds none: returns are unknown."]
    if file.rows:
        return ["No episode of training has ended, only some of evaluations: there is no learning curve."]
    return ["No episode has ended: there is no learning curve."]


def _what_is_not_covered(run: RunFiles) -> list[str]:
    """Say which part of the run its sums and means cover, if not all."""
    over = run.use_span()
    if not run.hardware or over is None:
        return []
    told, time = [], SPAN_WORDS[over[1]]
    if not run.is_covered:
        told.append(
            f"hardware.jsonl covers {run.covered_share:.0%} of the time between the first and the last row: "
            "CPU seconds, GPU seconds and energy are those of that part."
        )
    covers = run.covers()
    if over[1] == LEARNING and covers[CPU_USE] < LEAST_COVER:
        told.append(f"Samples cover {covers[CPU_USE]:.0%} of {time}: its CPU use is unknown.")
    for name in run.samples.of_gpus(GPU_USE):
        if covers[name] <= ENOUGH_COVER - START_UP_SHARE:
            then = "is left out" if covers[name] < LEAST_COVER else "is of that part"
            index = one_line(name.removeprefix("gpus.").removesuffix(f".{GPU_USE}"))
            told.append(f"GPU {index} was sampled in {covers[name]:.0%} of {time}: its mean utilisation {then}.")
    return told


def label_runs(runs: Sequence[tuple[str, Mapping[str, Any] | None]]) -> list[str]:
    """Return a label for each run, given the name of its folder and its run.json."""
    told = [name for name in FACTS if len({str(setting(run, name)) for _, run in runs if run is not None}) > 1]
    if len(runs) == 1:
        told = ["env.id", "seed"]
    labels = [_label(folder, run, told) for folder, run in runs]
    many = Counter(labels)
    # folders are named by the start, which tells runs of the same settings apart
    labels = [
        label if many[label] == 1 else f"{label} {one_line(folder)[-MAX_LABEL_CHARACTERS:]}".strip()
        for label, (folder, _) in zip(labels, runs, strict=True)
    ]
    found: list[str] = []
    for label in labels:  # number those that are still equal
        name, count = label, 1
        while name in found or (count > 1 and name in labels):
            count += 1
            name = f"{label} ({count})"
        found.append(name)
    return found


def _label(folder: str, run: Mapping[str, Any] | None, told: Sequence[str]) -> str:
    algorithm = text(run or {}, "algorithm")
    if not algorithm:
        return one_line(folder)[:MAX_LABEL_CHARACTERS] or "run"
    values = [(name, setting(run, name)) for name in told]
    facts = [_in_words(name, value) for name, value in values if value is not None]
    return " ".join([algorithm, *facts])[:MAX_LABEL_CHARACTERS].strip()


def _in_words(name: str, value: object) -> str:
    words = FACTS[name].format(one_line(str(value)))
    return words.removesuffix("s") if value == 1 and words.startswith("1 ") else words

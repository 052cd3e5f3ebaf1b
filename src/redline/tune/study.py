"""The folder of a study: what was asked for, frozen; what was spent and found; one process at a time."""

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

from redline import __version__
from redline.errors import UserError
from redline.files import explain, open_regular, replace_file
from redline.records import SCHEMA, RecordWriter, Row, as_json_value, measured, parse_row, plain_text, read_records
from redline.runs.lock import RunLock
from redline.tune.goals import Goal, parse_goal

STUDY_JSON, SPENT_JSON, LOCK = "study.json", "spent.json", "study.lock"
JOURNAL, CHECKS, REPORT = "journal.log", "check.jsonl", "report.html"
BEGINNING = {LOCK, f".{STUDY_JSON}.tmp"}  # what a study that has just begun, or was killed then, consists of
MAX_STUDY_BYTES = 1_000_000
MAX_JOURNAL_BYTES = 512_000_000
# no run of the search has a seed of the check, and none of the check one of the search
SEARCH_SEEDS = range(1_000_000, 2_000_000)
FINAL_SEEDS = range(2_000_000, 2_001_000)
CHECK_PATIENCE = 3.0  # times the minutes of a trial
USUAL_MINUTES_PER_TRIAL = 5.0
USUAL_TURNS = 5  # trials one after the other that should fit into a search
WAYS_TO_PRUNE = ("halving", "off")
# how a field's type looks in JSON; any other is an object
TYPES: dict[Any, Any] = {
    str: str,
    int: int,
    int | None: int | None,
    float: int | float,
    float | None: int | float | None,
}


@dataclass(frozen=True)
class StudySettings:
    """Everything that decides what a search does; a study keeps the ones that it began with."""

    env: str
    algo: str
    goal: str
    window: int  # episodes over which a return is averaged
    minutes_per_trial: float  # of training, for each run
    search_minutes: float | None
    trials: int | None
    seeds_per_trial: int
    final_seeds: int
    side_by_side: int
    threads: int  # of each run
    pruning: str
    seed: int  # of the sampler
    space_name: str
    space: Mapping[str, Any]

    def __post_init__(self) -> None:
        limit = self.search_minutes
        _require("the search's time", limit, "a number above 0", ok=limit is None or 0 < limit < 1e6)
        _require("--minutes-per-trial", self.minutes_per_trial, "a number above 0", ok=0 < self.minutes_per_trial < 1e6)
        _require("--trials", self.trials, "1 to 100_000", ok=self.trials is None or 1 <= self.trials <= 100_000)
        _require("--seeds-per-trial", self.seeds_per_trial, "1 to 10", ok=1 <= self.seeds_per_trial <= 10)
        most = len(FINAL_SEEDS)
        _require("--final-seeds", self.final_seeds, f"1 to {most}", ok=1 <= self.final_seeds <= most)
        _require("--side-by-side", self.side_by_side, "0 for all cores, or 1 to 256", ok=1 <= self.side_by_side <= 256)
        _require("--window", self.window, "0 for the usual, or 1 to 10_000", ok=1 <= self.window <= 10_000)
        _require("--seed", self.seed, "0 or more", ok=0 <= self.seed < 2**31)
        _require("--pruning", self.pruning, " or ".join(WAYS_TO_PRUNE), ok=self.pruning in WAYS_TO_PRUNE)
        if limit is None and self.trials is None:
            raise UserError("say how long to search: --minutes 10, --hours 2 or --trials 20")
        if limit is not None and self.trial_minutes > limit + 1e-6:  # 3 × 0.1 is a little more than 0.3
            raise UserError(
                f"--minutes-per-trial {self.minutes_per_trial:g} × --seeds-per-trial {self.seeds_per_trial} is longer "
                f"than the search of {limit:g} minutes: use a longer search, shorter trials or fewer seeds"
            )
        parse_goal(self.goal)

    @property
    def aim(self) -> Goal:
        """What is better."""
        return parse_goal(self.goal)

    @property
    def trial_minutes(self) -> float:
        """Minutes of all runs of a trial."""
        return self.minutes_per_trial * self.seeds_per_trial

    @property
    def check_minutes(self) -> float:
        """Minutes of each run of the check: where steps count, a slow moment of the machine must not decide."""
        return self.minutes_per_trial * (CHECK_PATIENCE if self.aim.counts_steps else 1.0)

    def search_seed(self, trial: int, place: int) -> int:
        """Return the seed of one run of a trial; no other run of the search has it."""
        return SEARCH_SEEDS[(trial * self.seeds_per_trial + place) % len(SEARCH_SEEDS)]


def usual_minutes_per_trial(search_minutes: float | None, seeds_per_trial: int) -> float:
    """Return the minutes of each run where the user does not say: a short search has short trials."""
    if search_minutes is None:
        return USUAL_MINUTES_PER_TRIAL
    return min(USUAL_MINUTES_PER_TRIAL, search_minutes / (USUAL_TURNS * max(1, seeds_per_trial)))


def _require(name: str, value: object, use: str, *, ok: bool) -> None:
    if not ok:
        raise UserError(f"{name} is {value}: use {use}")


class StudyFolder:
    """A study on the disk, locked for this process until `close`."""

    def __init__(self, path: Path, settings: StudySettings, command: Sequence[str]) -> None:
        self.path = path
        self.settings = settings
        self._lock = RunLock(path, LOCK)  # not a run's: a study is no run
        try:
            self._freeze(command)
            self.spent_s = read_spent_s(path)
        except BaseException:
            self.close()
            raise

    @classmethod
    def open(cls, path: Path, settings: StudySettings, command: Sequence[str]) -> Self:
        """Begin a study, or go on with one that was asked for the same."""
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            names = {place.name for place in path.iterdir()}
        except OSError as error:
            raise UserError(f"cannot make a study: {explain(error, path)}") from error
        if STUDY_JSON not in names and names - BEGINNING:
            raise UserError(f"{path} is not empty and no study: use another --study")
        return cls(path, settings, command)

    def _freeze(self, command: Sequence[str]) -> None:
        """Write down what is asked for, or find that it is what was asked for before."""
        source = self.path / STUDY_JSON
        if source.exists():
            require_same(self.path, read_settings(self.path), self.settings)
            return
        content = {
            "schema": SCHEMA,
            "created_unix_s": time.time(),
            "redline": __version__,
            "command": list(command),
            "settings": asdict(self.settings),
        }
        try:
            replace_file(source, [(json.dumps(as_json_value(content), indent=2) + "\n").encode()])
        except OSError as error:
            raise UserError(f"cannot make a study: {explain(error, self.path)}") from error

    def close(self) -> None:
        """Let other processes in."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def spend(self, seconds: float) -> None:
        """Count time of the search, so that a kill does not give it back."""
        self.spent_s += seconds
        content = json.dumps({"schema": SCHEMA, "search_s": self.spent_s}) + "\n"
        try:
            replace_file(self.path / SPENT_JSON, [content.encode()])
        except OSError as error:
            raise UserError(explain(error, self.path)) from error

    def trial_folder(self, number: int) -> Path:
        """Return where the runs of a trial lie."""
        return self.path / "trials" / f"{number:04d}"

    def checks(self) -> list[Row]:
        """Return what the check on unused seeds has found so far."""
        path = self.path / CHECKS
        return read_records(path) if path.is_file() else []

    def add_check(self, row: Mapping[str, object]) -> None:
        """Keep one result of the check."""
        with RecordWriter(self.path / CHECKS) as writer:
            writer.write(row)
            writer.sync()


def read_settings(path: Path) -> StudySettings:
    """Return what a study was asked for."""
    source = path / STUDY_JSON
    try:
        with open_regular(source) as file:
            content = parse_row(file.read(MAX_STUDY_BYTES))
    except OSError as error:
        raise UserError(f"{path} is no study: {explain(error, source)}") from None
    if content is None or content.get("schema") != SCHEMA or not isinstance(content.get("settings"), dict):
        raise UserError(f"{source} is damaged, or of another version of Redline")
    found = content["settings"]
    names = {field.name for field in fields(StudySettings)}
    if set(found) != names:
        raise UserError(f"{source} is damaged, or of another version of Redline: it should hold {', '.join(names)}")
    for field in fields(StudySettings):
        if not isinstance(found[field.name], TYPES.get(field.type, dict)) or found[field.name] is True:
            raise UserError(f"{source} is damaged: {field.name} is {plain_text(found[field.name])}")
    return StudySettings(**found)


def read_spent_s(path: Path) -> float:
    """Return how much time a study's search has taken so far, over all invocations."""
    with suppress(FileNotFoundError):
        try:
            with open_regular(path / SPENT_JSON) as file:
                content = parse_row(file.read(MAX_STUDY_BYTES)) or {}
        except FileNotFoundError:
            raise
        except OSError as error:
            raise UserError(explain(error, path / SPENT_JSON)) from error
        return float(measured(content.get("search_s")) or 0.0)
    return 0.0


def require_same(path: Path, before: StudySettings, asked: StudySettings) -> None:
    """Refuse to mix two searches in one folder."""
    for field in fields(StudySettings):
        was, is_now = getattr(before, field.name), getattr(asked, field.name)
        if was == is_now:
            continue
        name = field.name.replace("_", "-")
        said = "another search space" if field.name in ("space", "space_name") else f"{name} {was}, not {is_now}"
        raise UserError(
            f"{path} is a study with {said}: use another --study, or go on with: redline tune --resume {path}"
        )

"""The folder of a study: its frozen settings, the time spent, the results of the check; open in one process."""

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import msgspec

from redline import __version__
from redline.errors import UserError
from redline.files import (
    TEMPORARY_NAME,
    check_folders,
    check_replaceable,
    explained,
    make_folder,
    read_json_object,
    remove_temporary,
    replace_file,
)
from redline.jsonl import SCHEMA, RecordWriter, Row, as_json_value, measured, plain_text, read_records
from redline.runs.directory import RunLock
from redline.tune.goals import Goal, parse_goal

STUDY_JSON, SPENT_JSON, LOCK = "study.json", "spent.json", "study.lock"
JOURNAL, CHECKS, REPORT = "journal.log", "check.jsonl", "report.html"
MAX_STUDY_BYTES = 1_000_000
# search and check never share a seed
SEARCH_SEEDS = range(1_000_000, 2_000_000)
FINAL_SEEDS = range(2_000_000, 2_001_000)
CHECK_PATIENCE = 3.0  # times the minutes of a trial, if steps count
WAYS_TO_PRUNE = ("halving", "off")


@dataclass(frozen=True)
class StudySettings:
    """Everything that decides what a search does; a study keeps the settings that it began with."""

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
    space: dict[str, Any]

    def __post_init__(self) -> None:
        limit, most = self.search_minutes, len(FINAL_SEEDS)
        for name, value, is_valid, use in (
            ("the search's time", limit, limit is None or 0 < limit < 1e6, "a number above 0"),
            ("--minutes-per-trial", self.minutes_per_trial, 0 < self.minutes_per_trial < 1e6, "a number above 0"),
            ("--trials", self.trials, self.trials is None or 1 <= self.trials <= 100_000, "1 to 100_000"),
            ("--seeds-per-trial", self.seeds_per_trial, 1 <= self.seeds_per_trial <= 10, "1 to 10"),
            ("--final-seeds", self.final_seeds, 1 <= self.final_seeds <= most, f"1 to {most}"),
            ("--side-by-side", self.side_by_side, 1 <= self.side_by_side <= 256, "0 for all cores, or 1 to 256"),
            ("--window", self.window, 1 <= self.window <= 10_000, "0 for the usual, or 1 to 10_000"),
            ("--seed", self.seed, 0 <= self.seed < 2**31, "0 or more"),
            ("--pruning", self.pruning, self.pruning in WAYS_TO_PRUNE, " or ".join(WAYS_TO_PRUNE)),
        ):
            if not is_valid:
                raise UserError(f"{name} is {value}: use {use}")
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
        """The goal, parsed."""
        return parse_goal(self.goal)

    @property
    def trial_minutes(self) -> float:
        """Minutes of all runs of a trial."""
        return self.minutes_per_trial * self.seeds_per_trial

    @property
    def check_minutes(self) -> float:
        """Minutes of each run of the check; if steps count, more, so that a slow machine does not decide."""
        return self.minutes_per_trial * (CHECK_PATIENCE if self.aim.counts_steps else 1.0)

    def search_seed(self, trial: int, place: int) -> int:
        """Return the seed of one run of a trial, unique in the search."""
        return SEARCH_SEEDS[(trial * self.seeds_per_trial + place) % len(SEARCH_SEEDS)]


class StudyFolder(AbstractContextManager["StudyFolder"]):
    """A study on the disk, locked for this process until it is closed; a new one, or one with the same settings."""

    def __init__(self, path: Path, settings: StudySettings, command: Sequence[str]) -> None:
        self.path = path
        self.settings = settings
        with explained(UserError, path, before="cannot make a study: ", after=": use another --study"):
            make_folder(path, mode=0o700)
            names = {place.name for place in path.iterdir() if not TEMPORARY_NAME.fullmatch(place.name)}
        if STUDY_JSON not in names and names - {LOCK}:
            raise UserError(f"{path} is not empty and no study: use another --study")
        check_folders(path)  # trainings write there
        for name in (JOURNAL, CHECKS, REPORT):
            check_replaceable(path / name)
        self._lock = RunLock(path, LOCK)  # not a run's: a study is no run
        try:
            remove_temporary(path)
            self._freeze(command)
            self.spent_s = self._read_spent_s()
        except BaseException:
            self.close()
            raise

    def _freeze(self, command: Sequence[str]) -> None:
        """Write the settings, or check that they are those of the study."""
        source = self.path / STUDY_JSON
        if source.exists():
            self._require_same(read_settings(self.path))
            return
        content = {
            "schema": SCHEMA,
            "created_unix_s": time.time(),
            "redline": __version__,
            "command": list(command),
            "settings": asdict(self.settings),
        }
        with explained(UserError, self.path, before="cannot make a study: "):
            replace_file(source, [(json.dumps(as_json_value(content), indent=2) + "\n").encode()])

    def _require_same(self, before: StudySettings) -> None:
        """Refuse to mix two searches in one folder."""
        for field in fields(StudySettings):
            was, is_now = getattr(before, field.name), getattr(self.settings, field.name)
            if was != is_now:
                what = f"{field.name.replace('_', '-')} {was}, not {is_now}"
                what = "another search space" if field.name in ("space", "space_name") else what
                remedy = f"use another --study, or continue with: redline tune --resume {self.path}"
                raise UserError(f"{self.path} is a study with {what}: {remedy}")

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let other processes in."""
        self._lock.release()

    def _read_spent_s(self) -> float:
        """Return the time that the search has taken so far, over all invocations."""
        path = self.path / SPENT_JSON
        with explained(UserError, path):
            content = read_json_object(path, max_bytes=MAX_STUDY_BYTES) if path.exists() else {}
        return float(measured(content.get("search_s")) or 0.0)

    def spend(self, seconds: float) -> None:
        """Count time of the search on disk, so that a kill does not give it back."""
        self.spent_s += seconds
        content = json.dumps({"schema": SCHEMA, "search_s": self.spent_s}) + "\n"
        with explained(UserError, self.path):
            replace_file(self.path / SPENT_JSON, [content.encode()])

    def trial_folder(self, number: int) -> Path:
        """Return the folder of a trial's runs."""
        return self.path / "trials" / f"{number:04d}"

    def checks(self) -> list[Row]:
        """Return the results of the check so far."""
        path = self.path / CHECKS
        return read_records(path) if path.is_file() else []

    def add_check(self, row: Mapping[str, object]) -> None:
        """Write one result of the check."""
        with RecordWriter(self.path / CHECKS) as writer:
            writer.write(row)
            writer.sync()


def read_settings(path: Path) -> StudySettings:
    """Return the settings of a study."""
    source = path / STUDY_JSON
    with explained(UserError, source, before=f"{path} is not a study: "):
        content = read_json_object(source, max_bytes=MAX_STUDY_BYTES)
    try:
        if content.get("schema") != SCHEMA:
            raise ValueError(f"schema {content.get('schema')}")
        return msgspec.convert(content.get("settings"), StudySettings)
    except (ValueError, msgspec.MsgspecError) as error:
        raise UserError(f"{source} is damaged, or of another version of Redline: {plain_text(error)}") from None

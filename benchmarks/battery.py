"""Trainings of many algorithms, a row each; what is finished is kept in a file, so that a battery can be continued."""

import hashlib
import json
import tempfile
from argparse import ArgumentParser
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

from recording import say
from redline.algorithms.catalog import ALGORITHMS
from redline.cli.flags import parse_train
from redline.jsonl import RecordWriter, read_records
from redline.runs.host import commit
from redline.runtime.config import SOLVED, to_settings
from redline_process import run_redline

DIGEST_CHARACTERS = 12
ONLY_TOLD = ("track", "price_per_hour")  # settings that change nothing of what is trained

Row = dict[str, Any]


@dataclass(frozen=True)
class Training:
    """One run of `redline train`; with the same four it is the same run."""

    task: str
    algorithm: str
    seed: int
    flags: tuple[str, ...]  # besides the algorithm and the seed

    def row(self) -> Row:
        """Return what tells this training from others."""
        return {"task": self.task, "algorithm": self.algorithm, "seed": self.seed, "flags": list(self.flags)}

    def digest(self) -> str:
        """Return a digest of all settings: with other defaults of its algorithm it is another run."""
        if self.algorithm not in ALGORITHMS:  # a peer's, whose settings are not ours
            return "–"
        settings = to_settings(parse_train(["--algo", self.algorithm, *self.flags]).job)
        settings = {key: value for key, value in settings.items() if key not in ONLY_TOLD}
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:DIGEST_CHARACTERS]


# trains in a folder of its own and returns what it found
Measure = Callable[[Training, Path], Row]


def train(training: Training, folder: Path) -> Row:
    """Train to the end and return what `redline train` says; a run that was interrupted is no result."""
    own = ["--algo", training.algorithm, "--seed", str(training.seed), "--log-dir", str(folder)]
    summary = run_redline(["train", *own, *training.flags], folder / "said.log")
    if summary["reason"] != SOLVED and not summary["reason"].endswith(" reached"):
        raise RuntimeError(f"redline train was stopped by {summary['reason']}")
    return summary


def train_all(
    trainings: Sequence[Training],
    measure: Measure,
    *,
    rows_file: Path | None,
    parallel: int = 1,
    any_commit: bool = True,
) -> list[Row]:
    """Train what `rows_file` does not hold yet; return all rows, those of failed runs with an `error`.

    Without `any_commit`, rows of other versions of Redline don't count.
    """
    done = read_done(rows_file)
    lock = Lock()

    def find_row(training: Training) -> Row:
        known = {"settings_digest": training.digest(), "commit": commit()}
        alike = known if not any_commit else {"settings_digest": known["settings_digest"]}
        if training in done and alike.items() <= done[training].items():
            say(f"{_name(training)}: done before")
            return done[training]
        try:
            with tempfile.TemporaryDirectory() as folder:
                row = {**training.row(), **known, **measure(training, Path(folder))}
        except (RuntimeError, OSError, ValueError) as error:
            say(f"{_name(training)} failed: {error}")
            return {**training.row(), "error": str(error).partition(":")[0]}  # the rest may hold paths of the machine
        if rows_file is not None:
            with lock, RecordWriter(rows_file) as writer:
                writer.write(row)
        return row

    with ThreadPoolExecutor(parallel) as pool:
        return list(pool.map(find_row, trainings))


def read_done(rows_file: Path | None) -> dict[Training, Row]:
    """Return the newest row of each finished training."""
    if rows_file is None or not rows_file.exists():
        return {}
    rows = read_records(rows_file)
    return {Training(row["task"], row["algorithm"], row["seed"], tuple(row["flags"])): row for row in rows}


def finished(trainings: Sequence[Training], rows_file: Path | None) -> list[Training]:
    """Return the trainings that `rows_file` holds with the settings of today."""
    done = read_done(rows_file)
    return [item for item in trainings if item in done and done[item]["settings_digest"] == item.digest()]


def rows_by_algorithm(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows of each algorithm, failed ones too, in the order in which they came."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["algorithm"], []).append(row)
    return found


def as_flags(settings: Mapping[str, object]) -> tuple[str, ...]:
    """Return settings as they are typed."""
    return tuple(part for flag, value in settings.items() for part in (flag, str(value)))


def record_name(
    name: str, algorithms: Sequence[str], *, whole: Sequence[str] = tuple(ALGORITHMS), is_as_required: bool = True
) -> str:
    """Return the record's name; one of some algorithms only, or of an easier task, must not stand for the whole."""
    changed = [] if is_as_required else ["changed"]
    return "-".join([name, *changed, *(() if set(algorithms) == set(whole) else algorithms)])


def add_battery_flags(parser: ArgumentParser) -> None:
    """Add the flags of every battery."""
    parser.add_argument(
        "--algorithms", nargs="+", choices=tuple(ALGORITHMS), default=list(ALGORITHMS), help="what to train"
    )
    parser.add_argument(
        "--rows", type=Path, metavar="FILE", help="JSON Lines of finished runs: added to, and not repeated"
    )


def _name(training: Training) -> str:
    return f"{training.algorithm}, seed {training.seed}"

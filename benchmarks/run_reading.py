"""Reads a run: the mean return of its last hundred episodes along the way, and where its settings differ."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redline.algorithms.catalog import PARTS
from redline.cli.flags import default_job, with_parts
from redline.jsonl import Row, read_records
from redline.runtime.config import flatten, to_settings

WINDOW_EPISODES = 100
# paths of the machine, and settings that Redline chooses itself
NOT_SETTINGS = (
    *("log_dir", "replay.path", "replay.bytes", "learner.threads", "actor.threads", "actor.envs"),
    *("learner.device", "actor.device", "evaluator.device", "evaluator.every_minutes"),
)

NOT_YET = "Nothing is recorded yet."


@dataclass(frozen=True)
class Point:
    """The mean of a whole hundred, at the step at which its last episode ended."""

    steps: int
    minutes: float  # of training, over all resumes
    mean_return_100: float


def read_points(run: Path) -> list[Point]:
    """Return one point for each episode from the hundredth on."""
    return running_means(read_episodes(run))


def read_episodes(run: Path) -> list[Row]:
    """Return the rows of all episodes played while training; the file is not there before the first has ended."""
    path = run / "episodes.jsonl"
    return of_training(read_records(path)) if path.exists() else []


def of_training(rows: Sequence[Row]) -> list[Row]:
    """Return the rows without those of evaluations, which are no part of the run's own scores."""
    return [row for row in rows if row["role"] == "actor"]


def running_means(rows: Sequence[Row]) -> list[Point]:
    """Return one point for each row from the hundredth on."""
    points: list[Point] = []
    recent: deque[float] = deque(maxlen=WINDOW_EPISODES)
    for row in rows:
        recent.append(float(row["return"]))
        if len(recent) == WINDOW_EPISODES:
            points.append(Point(int(row["steps"]), float(row["time_s"]) / 60, sum(recent) / WINDOW_EPISODES))
    return points


def first_reaching(points: Sequence[Point], target: float) -> Point | None:
    """Return the first point at or above `target`."""
    return next((point for point in points if point.mean_return_100 >= target), None)


def best_of(points: Sequence[Point]) -> float | None:
    """Return the highest mean."""
    return max((point.mean_return_100 for point in points), default=None)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]], *, left: int | None = None) -> str:
    """Return a table in Markdown; with `left`, the columns after so many are aligned to the right."""
    if not rows:
        return NOT_YET
    dashes = ["---" if left is None or place < left else "---:" for place in range(len(head))]
    lines = ["| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in (head, *rows)]
    return "\n".join([lines[0], f"|{'|'.join(dashes)}|", *lines[1:]])


def as_text(value: float | None) -> str:
    """Return a mean as people read it, a dash where there is none."""
    return "–" if value is None else f"{value:.1f}".replace("-", "−")


def changed_settings(facts: Row) -> dict[str, Any]:
    """Return the settings of a run that differ from its algorithm's defaults, by dotted key."""
    algorithm, config = facts["algorithm"], facts["config"]
    parts = {field: config[field]["name"] for field in PARTS if field in config}
    plain = default_job(algorithm, config["env"]["id"])
    own = dict(flatten(to_settings(plain)))
    of_parts = dict(flatten(to_settings(with_parts(plain, parts, algorithm))))
    return {
        key: value
        for key, value in flatten(config)
        if key not in NOT_SETTINGS
        and not key.endswith(".name")
        and value != (own if key in parts else of_parts).get(key)
    }


def typed(settings: dict[str, Any]) -> str:
    """Return settings as flags of `redline train`."""
    return " ".join(_flag(key.replace("_", "-"), value) for key, value in settings.items())


def _flag(key: str, value: object) -> str:
    if isinstance(value, bool):
        part, dot, name = key.rpartition(".")
        return f"--{key}" if value else f"--{part}{dot}no-{name}"
    return f"--{key} {' '.join(map(str, value)) if isinstance(value, list) else value}"

"""The mean return of the last hundred episodes along a run, from its episodes.jsonl."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from redline.records import Row, read_records

WINDOW_EPISODES = 100


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


def as_text(value: float | None) -> str:
    """Return a mean as people read it, a dash where there is none."""
    return "–" if value is None else f"{value:.1f}".replace("-", "−")

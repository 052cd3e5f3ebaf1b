"""How fast runs trained, by their files: the speed of learning, its spread, and the length of their episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from redline.bench.measuring import rate_of
from redline.envs.game_lists import GameLimit, known_name
from redline.errors import UserError
from redline.plan.time import Speed, exact
from redline.report.rows import number, numbers, setting, text
from redline.report.run_files import RunFiles, load_run
from redline.runs.locating import locate_run

WINDOWS = 10  # into which the time of learning is cut, to see its spread
LEAST_S = 1.0  # of learning
RECENT_EPISODES = 100


@dataclass(frozen=True)
class RunSpeed:
    """What one run tells of the speed of the next."""

    path: Path
    game: str
    limit: GameLimit | None  # of the run itself
    learning_steps: float
    learning_s: float  # by the wall clock: evaluations and checkpoints are in it, stops are not
    window_steps_per_s: tuple[float, ...]
    episode_steps: float | None  # mean of the newest episodes; None if none ended
    warmup_steps: int
    warmup_steps_per_s: float | None
    checkpoint_minutes: float | None


def read_run_speed(name: str) -> RunSpeed:
    """Return the speed of the run that a user means; UserError if it can't be read, or has learnt nothing yet."""
    folder = locate_run(name)
    if not folder.is_dir():
        raise UserError(f"{name} is no run directory: name one, or a folder of runs (its newest), or last")
    run = load_run(folder)
    env = text({"id": setting(run.run, "env.id")}, "id")
    if run.run is None or env is None or not run.metrics:
        raise UserError(f"{folder} tells no speed: {' '.join(run.problems[:1]) or 'it names no env.'} Name another run")
    points = _points(run)
    learning_s = points[-1][0] - points[0][0] if points else 0.0
    if learning_s < LEAST_S or points[-1][1] <= points[0][1]:
        raise UserError(
            f"{folder} has learnt for {learning_s:.0f} s, too short to tell its speed: "
            "let it train longer (redline resume), or use --rate or --measure"
        )
    lengths = numbers(run.episodes_of("actor")[-RECENT_EPISODES:], "length_steps")
    warmup = run.metrics[-1].get("warmup_steps_per_s")
    return RunSpeed(
        path=folder,
        game=known_name(env),
        limit=_own_limit(run.run, known_name(env)),
        learning_steps=points[-1][1] - points[0][1],
        learning_s=learning_s,
        window_steps_per_s=_windows(points),
        episode_steps=fmean(lengths) if lengths else None,
        warmup_steps=int(number({"steps": setting(run.run, "warmup_steps")}, "steps") or 0),
        warmup_steps_per_s=number({"rate": warmup}, "rate") or None,
        checkpoint_minutes=number({"minutes": setting(run.run, "checkpoint_minutes")}, "minutes"),
    )


def speeds_by_game(games: Sequence[GameLimit], runs: Sequence[RunSpeed]) -> tuple[dict[str, Speed], list[str]]:
    """Return the speed of each game by its own runs, else by all of them, and a sentence for each of the latter."""
    speeds, notes = {}, list[str]()
    for game in (game.game for game in games):
        own = [run for run in runs if run.game == game]
        speeds[game] = speed_of(own or runs)
        if not own:
            others = ", ".join(dict.fromkeys(run.game for run in runs))
            notes.append(f"{game} has no run: it trains as fast as {others}, and its episodes are as long")
    return speeds, notes


def speed_of(runs: Sequence[RunSpeed]) -> Speed:
    """Return the speed of all runs of a game together; low and high hold 90 % of their windows."""
    windows = rate_of([rate for run in runs for rate in run.window_steps_per_s])
    rate = sum(run.learning_steps for run in runs) / sum(run.learning_s for run in runs)
    lengths = [run.episode_steps for run in runs if run.episode_steps is not None]
    warmups = [run.warmup_steps_per_s for run in runs if run.warmup_steps_per_s is not None]
    return Speed(
        rate=exact(rate),
        unit="steps/s",
        source="run",
        low_rate=exact(min(windows["low"], rate)),
        high_rate=exact(max(windows["high"], rate)),
        episode_steps=exact(fmean(lengths)) if lengths else None,
        warmup_steps=max(run.warmup_steps for run in runs),
        warmup_steps_per_s=exact(fmean(warmups)) if warmups else None,
    )


def _points(run: RunFiles) -> list[tuple[float, float]]:
    """Return seconds and steps at each reading since the first update, by the wall clock without stops."""
    rows = [row for row in run.while_learning if number(row, "steps") is not None]
    return [(run.clock.minutes(row["unix_s"]) * 60.0, float(row["steps"])) for row in rows]


def _windows(points: Sequence[tuple[float, float]]) -> tuple[float, ...]:
    """Return the speed in each of ten parts of the time, fewer where there are fewer readings."""
    count = min(WINDOWS, len(points) - 1)
    edges = [points[round(place * (len(points) - 1) / count)] for place in range(count + 1)]
    rates = [
        (after[1] - before[1]) / (after[0] - before[0])
        for before, after in pairwise(edges)
        if after[0] > before[0] and after[1] > before[1]
    ]
    return tuple(rates)


def _own_limit(run: Mapping[str, Any], game: str) -> GameLimit | None:
    """Return where the run itself ends, if steps or episodes say so."""
    for name, unit in (("max_steps", "steps"), ("max_episodes", "episodes")):
        limit = number({name: setting(run, name)}, name)
        if limit is not None and limit >= 1:
            return GameLimit(game, int(limit), "steps" if unit == "steps" else "episodes")
    return None

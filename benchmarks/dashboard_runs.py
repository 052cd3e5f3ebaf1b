"""Runs for the dashboard to be measured with: many small ones, one of a day, and one that goes on."""

import json
import math
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

from redline.jsonl import Row, encode_row

SAMPLE_S, READING_S = 1, 5
ROLES = ("supervisor", "learner", "actor-0", "actor-1", "evaluator")
GAMES, ALGORITHMS = ("pong", "breakout", "qbert", "seaquest"), ("dqn", "c51", "ppo")


def facts(game: str, algorithm: str, seed: int, begun_s: float) -> Row:
    """Return a run.json."""
    config = {"env": {"id": game}, "seed": seed, "topology": "async", "batch_size": 32, "learner": {"threads": 1}}
    return {"schema": 1, "algorithm": algorithm, "config": config, "created_unix_s": begun_s}


def reading(at_s: float, begun_s: float) -> Row:
    """Return a row of metrics.jsonl with every field that a run writes."""
    share = at_s / 86_400.0
    roles = [
        {
            "role": role,
            "pid": 100 + place,
            "cpu_percent": 40.0,
            "rss_bytes": 400_000_000,
            "steps_per_s": 60.5,
            "updates_per_s": 15.25,
            "busy": {"act": 0.31, "draw": 0.04, "learn": 0.42, "keep": 0.03, "other": 0.02},
            "waiting": {"learner": 0.05, "actors": 0.0, "envs": 0.06, "gather": 0.02, "rest": 0.0},
            "weights_age_updates": 3.0,
            "restarts": 0,
        }
        for place, role in enumerate(ROLES)
    ]
    wave = math.sin(at_s / 600.0)
    return {
        **{"time_s": at_s, "unix_s": begun_s + at_s, "steps": int(121 * at_s), "frames": int(484 * at_s)},
        **{"updates": int(30 * at_s), "samples": int(960 * at_s), "episodes": int(1.15 * at_s)},
        **{"steps_per_s": 121.0 + 5 * wave, "updates_per_s": 30.2 + wave, "episodes_per_h": 4_166.0},
        **{"samples_per_step": 7.98, "mean_return_100": -21 + 38 * share + wave, "best_return": 21.0, "epsilon": 0.01},
        **{"loss": 0.02 + 0.001 * wave, "gradient_norm": 1.5 + wave / 9, "td_error": 0.1, "mean_q": 2.0 * share},
        **{"largest_q": 3.0 * share, "learning_rate": 6.25e-5, "mean_length_100_steps": 1_800.0, "greedy_return": 15.0},
        **{"replay_transitions": 1_000_000, "replay_capacity_transitions": 1_000_000, "replay_bytes": 97_000_000},
        **{"cpu_percent": 196.0, "rss_bytes": 2_000_000_000, "load_average": 2.2, "disk_free_bytes": 70_000_000_000},
        **{
            "progress": share,
            "remaining_s": 86_400 - at_s,
            "elapsed_s": at_s + 3,
            "price_per_hour": 0.1,
            "cost": share,
        },
        "roles": roles,
    }


def sample(at_s: float, begun_s: float, rng: random.Random) -> Row:
    """Return a row of hardware.jsonl of a run in five processes on two cores."""
    use = 1.9 + 0.05 * rng.random()
    return {
        **{"unix_s": begun_s + at_s, "elapsed_s": at_s, "interval_s": 1.0, "cpu_cores_used": use, "cpu_s": 1.9 * at_s},
        **{"machine_cpu_cores_used": use + 0.05, "core_busy": [0.97, rng.uniform(0.9, 1.0)], "load_average_1m": 2.3},
        **{"rss_bytes": 2.0e9 + 1e5 * at_s, "shared_bytes": 3.0e8, "processes": 5, "threads": 22},
        **{"memory_available_bytes": 2.0e10, "read_bytes_per_s": 0.0, "write_bytes_per_s": 9e4 * rng.random()},
        **{"disk_read_bytes_per_s": 0.0, "disk_write_bytes_per_s": 1.5e5 * rng.random(), "disk_free_bytes": 7e10},
        **{"shm_used_bytes": 6.4e7, "shm_free_bytes": 8e9, "monitor_cpu_s": 0.002 * at_s},
        "roles": {role: {"cpu_cores_used": use / 5, "rss_bytes": 4e8, "processes": 1} for role in ROLES},
    }


def episode(at_s: float, begun_s: float, value: float) -> Row:
    """Return a row of episodes.jsonl."""
    where = {"time_s": at_s, "unix_s": begun_s + at_s, "steps": int(121 * at_s), "role": "actor", "lane": 0}
    return {**where, "return": value, "length_steps": 105, "seed": 1, "seed_offset_steps": 0}


def write_rows(path: Path, rows: Iterator[Row]) -> None:
    """Write a file of rows."""
    with path.open("wb") as file:
        for row in rows:
            file.write(encode_row(row))


def write_run(
    folder: Path, *, seconds: int, episodes: int, seed: int = 1, game: str = "pong", algorithm: str = "dqn"
) -> Path:
    """Write a run of so many seconds that has just ended."""
    folder.mkdir(parents=True)
    rng, begun_s = random.Random(seed), time.time() - seconds  # noqa: S311 - noise
    (folder / "run.json").write_text(json.dumps(facts(game, algorithm, seed, begun_s)))
    write_rows(folder / "metrics.jsonl", (reading(at_s, begun_s) for at_s in range(READING_S, seconds + 1, READING_S)))
    write_rows(folder / "hardware.jsonl", (sample(at_s, begun_s, rng) for at_s in range(1, seconds + 1, SAMPLE_S)))
    ends = (seconds * (place + 1) / episodes for place in range(episodes))
    write_rows(
        folder / "episodes.jsonl",
        (episode(at_s, begun_s, -21 + 40 * at_s / seconds + rng.gauss(0, 3)) for at_s in ends),
    )
    stop = {"event": "stop", "unix_s": begun_s + seconds, "time_s": seconds, "steps": 121 * seconds, "reason": "done"}
    start = {"event": "start", "unix_s": begun_s, "time_s": 0.0, "steps": 0, "protocol": "one action per step"}
    write_rows(folder / "events.jsonl", iter([start, stop]))
    return folder


def write_many(folder: Path, number: int, *, seconds: int) -> None:
    """Write so many runs of some games, algorithms and seeds."""
    for place in range(number):
        game, algorithm = GAMES[place % 4], ALGORITHMS[place % 3]
        path = folder / game / algorithm / f"20260101-{place:06d}-s{place % 5}"
        write_run(path, seconds=seconds, episodes=seconds, seed=place % 5, game=game, algorithm=algorithm)


class LiveRun:
    """A run that has gone on for some time and that this process goes on to write, row by row."""

    def __init__(self, folder: Path, *, seconds: int = 60, episodes: int = 60) -> None:
        self.path = write_run(folder, seconds=seconds, episodes=episodes)
        os.truncate(self.path / "events.jsonl", 0)
        self._begun_s = time.time() - seconds
        self._at_s = float(seconds)
        self._rng = random.Random(1)  # noqa: S311 - noise

    def write(self) -> float:
        """Write a row of each file; return the steps that it tells."""
        self._at_s += 1.0
        self._append("hardware", sample(self._at_s, self._begun_s, self._rng))
        self._append("episodes", episode(self._at_s, self._begun_s, self._rng.gauss(0, 3)))
        self._append("metrics", reading(self._at_s, self._begun_s))
        return float(int(121 * self._at_s))

    def _append(self, kind: str, row: Row) -> None:
        with (self.path / f"{kind}.jsonl").open("ab") as file:
            file.write(encode_row(row))

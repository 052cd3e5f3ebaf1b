"""Two finished runs side by side: what their episodes brought by the same steps, and by the same minutes."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from decay import learning_rows
from episode_means import as_text, read_episodes
from pong_score import changed_settings, typed
from recording import Measurement, say
from redline.errors import UserError
from redline.records import Row, read_records
from redline.runs.directory import read_run_json, slug
from watched_run import read_metrics

TOPOLOGIES = ("inline", "async")
POINTS = 8
WINDOWS = (10, 100)  # episodes
SECONDS = 60.0


def common_points(ends: Sequence[float], count: int = POINTS) -> list[float]:
    """Return `count` points up to the nearest of the ends, evenly spaced, at numbers of two digits and zeros."""
    if min(ends) <= 0:
        raise UserError("a run is too short to be compared: let both train for some minutes")
    spacing = min(ends) / count
    digits = 10.0 ** (math.floor(math.log10(spacing)) - 1)
    spacing = math.floor(spacing / digits) * digits
    return [round(spacing * (number + 1), 6) for number in range(count)]


def means_at(episodes: Sequence[Row], key: str, at: float) -> Row:
    """Return the means of the last episodes that had ended when `key` was `at`, None where there are too few."""
    returns = [float(row["return"]) for row in episodes if row[key] <= at]
    means = {f"mean_return_{n}": statistics.fmean(returns[-n:]) if len(returns) >= n else None for n in WINDOWS}
    return {**means, "episodes": len(returns)}


def compare(episodes: Mapping[str, Sequence[Row]], key: str, points: Sequence[float]) -> list[Row]:
    """Return a table: the means of each run at each point of `key`."""
    return [{key: at} | {name: means_at(rows, key, at) for name, rows in episodes.items()} for at in points]


def read_evaluations(events: Sequence[Row]) -> list[Row]:
    """Return the evaluations that were played while the run trained."""
    return [
        {"weights_steps": row["weights_steps"], "minutes": row["time_s"] / SECONDS, "mean_return": row["mean_return"]}
        for row in events
        if row["event"] == "evaluation"
    ]


def read_side(facts: Row, metrics: Sequence[Row], events: Sequence[Row]) -> Row:
    """Return how a run was trained, and how fast."""
    learning = learning_rows(metrics)
    if len(learning) < 2:
        raise UserError("a run has learnt nothing yet: let both train for some minutes")
    first, last = learning[0], learning[-1]
    settings = changed_settings(facts)
    return {
        "steps": last["steps"],
        "minutes": last["time_s"] / SECONDS,
        "updates": last["updates"],
        "episodes": last["episodes"],
        "steps_per_s": (last["steps"] - first["steps"]) / (last["time_s"] - first["time_s"]),
        "warmup_steps_per_s": last.get("warmup_steps_per_s"),  # runs of earlier versions have none
        "samples_per_step": last["samples_per_step"],
        "weights_age_updates": statistics.median(row["actor_weights_age_updates"] for row in learning),
        "mean_return_100": last["mean_return_100"],
        "best_return": last["best_return"],
        "evaluations": read_evaluations(events),
        "settings": settings,
        "flags": typed(settings),
        "seed": facts["config"]["seed"],
        "resumes": len(facts["resumes"]),
        "stop": next((row["reason"] for row in reversed(events) if row["event"] == "stop"), None),
        "run_commit": facts["commit"],
        "run_host": facts["host"],
    }


def compare_runs(runs: Mapping[str, Path], *, caveat: str | None = None) -> Measurement:
    """Read two runs, by topology, and return what they show, and what a reader must know to judge it."""
    facts = {name: read_run_json(run) for name, run in runs.items()}
    for name, own in facts.items():
        if (found := own["config"].get("topology", "inline")) != name:
            raise UserError(f"{runs[name]} is a run of --topology {found}: give the inline run first, then the async")
    if len({(own["algorithm"], own["config"]["env"]["id"]) for own in facts.values()}) > 1:
        raise UserError("the runs are of two algorithms or envs: give two of the same")
    sides = {
        name: read_side(facts[name], read_metrics(run), read_records(run / "events.jsonl"))
        for name, run in runs.items()
    }
    episodes = {
        name: [{**row, "minutes": row["time_s"] / SECONDS} for row in read_episodes(run)] for name, run in runs.items()
    }
    tables = {
        key: compare(episodes, key, common_points([side[key] for side in sides.values()]))
        for key in ("steps", "minutes")
    }
    for key, table in tables.items():
        say(table_text(key, table))
    own = next(iter(facts.values()))
    found = measurement(sides, tables, algorithm=own["algorithm"], env_id=own["config"]["env"]["id"])
    return found if caveat is None else replace(found, learning=f"{found.learning}; {caveat}")


def measurement(
    sides: Mapping[str, Row], tables: Mapping[str, Sequence[Row]], *, algorithm: str, env_id: str
) -> Measurement:
    """Return the runs side by side."""
    samples = " and ".join(as_text(side["samples_per_step"]) for side in sides.values())
    speeds = " and ".join(f"{side['steps_per_s']:.0f}" for side in sides.values())
    greedy = [
        f"{name} {as_text(side['evaluations'][-1]['mean_return'])} at step {side['evaluations'][-1]['weights_steps']:,}"
        for name, side in sides.items()
        if side["evaluations"]
    ]
    return Measurement(
        name=f"topologies-learning-{slug(env_id)}-{algorithm}".replace("_", "-"),
        title=f"{algorithm.upper()} on {env_id}, inline and async: mean return of the last 10 episodes",
        headline="; ".join(_last_row(key, table) for key, table in tables.items()),
        learning=f"samples per step {samples}, steps/s {speeds}" + (f"; greedy {', '.join(greedy)}" if greedy else ""),
        passed=None,
        config={name: {"settings": side["settings"], "flags": side["flags"]} for name, side in sides.items()},
        repeats=[{"topology": name, **side} for name, side in sides.items()],
        summary={f"by_{key}": table for key, table in tables.items()},
    )


def table_text(key: str, table: Sequence[Row]) -> str:
    """Return a table for people: the mean of ten, and of a hundred in brackets."""
    lines = [f"{key:>12}" + "".join(f"{name:>20}" for name in TOPOLOGIES)]
    for row in table:
        cells = [
            f"{as_text(row[name]['mean_return_10'])} ({as_text(row[name]['mean_return_100'])})" for name in TOPOLOGIES
        ]
        lines.append(f"{row[key]:>12,g}" + "".join(f"{cell:>20}" for cell in cells))
    return "\n".join(lines)


def _last_row(key: str, table: Sequence[Row]) -> str:
    row = table[-1]
    means = ", ".join(f"{name} {as_text(row[name]['mean_return_10'])}" for name in TOPOLOGIES)
    return f"after {row[key]:,g} {key} {means}"

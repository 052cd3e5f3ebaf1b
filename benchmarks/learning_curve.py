"""Records the learning curve of a run that exists: mean-100 against steps and minutes of training."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from arguments import make_parser
from episode_means import Point, as_text, best_of, first_reaching, read_points
from recording import Measurement, finish
from redline.errors import UserError
from redline.records import read_records
from redline.runs.directory import read_run_json, slug

LEVELS = (-19.0, -15.0, -10.0, 0.0, 10.0, 18.0)
CURVE_POINTS = 50


def thin_out(points: Sequence[Point], count: int) -> list[Point]:
    """Return about `count` points, evenly spaced in steps, the first and the last among them."""
    if len(points) <= count:
        return list(points)
    first, last = points[0].steps, points[-1].steps
    chosen: list[Point] = []
    for point in points:
        if point.steps >= first + len(chosen) * (last - first) / (count - 1):
            chosen.append(point)
    return chosen if chosen[-1] == points[-1] else [*chosen, points[-1]]


def main(argv: Sequence[str] | None = None) -> int:
    """Read the run and record its curve."""
    options = parse(argv)
    try:
        result = measurement(options.run, levels=options.levels)
    except (UserError, OSError) as error:
        raise SystemExit(f"learning_curve: {error}") from None
    return finish(result, as_json=options.json, keep=not options.no_record)


def measurement(run: Path, *, levels: Sequence[float]) -> Measurement:
    """Return what the run's files show."""
    facts = read_run_json(run)
    config = {key: value for key, value in facts["config"].items() if key != "log_dir"}  # a path of the machine
    metrics = read_records(run / "metrics.jsonl")
    if not metrics:
        raise UserError(f"{run} has no row in metrics.jsonl yet: let it train for some seconds")
    last = metrics[-1]
    points = read_points(run)
    stops = [row["reason"] for row in read_records(run / "events.jsonl") if row["event"] == "stop"]
    algorithm, env_id, network = facts["algorithm"], config["env"]["id"], config["network"]["name"]
    final, best = points[-1].mean_return_100 if points else None, best_of(points)
    return Measurement(
        name=f"learning-{slug(env_id)}-{algorithm}-{network}".replace("_", "-").replace(".", "-"),
        title=f"{algorithm.upper()} on {env_id}, network {network}, seed {config['seed']}",
        headline=f"mean-100 {as_text(final)} (best {as_text(best)}) after {last['steps']:,} steps, "
        f"{last['time_s'] / 60:.0f} min",
        learning=f"{last['steps'] / last['time_s']:.0f} steps/s, {as_text(last['samples_per_step'])} samples per step",
        passed=None,
        config=config,
        repeats=[asdict(point) for point in thin_out(points, CURVE_POINTS)],
        summary={
            "run_commit": facts["commit"],
            "run_host": facts["host"],
            "run_versions": facts["versions"],
            "resumes": len(facts["resumes"]),
            "stop": stops[-1] if stops else None,
            "steps": last["steps"],
            "minutes": last["time_s"] / 60,
            "updates": last["updates"],
            "episodes": last["episodes"],
            "steps_per_s": last["steps"] / last["time_s"],
            "samples_per_step": last["samples_per_step"],
            "final_mean_return_100": final,
            "best_mean_return_100": best,
            "first_reached": [_reached(points, level) for level in levels if first_reaching(points, level)],
        },
    )


def _reached(points: Sequence[Point], level: float) -> dict[str, Any]:
    point = first_reaching(points, level)
    return {"level": level, **({"steps": point.steps, "minutes": point.minutes} if point else {})}


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("run", type=Path, metavar="RUN", help="run directory")
    parser.add_argument("--levels", type=float, nargs="+", default=LEVELS, help="means to look for; made for Pong")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

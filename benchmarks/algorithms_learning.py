"""Does every algorithm learn? The first step at which mean-100 reached a target on a task, by seed."""

import statistics
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from battery import Training, add_battery_flags, as_flags, finished, record_name, rows_by_algorithm, train, train_all
from learning_tasks import TASKS, LearningTask
from recording import Measurement, at_least, finish, make_parser, say
from redline.jsonl import Row
from run_reading import Point, as_text, best_of, first_reaching, read_points


def make_trainings(task: LearningTask, algorithms: Sequence[str]) -> list[Training]:
    """Return every run of a task; each takes one core, so that two can go side by side."""
    limits = {"--max-steps": task.max_steps, "--target-return": f"{task.target_return:g}"}
    threads = {"--learner.threads": 1, "--actor.threads": 1}
    return [
        Training(task.record, name, seed, as_flags(task.settings_of(name) | limits | threads))
        for name in algorithms
        for seed in task.seeds
    ]


def measure(task: LearningTask, training: Training, folder: Path) -> Row:
    """Train once and return what came of it."""
    summary = train(training, folder)
    row = read_result(task, summary, read_points(Path(summary["run"])))
    first, target = row["first_reached_steps"], f"≥ {task.target_return:g}"
    when = f"never {target}" if first is None else f"{target} at step {first:,}"
    say(f"{training.algorithm}, seed {training.seed}: {when}, best mean-100 {as_text(row['best_mean_return_100'])}")
    return row


def read_result(task: LearningTask, summary: Row, points: Sequence[Point]) -> Row:
    """Return what a run reached, from its summary and the means along it."""
    # the last vector step may lie a few steps beyond the limit; what ends there does not count
    counted = [point for point in points if point.steps <= task.max_steps]
    reached = first_reaching(counted, task.target_return)
    return {
        "passed": reached is not None,
        "first_reached_steps": reached.steps if reached else None,
        "first_reached_minutes": reached.minutes if reached else None,
        "best_mean_return_100": best_of(counted),
        "final_mean_return_100": counted[-1].mean_return_100 if counted else None,
        "steps": summary["steps"],
        "updates": summary["updates"],
        "episodes": summary["episodes"],
        "samples_per_step": summary["samples_per_step"],
        "steps_per_s": summary["steps"] / summary["time_s"],
    }


def summarise(task: LearningTask, rows: Sequence[Row]) -> dict[str, Any]:
    """Return what one algorithm reached over its seeds; a run that failed is a seed that did not pass."""
    finished = [row for row in rows if "error" not in row]
    first = [row["first_reached_steps"] for row in finished if row["passed"]]
    best = [row["best_mean_return_100"] for row in finished if row["best_mean_return_100"] is not None]
    speeds = [row["steps_per_s"] for row in finished]
    return {
        "seeds": len(rows),
        "seeds_passed": len(first),
        "passed": len(first) >= task.required_share * len(rows),
        "first_reached_steps": statistics.median(first) if first else None,  # of the seeds that passed
        "best_mean_return_100": max(best, default=None),
        "steps_per_s": statistics.median(speeds) if speeds else None,
    }


def measurement(task: LearningTask, rows: Sequence[Row], *, parallel: int) -> Measurement:
    """Return what the rows of all runs show."""
    found = {name: summarise(task, own) for name, own in rows_by_algorithm(rows).items()}
    passed = [name for name, result in found.items() if result["passed"]]
    first = [row["first_reached_steps"] for row in rows if row.get("first_reached_steps") is not None]
    missed = ", ".join(name for name in found if name not in passed)
    return Measurement(
        name=record_name(task.record, list(found), whole=task.algorithms, is_as_required=task.is_as_required),
        title=f"{len(found)} algorithms on {task.env}: mean-100 ≥ {task.target_return:g} within {task.max_steps:,} "
        "steps",
        headline=f"{len(passed)} of {len(found)} algorithms pass" + (f" (not {missed})" if missed else ""),
        learning=f"{len(first)} of {len(rows)} seeds reach it"
        + (f", after {min(first):,} to {max(first):,} steps" if first else ""),
        passed=len(passed) == len(found),
        config={
            "env": task.env,
            "max_steps": task.max_steps,
            "target_return": task.target_return,
            "required_share_of_seeds": float(task.required_share),
            "settings": task.settings,
            "departures": [departure.row() for departure in task.departures],
            "parallel_runs": parallel,
        },
        repeats=rows,
        summary={"algorithms": found},
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Train every algorithm with every seed, and record what they reached."""
    options = parse(argv)
    task = TASKS[options.task]
    task = replace(
        task,
        seeds=tuple(options.seeds or task.seeds),
        max_steps=options.max_steps or task.max_steps,
        target_return=task.target_return if options.target_return is None else options.target_return,
        is_as_required=options.max_steps is None and options.target_return is None,
    )
    trainings = make_trainings(task, options.algorithms or task.algorithms)
    rows = train_all(
        finished(trainings, options.rows) if options.only_finished else trainings,
        lambda training, folder: measure(task, training, folder),
        rows_file=options.rows,
        parallel=options.parallel,
    )
    return finish(measurement(task, rows, parallel=options.parallel), as_json=options.json, keep=not options.no_record)


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags; what is not given is the task's own."""
    parser = make_parser(__doc__)
    parser.add_argument("--task", choices=tuple(TASKS), required=True, help="what to learn")
    add_battery_flags(parser)
    parser.set_defaults(algorithms=None)
    parser.add_argument("--seeds", type=int, nargs="+", help="seeds to train, if not the task's own")
    parser.add_argument("--max-steps", type=at_least(1), help="steps that each run has, if not the task's own")
    parser.add_argument("--target-return", type=float, help="mean-100 to reach, if not the task's own")
    parser.add_argument("--only-finished", action="store_true", help="train nothing: record what --rows holds")
    parser.add_argument("--parallel", type=int, choices=(1, 2), default=1, help="runs side by side")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

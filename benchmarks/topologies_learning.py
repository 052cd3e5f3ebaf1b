"""Does DQN learn asynchronously what it learns inline? The steps to a mark, by topology and seed.

Both topologies train with the same flags and seeds on CartPole or on Catch.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import algorithms_learning
from battery import Training, train_all
from learning_tasks import TASKS, LearningTask
from recording import Measurement, at_least, finish, make_parser, say
from redline.jsonl import Row
from run_reading import as_text

ALGORITHM = "dqn"
TOPOLOGIES = ("inline", "async")
SEEDS = (1, 2, 3)
# beside the learning that is compared, nothing else is to run
NO_EVALUATOR = ("--evaluator.every-minutes", "0")


def record_of(task: LearningTask) -> str:
    """Return the name of the records of a task."""
    name = task.record.replace("algorithms", "topologies")
    return name if task.is_as_required else f"{name}-changed"


def make_trainings(task: LearningTask) -> list[Training]:
    """Return every run of a task: of each seed, one in each topology."""
    return [
        replace(training, task=record_of(task), flags=(*training.flags, *NO_EVALUATOR, "--topology", topology))
        for training in algorithms_learning.make_trainings(task, [ALGORITHM])
        for topology in TOPOLOGIES
    ]


def topology_of(row: Row) -> str:
    """Return the topology of a run, finished or failed."""
    return str(row["flags"][row["flags"].index("--topology") + 1])


def measure(task: LearningTask, training: Training, folder: Path) -> Row:
    """Train once and return what came of it."""
    topology = topology_of(training.row())
    say(f"{topology}, seed {training.seed} …")
    return {"topology": topology, **algorithms_learning.measure(task, training, folder)}


def measurement(task: LearningTask, rows: Sequence[Row], *, parallel: int) -> Measurement:
    """Return what the rows of all runs show."""
    by_topology = {name: [row for row in rows if topology_of(row) == name] for name in TOPOLOGIES}
    found = {name: algorithms_learning.summarise(task, own) for name, own in by_topology.items()}
    for name, own in by_topology.items():
        found[name]["first_reached_steps_by_seed"] = {str(row["seed"]): row.get("first_reached_steps") for row in own}
    samples = [row["samples_per_step"] for row in rows if "error" not in row]
    return Measurement(
        name=record_of(task),
        title=f"DQN on {task.env}, inline and async: mean-100 ≥ {task.target_return:g} within {task.max_steps:,} steps",
        headline="; ".join(_shown(name, result) for name, result in found.items()),
        learning="best mean-100 "
        + ", ".join(f"{name} {as_text(result['best_mean_return_100'])}" for name, result in found.items())
        + (f"; samples per step {min(samples):.1f} … {max(samples):.1f}" if samples else ""),
        passed=all(result["passed"] for result in found.values()),
        config={
            "env": task.env,
            "max_steps": task.max_steps,
            "target_return": task.target_return,
            "required_share_of_seeds": float(task.required_share),
            "settings": task.settings_of(ALGORITHM),
            "departures": [item.row() for item in task.departures if ALGORITHM in item.algorithms],
            "parallel_runs": parallel,
        },
        repeats=rows,
        summary={"topologies": found},
    )


def _shown(name: str, result: Row) -> str:
    steps = result["first_reached_steps"]
    when = "" if steps is None else f", first after {steps:,.0f} steps (median)"
    return f"{name} {result['seeds_passed']} of {result['seeds']} seeds{when}"


def train_task(options: Namespace) -> Measurement:
    """Train both topologies with every seed."""
    task = TASKS[options.task]
    task = replace(
        task,
        seeds=tuple(options.seeds),
        max_steps=options.max_steps or task.max_steps,
        target_return=task.target_return if options.target_return is None else options.target_return,
        is_as_required=options.max_steps is None and options.target_return is None,
    )
    rows = train_all(
        make_trainings(task),
        lambda training, folder: measure(task, training, folder),
        rows_file=options.rows,
        parallel=options.parallel,
    )
    return measurement(task, rows, parallel=options.parallel)


def main(argv: Sequence[str] | None = None) -> int:
    """Train, and record."""
    options = parse(argv)
    return finish(train_task(options), as_json=options.json, keep=not options.no_record)


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("--task", choices=tuple(TASKS), required=True, help="what to learn")
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS, help="seeds to train")
    parser.add_argument("--max-steps", type=at_least(1), help="steps that each run has, if not the task's own")
    parser.add_argument("--target-return", type=float, help="mean-100 to reach, if not the task's own")
    parser.add_argument("--parallel", type=int, choices=(1, 2), default=1, help="runs side by side")
    parser.add_argument(
        "--rows", type=Path, metavar="FILE", help="JSON Lines of finished runs: added to, and not repeated"
    )
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

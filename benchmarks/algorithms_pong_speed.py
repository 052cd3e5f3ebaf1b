"""How fast does every algorithm train on Pong? A short run of each with its defaults; the loss must stay finite.

Only the warm-up of replay algorithms differs: the last fifth of the steps, a thousand updates of DQN, is what is timed.
Runs go one after another; a record says whether others used the machine meanwhile.
"""

import math
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil

from battery import Training, add_battery_flags, as_flags, record_name, train, train_all
from recording import Measurement, at_least, finish, make_parser, say
from redline.algorithms.catalog import ALGORITHMS
from redline.algorithms.q_learning import QLearning
from redline.bench.measuring import MAX_BUSY_PERCENT
from redline.jsonl import Row

NAME = "algorithms-pong-speed"
THREADS = 2
SUMMARY_FIELDS = ("steps_per_s", "steps", "updates", "loss", "samples_per_step", "mean_return_100")


def make_training(algorithm: str, *, max_steps: int) -> Training:
    """Return the run of an algorithm; of those with replay, a fifth of the steps is learnt in."""
    settings: dict[str, object] = {"--env": "pong", "--max-steps": max_steps}
    if isinstance(ALGORITHMS[algorithm].atari.algorithm, QLearning):
        settings["--warmup-steps"] = max_steps * 4 // 5
    threads = {"--learner.threads": THREADS, "--actor.threads": THREADS}
    return Training(NAME, algorithm, 1, as_flags(settings | threads))


def measure(training: Training, folder: Path) -> Row:
    """Train once and return what came of it."""
    busy_percent = psutil.cpu_percent(interval=1.0)
    row = {**read_result(train(training, folder)), "busy_percent_before": busy_percent}
    speed = "no updates" if row["steps_per_s"] is None else f"{row['steps_per_s']:.1f} steps/s"
    say(f"{training.algorithm}: {speed}, {row['updates']:,} updates, loss {row['loss']}")
    return row


def read_result(summary: Row) -> Row:
    """Return what a run's summary says; its speed is that since the first update."""
    loss, updates = summary["loss"], summary["updates"]
    return {
        "passed": updates > 0 and loss is not None and math.isfinite(loss),
        "steps_per_s": summary["learning_steps_per_s"],
        "steps": summary["steps"],
        "updates": updates,
        "loss": loss,
        "samples_per_step": summary["samples_per_step"],
        "mean_return_100": summary["mean_return_100"],
        "episodes": summary["episodes"],
        "rss_bytes": summary["rss_bytes"],
    }


def measurement(rows: Sequence[Row], *, max_steps: int) -> Measurement:
    """Return what the rows show."""
    finished = [row for row in rows if "error" not in row]
    passed = [row for row in finished if row["passed"]]
    found: dict[str, Any] = {row["algorithm"]: {key: row[key] for key in SUMMARY_FIELDS} for row in finished}
    busy_percent = max((row["busy_percent_before"] for row in finished), default=None)
    is_quiet = busy_percent is not None and busy_percent <= MAX_BUSY_PERCENT
    speeds = sorted((row["steps_per_s"], row["algorithm"]) for row in passed)
    shown = f"; {speeds[0][1]} {speeds[0][0]:.0f} to {speeds[-1][1]} {speeds[-1][0]:.0f} steps/s" if speeds else ""
    return Measurement(
        name=record_name(NAME, [row["algorithm"] for row in rows]),
        title=f"{len(rows)} algorithms on Pong for {max_steps:,} steps, Nature CNN, defaults",
        headline=f"{len(passed)} of {len(rows)} with updates and a finite loss{shown}",
        learning="too short to learn; " + ("the machine did nothing else" if is_quiet else "the machine was BUSY"),
        passed=len(passed) == len(rows),
        config={
            "env": "pong",
            "max_steps": max_steps,
            "settings": "the defaults, but a warm-up of four fifths of the steps; the flags of each run are in its row",
            "threads": THREADS,
        },
        repeats=rows,
        summary={"algorithms": found, "most_busy_percent_before": busy_percent, "machine_was_quiet": is_quiet},
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Train every algorithm for a while, and record its speed."""
    options = parse(argv)
    trainings = [make_training(name, max_steps=options.max_steps) for name in options.algorithms]
    rows = train_all(trainings, measure, rows_file=options.rows)
    result = measurement(rows, max_steps=options.max_steps)
    return finish(result, as_json=options.json, keep=not options.no_record)


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    add_battery_flags(parser)
    parser.add_argument("--max-steps", type=at_least(1), default=20_000, help="steps that each run has")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

"""Does DQN learn CartPole? The first step at which mean-100 ≥ 400, for several seeds, within a number of steps."""

import sys
import tempfile
from argparse import Namespace
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from arguments import at_least, make_parser
from episode_means import as_text, best_of, first_reaching, read_points
from recording import Measurement, finish, say, spread
from redline_process import run_redline

REQUIRED_SHARE = 0.8  # 4 of seeds 1–5


@dataclass(frozen=True)
class Task:
    """What each seed has to reach."""

    env: str
    max_steps: int
    target_return: float


def run_seed(task: Task, seed: int, folder: Path) -> dict[str, Any]:
    """Train one seed to the end and return its row."""
    flags = ["--env", task.env, "--algo", "dqn", "--seed", str(seed), "--max-steps", str(task.max_steps)]
    summary = run_redline(["train", *flags, "--log-dir", str(folder)], folder / f"seed-{seed}.log")
    # the last vector step may lie a few steps beyond the limit; what ends there does not count
    points = [point for point in read_points(Path(summary["run"])) if point.steps <= task.max_steps]
    reached = first_reaching(points, task.target_return)
    row = {
        "seed": seed,
        "passed": reached is not None,
        "first_reached_steps": reached.steps if reached else None,
        "first_reached_minutes": reached.minutes if reached else None,
        "best_mean_return_100": best_of(points),
        "final_mean_return_100": points[-1].mean_return_100 if points else None,
        "steps": summary["steps"],
        "episodes": summary["episodes"],
        "samples_per_step": summary["samples_per_step"],
        "steps_per_s": summary["steps"] / summary["time_s"],
    }
    when = f"≥ {task.target_return:g} at step {reached.steps:,}" if reached else f"never ≥ {task.target_return:g}"
    say(f"seed {seed}: {when}, best mean-100 {as_text(row['best_mean_return_100'])}")
    return row


def main(argv: Sequence[str] | None = None) -> int:
    """Run all seeds and record what they reached."""
    options = parse(argv)
    task = Task(options.env, options.max_steps, options.target_return)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.parallel) as pool:
        rows = list(pool.map(lambda seed: run_seed(task, seed, Path(folder)), options.seeds))
    return finish(measurement(task, rows, parallel=options.parallel), as_json=options.json, keep=not options.no_record)


def measurement(task: Task, rows: list[dict[str, Any]], *, parallel: int) -> Measurement:
    """Return what the rows of all seeds show."""
    first_steps = [row["first_reached_steps"] for row in rows if row["passed"]]
    best = [row["best_mean_return_100"] for row in rows if row["best_mean_return_100"] is not None]
    when = f", first after {spread(first_steps)['median']:,.0f} steps (median)" if first_steps else ""
    return Measurement(
        name=f"dqn-{task.env.lower()}",
        title=f"DQN on {task.env}: mean-100 ≥ {task.target_return:g} within {task.max_steps:,} steps",
        headline=f"{len(first_steps)} of {len(rows)} seeds{when}",
        learning=f"best mean-100: {', '.join(as_text(row['best_mean_return_100']) for row in rows)}",
        passed=len(first_steps) >= REQUIRED_SHARE * len(rows),
        config={
            "env": task.env,
            "algorithm": "dqn, the defaults for vectors",
            "max_steps": task.max_steps,
            "target_return": task.target_return,
            "parallel_runs": parallel,
        },
        repeats=rows,
        summary={
            "seeds_passed": len(first_steps),
            "seeds": len(rows),
            "first_reached_steps": spread(first_steps) if first_steps else None,
            "best_mean_return_100": spread(best) if best else None,
            "steps_per_s": spread([row["steps_per_s"] for row in rows]),
        },
    )


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("--env", default="CartPole-v1", help="Gymnasium env")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5], help="seeds to train")
    parser.add_argument("--max-steps", type=at_least(1), default=100_000, help="steps each seed has")
    parser.add_argument("--target-return", type=float, default=400.0, help="mean-100 to reach")
    parser.add_argument("--parallel", type=int, choices=(1, 2), default=1, help="runs side by side")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

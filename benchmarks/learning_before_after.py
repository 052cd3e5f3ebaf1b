"""What two sets of finished runs learnt by the same steps: before a change that must not matter, and after it.

Each folder holds run directories of the same algorithms, seeds and settings, which is checked. Runs are told apart by
algorithm and seed; what is compared is the mean return of the last 100 episodes, averaged over the seeds.
"""

import statistics
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from arguments import make_parser
from episode_means import read_episodes
from recording import Measurement, finish, say
from redline.report.statistics import mean_interval
from redline.runs.directory import read_run_json

POINTS = (0.25, 0.5, 0.75, 1.0)  # of the steps of the shortest run
EPISODES = 100
PATHS = frozenset({"log_dir", "replay.path"})  # settings that make no difference to what is learnt

Runs = dict[tuple[str, int], Path]


def find_runs(folder: Path) -> Runs:
    """Return the runs of a folder by algorithm and seed."""
    runs: Runs = {}
    for path in sorted(item.parent for item in folder.rglob("run.json")):
        facts = read_run_json(path)
        key = facts["algorithm"], facts["config"]["seed"]
        if key in runs:
            raise SystemExit(f"learning_before_after: {folder.name} holds two runs of {key[0]} with seed {key[1]}")
        runs[key] = path
    return runs


def check_settings(before: Path, after: Path) -> None:
    """Refuse runs that differ in more than where they lie."""
    one, other = (settings(read_run_json(path)["config"]) for path in (before, after))
    changed = sorted(name for name in one.keys() | other.keys() if one.get(name) != other.get(name))
    if changed:
        raise SystemExit(f"learning_before_after: {before.name} and {after.name} differ in {', '.join(changed)}")


def settings(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the settings of a run by their full names, without paths."""
    found: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            found |= settings(value, f"{prefix}{name}.")
        elif prefix + name not in PATHS:
            found[prefix + name] = value
    return found


def mean_return(path: Path, *, at_steps: float) -> float:
    """Return the mean of the last episodes that had ended by some steps."""
    returns = [row["return"] for row in read_episodes(path) if row["steps"] <= at_steps]
    if not returns:
        raise SystemExit(f"no episode of {path.name} had ended by step {at_steps:,.0f}")
    return statistics.fmean(returns[-EPISODES:])


def compare(algorithm: str, sides: dict[str, list[Path]]) -> dict[str, Any]:
    """Return the means of both sides at the same steps, and the difference at the end with its interval."""
    last = min(read_episodes(path)[-1]["steps"] for paths in sides.values() for path in paths)
    found = {
        side: [[mean_return(path, at_steps=share * last) for share in POINTS] for path in paths]
        for side, paths in sides.items()
    }
    changes = [after[-1] - before[-1] for before, after in zip(found["before"], found["after"], strict=True)]
    low, high = mean_interval(changes) or (None, None)
    say(f"{algorithm}: at the end {statistics.fmean(changes):+.3f} over {len(changes)} seeds")
    return {
        "algorithm": algorithm,
        "game": read_run_json(sides["after"][0])["config"]["env"]["id"],
        "steps": last,
        **{
            side: {
                "mean_returns": [statistics.fmean(column) for column in zip(*rows, strict=True)],
                "by_seed": rows,
            }
            for side, rows in found.items()
        },
        "change_at_the_end": {"mean": statistics.fmean(changes), "low": low, "high": high},
    }


def measurement(rows: list[dict[str, Any]], options: Namespace) -> Measurement:
    """Return what the runs show."""
    changes = {row["algorithm"]: f"{row['change_at_the_end']['mean']:+.2f}".replace("-", "−") for row in rows}
    words = ", ".join(f"{algorithm} {change}" for algorithm, change in changes.items())
    lasting = ", ".join(f"{row['algorithm']} {row['steps']:,}" for row in rows)
    game = " and ".join(sorted({row["game"] for row in rows}))
    return Measurement(
        name="learning-before-after",
        title=f"learning on {game} before and after the learner was made faster",
        headline=f"mean-{EPISODES} return at the end, after − before: {words}",
        learning=f"the same settings and seeds, steps: {lasting}",
        passed=None,
        config={
            "game": game,
            "points": POINTS,
            "episodes": EPISODES,
            "before_commit": options.before_commit,
            "after_commit": options.after_commit,
            "seeds_by_algorithm": {row["algorithm"]: len(row["before"]["by_seed"]) for row in rows},
        },
        repeats=rows,
        summary={row["algorithm"]: row["change_at_the_end"] for row in rows},
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Read, compare, record."""
    options = parse(argv)
    before, after = find_runs(options.before), find_runs(options.after)
    common = sorted(before.keys() & after.keys())
    if not common:
        raise SystemExit("learning_before_after: the folders have no algorithm and seed in common")
    for key in common:
        check_settings(before[key], after[key])
    rows = []
    for algorithm in dict.fromkeys(name for name, _ in common):
        seeds = [key for key in common if key[0] == algorithm]
        rows.append(
            compare(algorithm, {"before": [before[key] for key in seeds], "after": [after[key] for key in seeds]})
        )
    return finish(measurement(rows, options), as_json=options.json, keep=not options.no_record)


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("--before", type=Path, required=True, help="folder of runs")
    parser.add_argument("--after", type=Path, required=True, help="folder of runs")
    parser.add_argument("--before-commit", required=True, help="what the first were trained with")
    parser.add_argument("--after-commit", required=True, help="what the second were trained with")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

"""What do agents reach in minutes on this machine? Recipes, peers, all algorithms and other games, by the same clock.

Each run is a row in benchmarks/scores.jsonl: what is done is kept, and a script that was stopped goes on where it was.
Every seed of a task is listed in its record, failures too. Runs go one after another, with all cores that the script
may use (`taskset -c 0 python benchmarks/scores.py …` gives them one).
"""

import json
import sys
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import psutil

from battery import Training, as_flags, read_done, train, train_all
from learning_tasks import TRIAL_STEPS
from recipe_tables import NOT_COMPARED
from recording import RECORDS, Measurement, at_least, finish, make_parser, say
from redline.algorithms.catalog import ALGORITHMS
from redline.algorithms.on_policy import Clipped, OnPolicy, PolicyGradient, QLambda
from redline.exploration import Sampled
from redline.jsonl import Row
from redline.recipes import find_recipe
from redline.runs.host import usable_cores
from redline.runs.run_json import read_run_json
from redline_process import run_redline
from run_reading import as_text, changed_settings, read_episodes, typed
from sb3_training import PEERS, train_peer
from tables import newest_records

ROWS = RECORDS.parent / "scores.jsonl"
CURVE_INTERVAL_S = 15.0
CURVE_EPISODES = 10  # whose mean is a point
REQUIRED_MINUTES = {"pong": 12.0, "pong-dqn": 30.0, "pong-ppo": 30.0}
UNUSED_SEEDS = {"pong": (56, 57, 58, 59, 60), "pong-dqn": (61, 62, 63), "pong-ppo": (61, 62, 63)}
REQUIRED_SEEDS = {"pong": 4, "pong-dqn": 2, "pong-ppo": 2}
STUCK_RETURN = -18.0  # below it an algorithm gets a second seed
FAILED_RETURN = -20.0  # at it nothing was learnt
ON_POLICY_RECIPES = {Clipped: "pong", PolicyGradient: "pong-a2c", QLambda: "pong-pqn"}
GAMES = ("breakout", "boxing", "freeway")
NOT_TOLD = ("max_minutes", "max_steps", "seed", "target_eval_return", "monitor.hz", "checkpoint_minutes", "record")
UNJUDGED_GAMES = ("freeway",)  # recorded without a peer and without a bar


@dataclass(frozen=True)
class Point:
    """The mean return of the newest ten episodes at a moment of a run."""

    minutes: float
    steps: int
    mean_return: float

    def row(self) -> Row:
        """Return it for a record."""
        return {"minutes": round(self.minutes, 2), "steps": self.steps, "mean_return": round(self.mean_return, 2)}


def curve_of(episodes: Sequence[Row]) -> list[Point]:
    """Return a point every few seconds, from rows with time_s, steps and return."""
    points: list[Point] = []
    next_s = 0.0
    for place in range(CURVE_EPISODES - 1, len(episodes)):
        row = episodes[place]
        if row["time_s"] < next_s and place < len(episodes) - 1:
            continue
        next_s = row["time_s"] + CURVE_INTERVAL_S
        newest = episodes[place - CURVE_EPISODES + 1 : place + 1]
        mean = sum(float(one["return"]) for one in newest) / CURVE_EPISODES
        points.append(Point(row["time_s"] / 60, int(row["steps"]), mean))
    return points


# Redline


def measure(training: Training, folder: Path) -> Row:
    """Train once; return the minutes until the game was solved, or else what the agent plays like in the end."""
    busy_percent, begun_s = psutil.cpu_percent(interval=1.0), time.time()
    summary = train(training, folder)
    ended_s = time.time()
    run, solved = Path(summary["run"]), summary["solved"]
    # by the clock on the wall, as of the peers: starting and evaluating count
    episodes = [row | {"time_s": row["unix_s"] - begun_s} for row in read_episodes(run)]
    row = {
        "solved": solved is not None,
        "minutes": (solved["elapsed_s"] if solved else ended_s - begun_s) / 60,
        "score": solved["mean_return"] if solved else evaluate(run, training.algorithm),
        "steps": summary["steps"],
        "updates": summary["updates"],
        "steps_per_s": summary["learning_steps_per_s"],
        "mean_return_100": summary["mean_return_100"],
        "best_return": summary["best_return"],
        "cores": usable_cores(),
        "busy_percent_before": busy_percent,
        "curve": [point.row() for point in curve_of(episodes)],
    }
    say(
        f"{describe(training)}: {'solved in' if solved else 'not solved,'} {row['minutes']:.1f} min, {row['score']:.1f}"
    )
    return row


def evaluate(run: Path, algorithm: str) -> float:
    """Return the mean of 30 episodes with the last weights: drawn from a policy, greedy with ε = 0 else."""
    is_policy = isinstance(ALGORITHMS[algorithm].atari.algorithm.explore, Sampled)
    how = ["--sample"] if is_policy else ["--epsilon", "0"]
    found = run_redline(["eval", str(run), "--episodes", "30", *how], run / "eval.log")
    return float(found["mean_return"])


def describe(training: Training) -> str:
    """Say which training it is."""
    return f"{training.task}, {training.algorithm}, seed {training.seed}"


def recipe_trainings(name: str, seeds: Sequence[int], *, minutes: float | None = None) -> list[Training]:
    """Return the runs of a recipe; with `minutes` they go on so long and look for no target."""
    flags: dict[str, object] = {"--recipe": name, "--max-minutes": REQUIRED_MINUTES.get(name, 30.0)}
    if minutes is not None:
        flags |= {"--max-minutes": f"{minutes:g}", "--target-eval-return": "None"}
    algorithm = find_recipe(name).algorithm
    return [Training(f"recipe-{name}", algorithm, seed, as_flags(flags)) for seed in seeds]


def algorithm_training(algorithm: str, seed: int, *, minutes: float) -> Training:
    """Return the run of an algorithm on Pong: with its family's recipe."""
    flags = {"--recipe": family_recipe(algorithm), "--max-minutes": f"{minutes:g}"}
    return Training("fifteen", algorithm, seed, as_flags(flags))


def family_recipe(algorithm: str) -> str:
    """Return the recipe whose settings suit an algorithm."""
    parts = ALGORITHMS[algorithm].atari.algorithm
    if isinstance(parts, OnPolicy):
        return ON_POLICY_RECIPES[type(parts.objective)]
    return "pong-rainbow" if parts.layers.explore() else "pong-dqn"


# Tasks


def run_recipe(options: Namespace) -> Measurement:
    """Train a recipe with every seed: is the game solved in time?"""
    name = options.recipe
    seeds = tuple(options.seeds or UNUSED_SEEDS.get(name, (51, 52, 53)))
    rows = train_all(recipe_trainings(name, seeds), measure, rows_file=options.rows)
    limit = REQUIRED_MINUTES.get(name, 30.0)
    solved = [row["minutes"] for row in rows if row.get("solved") and row["minutes"] <= limit]
    needed = REQUIRED_SEEDS.get(name, 1)
    told = ", ".join(f"seed {row['seed']} {_outcome(row)}" for row in rows)
    return Measurement(
        name=f"recipe-{name}",
        title=f"recipe {name}: solved within {limit:g} minutes",
        headline=f"{len(solved)} of {len(rows)} seeds" + (f", median {median(solved):.1f} min" if solved else ""),
        learning=told,
        passed=len(solved) >= needed,
        config={"recipe": name, "settings": dict(find_recipe(name).settings), "required_seeds": needed},
        repeats=rows,
        summary={"seeds": len(rows), "solved": len(solved), "minutes": solved},
    )


def _outcome(row: Mapping[str, Any]) -> str:
    if "error" in row:
        return f"failed: {row['error']}"
    verdict = f"solved in {row['minutes']:.1f} min" if row["solved"] else f"not solved in {row['minutes']:.1f} min"
    return f"{verdict} ({as_text(row['score'])})"


def run_side_by_side(options: Namespace) -> Measurement:
    """Train the pong recipe with every seed, then peers one after another: who plays how well, and when?"""
    seeds, minutes = tuple(options.seeds or UNUSED_SEEDS["pong"]), options.minutes or 60.0
    ours = train_all(recipe_trainings("pong", seeds), measure, rows_file=options.rows)
    peers = [peer_training("side-by-side", name, seeds[0], "pong", minutes) for name in options.peers]
    theirs = train_peers(peers, options.rows)
    told = "; ".join(
        f"{row['algorithm']} {as_text(row['curve'][-1]['mean_return'])} after {minutes:g} min ({row['steps']:,} steps)"
        for row in theirs
        if row.get("curve")
    )
    return Measurement(
        name="side-by-side-pong",
        title="Pong by minutes: Redline's recipe beside Stable-Baselines3",
        headline="Redline: " + ", ".join(f"seed {row['seed']} {_outcome(row)}" for row in ours),
        learning=f"mean of the last ten training episodes: {told}",
        passed=all(row.get("solved") for row in ours),
        config={"seeds": seeds, "minutes": minutes, "peers": {name: PEERS[name].settings() for name in options.peers}},
        repeats=[*ours, *theirs],
        summary={
            "redline": [row.get("minutes") for row in ours],
            "peers": {row["algorithm"]: _last(row) for row in theirs},
        },
        packages=("stable-baselines3",),
    )


def peer_training(task: str, name: str, seed: int, game: str, minutes: float) -> Training:
    """Return the run of a peer; with other settings it is another run."""
    return Training(task, name, seed, (game, f"{minutes:g}", json.dumps(PEERS[name].settings(), sort_keys=True)))


def train_peers(trainings: Sequence[Training], rows_file: Path) -> list[Row]:
    """Train peers that are not in the file yet; a row has the same curve as one of Redline."""

    def peer(training: Training, folder: Path) -> Row:
        game, minutes, _ = training.flags
        episodes = train_peer(training.algorithm, game, seconds=float(minutes) * 60, seed=training.seed, folder=folder)
        points = [point.row() for point in curve_of(episodes)]
        say(f"{describe(training)}: {points[-1] if points else 'no episode ended'}")
        steps = episodes[-1]["steps"] if episodes else 0
        return {"curve": points, "episodes": len(episodes), "steps": steps, "cores": usable_cores()}

    return train_all(trainings, peer, rows_file=rows_file)


def run_fifteen(options: Namespace) -> Measurement:
    """Train every algorithm on Pong for the same minutes; a second seed for those that hardly learn."""
    minutes = options.minutes or 20.0
    seeds = options.seeds or (1, 2)
    first = [algorithm_training(name, seeds[0], minutes=minutes) for name in options.algorithms]
    rows = train_all(first, measure, rows_file=options.rows)
    stuck = [row["algorithm"] for row in rows if row.get("score", FAILED_RETURN) < STUCK_RETURN]
    rows += train_all(
        [algorithm_training(name, seed, minutes=minutes) for name in stuck for seed in seeds[1:]],
        measure,
        rows_file=options.rows,
    )
    best: dict[str, Row] = {}
    for row in rows:
        if "error" not in row and row["score"] > best.get(row["algorithm"], {"score": -1e9})["score"]:
            best[row["algorithm"]] = row
    missing = [
        name for name in options.algorithms if best.get(name, {"score": FAILED_RETURN})["score"] <= FAILED_RETURN
    ]
    fields = ("score", "solved", "minutes", "steps", "seed", "flags")
    is_all = set(options.algorithms) == set(ALGORITHMS)
    return Measurement(
        name="algorithms-pong-score" + ("" if is_all else "-some"),
        title=f"Pong after {minutes:g} minutes, with the family's recipe",
        headline=", ".join(f"{name} {as_text(row['score'])}" for name, row in best.items()),
        learning=f"at {FAILED_RETURN:g} or below: {', '.join(missing) or 'none'}",
        passed=not missing,
        config={"minutes": minutes, "recipes": {name: family_recipe(name) for name in options.algorithms}},
        repeats=rows,
        summary={
            "algorithms": {
                name: {key: row[key] for key in fields} | {"mean_return": row["score"], "episodes": 30}
                for name, row in best.items()
            }
        },
    )


def run_games(options: Namespace) -> Measurement:
    """Train other games for the same minutes with Redline's recipes, and judged ones with Stable-Baselines3's PPO."""
    minutes, seed = options.minutes or 30.0, options.seeds[0] if options.seeds else 51
    ours: dict[str, Row] = {}
    theirs: dict[str, Row] = {}
    for game in options.games:
        (ours[game],) = train_all([game_training(game, seed, minutes=minutes)], measure, rows_file=options.rows)
        if game not in UNJUDGED_GAMES:
            (theirs[game],) = train_peers([peer_training("games", "sb3-ppo", seed, game, minutes)], options.rows)
    pairs = {game: (_last(ours[game]), _last(row)) for game, row in theirs.items()}
    told = {
        game: f"{as_text(_last(row))} "
        + (f"beside {as_text(pairs[game][1])}" if game in pairs else f"({NOT_COMPARED})")
        for game, row in ours.items()
    }
    better = [own is not None and peer is not None and own > peer for own, peer in pairs.values()]
    return Measurement(
        name="games-by-minutes",
        title=f"other games after {minutes:g} minutes: Redline's recipe beside Stable-Baselines3's PPO",
        headline=", ".join(f"{game} {words}" for game, words in told.items()),
        learning="mean return of the last ten training episodes, unclipped, one seed",
        passed=all(better) if better else None,
        config={"minutes": minutes, "seed": seed},
        repeats=[*ours.values(), *theirs.values()],
        summary={
            game: {"redline": _last(row), "sb3_ppo": pairs[game][1] if game in pairs else NOT_COMPARED}
            for game, row in ours.items()
        },
        packages=("stable-baselines3",),
    )


def game_training(game: str, seed: int, *, minutes: float) -> Training:
    """Return the run of a game: with its own recipe, or with the one for any game."""
    name = "atari-small" if game in UNJUDGED_GAMES else game
    (training,) = recipe_trainings(name, [seed], minutes=minutes)
    return Training(f"game-{game}", training.algorithm, seed, (*training.flags, "--env", game))


def run_tried(options: Namespace) -> Measurement:
    """Add runs to those that were tried while a recipe was looked for; their cores were shared, so only steps tell."""
    before = {record["name"]: record["repeats"] for _, record in newest_records(RECORDS)}
    rows = [*before.get(f"tried-{options.recipe}", []), *(read_trial(run) for run in options.runs)]
    best = max(rows, key=lambda row: row["mean_return"])
    return Measurement(
        name=f"tried-{options.recipe}",
        title=f"what was tried for recipe {options.recipe}",
        headline=f"{len(rows)} runs, the best {as_text(best['mean_return'])} after {best['steps']:,} steps",
        learning=f"mean return of the last ten training episodes; the best: {best['flags']}",
        passed=None,
        config={"recipe": options.recipe},
        repeats=rows,
        summary={"runs": len(rows)},
    )


def read_trial(run: Path) -> Row:
    """Return what a run departed in from its algorithm's defaults, and the mean of its last ten episodes by steps."""
    facts, points = read_run_json(run), curve_of(read_episodes(run))
    if not points:
        raise SystemExit(f"{run} has fewer than {CURVE_EPISODES} episodes: leave it out, or train it longer")
    settings = {key: value for key, value in changed_settings(facts).items() if key not in NOT_TOLD}
    marks: dict[str, float] = {}
    for mark in TRIAL_STEPS:
        if (found := next((point for point in points if point.steps >= mark), None)) is not None:
            marks[str(mark)] = round(found.mean_return, 1)
    last = points[-1]
    return {
        "algorithm": facts["algorithm"],
        "seed": facts["config"]["seed"],
        "flags": typed(settings),
        "steps": last.steps,
        "mean_return": last.mean_return,
        "at_steps": marks,
        "run_commit": facts["commit"],
    }


def _last(row: Mapping[str, Any]) -> float | None:
    return float(row["curve"][-1]["mean_return"]) if row.get("curve") else None


TASKS = {
    "recipe": run_recipe,
    "side-by-side": run_side_by_side,
    "fifteen": run_fifteen,
    "games": run_games,
    "tried": run_tried,
}


def main(argv: Sequence[str] | None = None) -> int:
    """Do one task, and record it."""
    options = parse(argv)
    say(f"{len(read_done(options.rows))} runs are done already")
    return finish(TASKS[options.task](options), as_json=options.json, keep=not options.no_record)


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("task", choices=tuple(TASKS), help="what to train")
    parser.add_argument("runs", type=Path, nargs="*", metavar="RUN", help="of the task tried")
    parser.add_argument("--recipe", default="pong", help="of the task recipe")
    parser.add_argument("--seeds", type=at_least(0), nargs="+", help="in place of those that no choice has used")
    parser.add_argument("--minutes", type=float, help="of each run, in place of the task's own")
    parser.add_argument("--algorithms", nargs="+", choices=tuple(ALGORITHMS), default=list(ALGORITHMS))
    parser.add_argument(
        "--peers", nargs="+", choices=tuple(PEERS), default=list(PEERS), help="of the task side-by-side"
    )
    parser.add_argument("--games", nargs="+", choices=GAMES, default=list(GAMES))
    parser.add_argument("--rows", type=Path, default=ROWS, metavar="FILE", help="JSON Lines of finished runs")
    return parser.parse_intermixed_args(argv)


if __name__ == "__main__":
    sys.exit(main())

"""How much does compression slow training? DQN with raw frames and with zstd, by turns, prefetch on.

With --path the compressed frames are on disk, in that folder.

Each is measured in a process of its own; the warm-up is excluded. Each pair gives one ratio, so whatever else slows the
machine slows both.
"""

import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import psutil

from arguments import at_least, make_parser
from machine_use import refuse_busy_machine
from recording import Measurement, finish, say, spread
from redline.bench.training.settings import DqnSetting
from redline.bench.training.workers import OURS, environ_with, run_worker
from redline.cli.spinning import SHORT_SPIN

ENVS = {"pong": "PongNoFrameskip-v4", "yars_revenge": "YarsRevengeNoFrameskip-v4"}
GOAL_SLOWDOWN = {"pong": 0.06, "yars_revenge": 0.12}  # the second is the worst game
CODECS = ("raw", "zstd")

Row = dict[str, Any]


def run_pair(setting: DqnSetting, game: str, number: int, path: str | None) -> Row:
    """Measure both codecs once, the order alternating; frames of zstd are at `path`."""
    busy_percent = psutil.cpu_percent(interval=1.0)
    order = CODECS if number % 2 == 0 else CODECS[::-1]
    paths = {"raw": None, "zstd": path}
    rows = {}
    for codec in order:
        stored = replace(setting, replay_codec=codec, replay_path=paths[codec])
        rows[codec] = run_worker(OURS, stored, environ=environ_with(SHORT_SPIN, known=SHORT_SPIN))
    slowdown = 1 - rows["zstd"]["steps_per_s"] / rows["raw"]["steps_per_s"]
    say(f"{game}, pair {number + 1}: {slowdown:+.1%} slower with zstd")
    return {"game": game, "order": order, "busy_percent_before": busy_percent, **rows, "slowdown": slowdown}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure pairs of each game, and record."""
    options = parse(argv)
    refuse_busy_machine("replay_training", allow_busy=options.allow_busy)
    setting = DqnSetting(
        seconds=options.seconds,
        replay_capacity=options.capacity,
        warmup_steps=options.warmup_steps,
        epsilon_over_steps=options.warmup_steps,
        replay_prefetch=options.prefetch,
    )
    rows = [
        run_pair(replace(setting, env=ENVS[game], seed=number + 1), game, number, options.path)
        for number in range(options.repeats)
        for game in options.games
    ]
    config = {**asdict(setting), "env": "by game", "seed": "the number of the pair", "replay_codec": "raw and zstd"}
    return finish(measurement(options, config, rows), as_json=options.json, keep=not options.no_record)


def measurement(options: Namespace, config: Row, rows: list[Row]) -> Measurement:
    """Return what the pairs show."""
    summary: Row = {}
    for game in options.games:
        mine = [row for row in rows if row["game"] == game]
        summary[game] = {
            "slowdown": spread([row["slowdown"] for row in mine]),
            "goal_slowdown": GOAL_SLOWDOWN[game],
            "steps_per_s": {codec: spread([row[codec]["steps_per_s"] for row in mine]) for codec in CODECS},
            "updates_per_step": {codec: spread([row[codec]["updates_per_step"] for row in mine]) for codec in CODECS},
        }
    shown = [
        f"{game} {found['slowdown']['median']:+.1%} ({found['slowdown']['min']:+.1%} … {found['slowdown']['max']:+.1%})"
        for game, found in summary.items()
    ]
    updates = [found["updates_per_step"][codec]["median"] for found in summary.values() for codec in CODECS]
    return Measurement(
        name="replay-training" if options.path is None else "replay-training-disk",
        title=f"time that {'zstd' if options.path is None else 'zstd on disk'} adds to training, against raw frames "
        f"in memory; prefetch {options.prefetch}",
        headline=("slower by " + "; ".join(shown)).replace("-", "−"),
        learning=f"updates per step {min(updates):.3f} … {max(updates):.3f}; "
        + "; ".join(f"{game} {found['steps_per_s']['zstd']['median']:.0f} steps/s" for game, found in summary.items()),
        passed=all(found["slowdown"]["median"] <= found["goal_slowdown"] for found in summary.values()),
        config=config,
        repeats=rows,
        summary=summary,
    )


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("--games", nargs="+", choices=tuple(ENVS), default=list(ENVS), help="games")
    parser.add_argument("--repeats", type=at_least(1), default=5, help="pairs of each game")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of each window")
    parser.add_argument("--capacity", type=at_least(1_000), default=20_000, help="transitions in the replay memory")
    parser.add_argument("--warmup-steps", type=at_least(100), default=6_000, help="steps before the first update")
    parser.add_argument("--prefetch", type=int, default=4, help="updates drawn ahead")
    parser.add_argument("--path", default=None, help="folder that holds the compressed frames")
    parser.add_argument("--allow-busy", action="store_true", help="measure although others use the machine")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

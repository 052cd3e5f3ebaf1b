"""Redline's DQN against Stable-Baselines3's on Pong, same network, batch, envs and updates per step.

Both are measured alternately, each time in a process of its own; the warm-up is excluded. Each repeat gives one ratio,
so whatever else slows the machine slows both. The verdict is the median of the ratios. A busy machine is refused:
other work makes OpenMP teams that spin long, as SB3's do by default, many times slower, and flatters Redline.
"""

import json
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import psutil

from arguments import at_least, make_parser
from episode_means import as_text
from recording import Measurement, finish, say, spread
from redline.cli.main import SHORT_SPIN
from speed_setting import SpeedSetting

WORKERS = {"redline": "speed_redline.py", "sb3": "speed_sb3.py"}
REQUIRED_RATIO = 1.3
MAX_BUSY_PERCENT = 15.0  # of all cores, by others
UPDATES_TOLERANCE = 0.02  # of updates per step: a window may end between two updates

Row = dict[str, Any]


def run_worker(contender: str, setting: SpeedSetting, *, short_spin: bool) -> Row:
    """Train once in a process of its own and return what its window saw."""
    # torch reads these when it is loaded; Redline's command line sets them, SB3's users don't
    environ = {key: value for key, value in os.environ.items() if key not in SHORT_SPIN}
    if short_spin:
        environ |= SHORT_SPIN
    worker = Path(__file__).with_name(WORKERS[contender])
    command = [sys.executable, str(worker), setting.to_json()]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise SystemExit(f"dqn_speed: the worker {WORKERS[contender]} ended with {done.returncode}")
    row: Row = json.loads(done.stdout)
    say(f"{contender}: {row['steps_per_s']:.1f} steps/s, {row['updates_per_step']:.4f} updates per step")
    return row


def choose_vec_env(setting: SpeedSetting, options: Namespace) -> tuple[str, dict[str, float]]:
    """Return SB3's faster vector env here, and what each reached."""
    if options.peer_vec_env != "auto":
        return options.peer_vec_env, {}
    tried = {
        kind: run_worker("sb3", replace(setting, peer_vec_env=kind), short_spin=options.peer_short_spin)["steps_per_s"]
        for kind in ("dummy", "subproc")
    }
    return max(tried, key=lambda kind: tried[kind]), tried


def run_pair(setting: SpeedSetting, number: int, *, peer_short_spin: bool) -> Row:
    """Measure both once, the order alternating."""
    busy_percent = psutil.cpu_percent(interval=1.0)
    order = ("redline", "sb3") if number % 2 == 0 else ("sb3", "redline")
    rows = {name: run_worker(name, setting, short_spin=name == "redline" or peer_short_spin) for name in order}
    ratio = rows["redline"]["steps_per_s"] / rows["sb3"]["steps_per_s"]
    say(f"repeat {number + 1}: ratio {ratio:.3f}")
    contenders = {name: rows[name] for name in WORKERS}
    return {"order": order, "seed": setting.seed, "busy_percent_before": busy_percent, **contenders, "ratio": ratio}


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, compare, record."""
    options = parse(argv)
    busy_percent = psutil.cpu_percent(interval=1.0)
    if busy_percent > MAX_BUSY_PERCENT and not options.allow_busy:
        raise SystemExit(
            f"dqn_speed: the machine is {busy_percent:.0f} % busy: wait, or use --allow-busy to try the script"
        )
    setting = SpeedSetting(
        seconds=options.seconds,
        num_envs=options.num_envs,
        replay_capacity=options.capacity,
        warmup_steps=options.warmup_steps,
        epsilon_over_steps=options.warmup_steps,
    )
    kind, tried = choose_vec_env(setting, options)
    setting = replace(setting, peer_vec_env=kind)
    say(f"Stable-Baselines3 runs on the {kind} vector env")
    repeats = [
        run_pair(replace(setting, seed=number + 1), number, peer_short_spin=options.peer_short_spin)
        for number in range(options.repeats)
    ]
    config = {**asdict(setting), "seed": "the number of the repeat", "peer_vec_env_tried_steps_per_s": tried}
    config |= {"redline_omp": SHORT_SPIN, "peer_omp": SHORT_SPIN if options.peer_short_spin else {}}
    return finish(measurement(config, repeats), as_json=options.json, keep=not options.no_record)


def measurement(config: Row, repeats: list[Row]) -> Measurement:
    """Return what the pairs show."""
    ratio = spread([row["ratio"] for row in repeats])
    speed = {name: spread([row[name]["steps_per_s"] for row in repeats]) for name in WORKERS}
    updates = {name: spread([row[name]["updates_per_step"] for row in repeats]) for name in WORKERS}
    wanted = 1 / config["steps_per_update"]
    is_fair = all(
        abs(row[name]["updates_per_step"] / wanted - 1) <= UPDATES_TOLERANCE for row in repeats for name in WORKERS
    )
    returns = {name: _mean_return([row[name] for row in repeats]) for name in WORKERS}
    return Measurement(
        name="dqn-speed-pong",
        title=f"DQN on Pong, Nature CNN, {config['num_envs']} envs, one update of {config['batch_size']} per "
        f"{config['steps_per_update']} steps: Redline ÷ Stable-Baselines3",
        headline=f"{ratio['median']:.2f} × ({ratio['min']:.2f}–{ratio['max']:.2f}); "
        f"{speed['redline']['median']:.0f} against {speed['sb3']['median']:.0f} steps/s",
        learning=f"updates per step {updates['redline']['median']:.3f} and {updates['sb3']['median']:.3f}, mean return "
        f"in the windows {as_text(returns['redline'])} and {as_text(returns['sb3'])}"
        + ("" if is_fair else "; the same number of updates was NOT done"),
        passed=is_fair and ratio["median"] >= REQUIRED_RATIO,
        config=config,
        repeats=repeats,
        summary={
            "ratio": ratio,
            "required_ratio": REQUIRED_RATIO,
            "steps_per_s": speed,
            "updates_per_step": updates,
            "same_updates_per_step": is_fair,
            "mean_return_in_windows": returns,
        },
        packages=("stable_baselines3", "opencv-python-headless"),
    )


def _mean_return(rows: list[Row]) -> float | None:
    episodes = sum(row["episodes"] for row in rows)
    return sum(row["mean_return"] * row["episodes"] for row in rows if row["episodes"]) / episodes if episodes else None


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("--repeats", type=at_least(1), default=5, help="pairs")
    parser.add_argument("--seconds", type=float, default=25.0, help="length of each window")
    parser.add_argument("--num-envs", type=int, choices=(4, 8, 16, 32), default=8, help="envs of both")
    parser.add_argument("--capacity", type=at_least(1_000), default=20_000, help="transitions in the replay memory")
    parser.add_argument("--warmup-steps", type=at_least(100), default=6_000, help="steps before the first update")
    parser.add_argument(
        "--peer-vec-env", choices=("auto", "dummy", "subproc"), default="auto", help="auto tries both, takes the faster"
    )
    parser.add_argument("--allow-busy", action="store_true", help="measure although others use the machine")
    parser.add_argument("--peer-short-spin", action="store_true", help="give SB3 Redline's OpenMP settings too")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

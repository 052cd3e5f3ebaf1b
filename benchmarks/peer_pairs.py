"""Pairs of trainings, Redline's and Stable-Baselines3's: each in a process of its own, by turns, warm-up excluded.

Each pair gives one ratio, so whatever else slows the machine slows both; the verdict is the median of the ratios.
"""

import json
import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import psutil

from arguments import at_least
from episode_means import as_text
from recording import Measurement, say, spread
from redline.cli.main import SHORT_SPIN
from speed_setting import OnPolicySetting, SpeedSetting

CONTENDERS = ("redline", "sb3")
MAX_BUSY_PERCENT = 15.0  # of all cores, by others
UPDATES_TOLERANCE = 0.02  # of updates per step: a window may end between two updates

Row = dict[str, Any]
Workers = Mapping[str, str]  # a contender → the script that trains with it
Setting = TypeVar("Setting", SpeedSetting, OnPolicySetting)


def refuse_busy_machine(script: str, *, allow_busy: bool) -> None:
    """Stop where others use the machine: that slows OpenMP teams which spin long, as SB3's do, far more than ours."""
    busy_percent = psutil.cpu_percent(interval=1.0)
    if busy_percent > MAX_BUSY_PERCENT and not allow_busy:
        raise SystemExit(
            f"{script}: the machine is {busy_percent:.0f} % busy: wait, or use --allow-busy to try the script"
        )


def run_worker(worker: str, setting: Setting, *, short_spin: bool) -> Row:
    """Train once in a process of its own and return what its window saw."""
    # torch reads these when it is loaded; Redline's command line sets them, SB3's users don't
    environ = {key: value for key, value in os.environ.items() if key not in SHORT_SPIN}
    if short_spin:
        environ |= SHORT_SPIN
    command = [sys.executable, str(Path(__file__).with_name(worker)), setting.to_json()]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise SystemExit(f"the worker {worker} ended with {done.returncode}")
    row: Row = json.loads(done.stdout)
    say(f"{worker}: {row['steps_per_s']:.1f} steps/s, {row['updates_per_step']:.4f} updates per step")
    return row


def choose_vec_env(workers: Workers, setting: Setting, options: Namespace) -> tuple[str, dict[str, float]]:
    """Return SB3's faster vector env here, and what each reached."""
    if options.peer_vec_env != "auto":
        return options.peer_vec_env, {}
    tried = {}
    for kind in ("dummy", "subproc"):
        row = run_worker(workers["sb3"], replace(setting, peer_vec_env=kind), short_spin=options.peer_short_spin)
        tried[kind] = row["steps_per_s"]
    return max(tried, key=lambda kind: tried[kind]), tried


def run_pair(workers: Workers, setting: Setting, number: int, *, peer_short_spin: bool) -> Row:
    """Measure both once, the order alternating."""
    busy_percent = psutil.cpu_percent(interval=1.0)
    order = CONTENDERS if number % 2 == 0 else CONTENDERS[::-1]
    rows = {name: run_worker(workers[name], setting, short_spin=name == "redline" or peer_short_spin) for name in order}
    ratio = rows["redline"]["steps_per_s"] / rows["sb3"]["steps_per_s"]
    say(f"repeat {number + 1}: ratio {ratio:.3f}")
    contenders = {name: rows[name] for name in CONTENDERS}
    return {"order": order, "seed": setting.seed, "busy_percent_before": busy_percent, **contenders, "ratio": ratio}


def measure_pairs(workers: Workers, setting: Setting, options: Namespace) -> tuple[Row, list[Row]]:
    """Choose SB3's vector env, then measure all pairs; return the configuration and a row per pair."""
    kind, tried = choose_vec_env(workers, setting, options)
    setting = replace(setting, peer_vec_env=kind)
    say(f"Stable-Baselines3 runs on the {kind} vector env")
    repeats = [
        run_pair(workers, replace(setting, seed=number + 1), number, peer_short_spin=options.peer_short_spin)
        for number in range(options.repeats)
    ]
    config = {**asdict(setting), "seed": "the number of the repeat", "peer_vec_env_tried_steps_per_s": tried}
    config |= {"redline_omp": SHORT_SPIN, "peer_omp": SHORT_SPIN if options.peer_short_spin else {}}
    return config, repeats


def judge_pairs(
    name: str, title: str, config: Row, repeats: list[Row], *, wanted_updates_per_step: float, required_ratio: float
) -> Measurement:
    """Return what the pairs show; the median ratio must be at least the required one, with the updates wanted."""
    ratio = spread([row["ratio"] for row in repeats])
    speed = {name: spread([row[name]["steps_per_s"] for row in repeats]) for name in CONTENDERS}
    updates = {name: spread([row[name]["updates_per_step"] for row in repeats]) for name in CONTENDERS}
    samples = {name: updates[name]["median"] * config["batch_size"] for name in CONTENDERS}
    is_fair = all(
        abs(row[name]["updates_per_step"] / wanted_updates_per_step - 1) <= UPDATES_TOLERANCE
        for row in repeats
        for name in CONTENDERS
    )
    returns = {name: _mean_return([row[name] for row in repeats]) for name in CONTENDERS}
    return Measurement(
        name=name,
        title=title,
        headline=f"{ratio['median']:.2f} × ({ratio['min']:.2f}–{ratio['max']:.2f}); "
        f"{speed['redline']['median']:.0f} against {speed['sb3']['median']:.0f} steps/s",
        learning=f"samples per step {samples['redline']:.2f} and {samples['sb3']:.2f}, mean return "
        f"in the windows {as_text(returns['redline'])} and {as_text(returns['sb3'])}"
        + ("" if is_fair else "; the same number of updates was NOT done"),
        passed=is_fair and ratio["median"] >= required_ratio,
        config=config,
        repeats=repeats,
        summary={
            "ratio": ratio,
            "required_ratio": required_ratio,
            "steps_per_s": speed,
            "updates_per_step": updates,
            "samples_per_step": samples,
            "same_updates_per_step": is_fair,
            "mean_return_in_windows": returns,
        },
        packages=("stable_baselines3", "opencv-python-headless"),
    )


def _mean_return(rows: list[Row]) -> float | None:
    episodes = sum(row["episodes"] for row in rows)
    return sum(row["mean_return"] * row["episodes"] for row in rows if row["episodes"]) / episodes if episodes else None


def add_pair_flags(parser: ArgumentParser) -> None:
    """Add the flags of every comparison in pairs."""
    parser.add_argument("--repeats", type=at_least(1), default=5, help="pairs")
    parser.add_argument("--seconds", type=float, default=25.0, help="length of each window")
    parser.add_argument(
        "--peer-vec-env", choices=("auto", "dummy", "subproc"), default="auto", help="auto tries both, takes the faster"
    )
    parser.add_argument("--allow-busy", action="store_true", help="measure although others use the machine")
    parser.add_argument("--peer-short-spin", action="store_true", help="give SB3 Redline's OpenMP settings too")

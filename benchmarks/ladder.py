"""From the textbook's DQN loop to Redline, one thing switched on at a time: what does each rung gain?

Every rung trains Pong in a process of its own, by turns; a gain is the ratio of steps/s within a round. The base counts
only if it keeps up with Stable-Baselines3's DQN with one env. What a rung does to learning is told by trainings on
Catch, of as many steps as the base needs there for a mean return of 0.9 on its slowest seed. The rungs of the plain
loop below Redline's trainer do the same updates as the base, and only the base is trained.
"""

import json
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import plain_loop
from plain_loop import ADAM_EPS, EPSILON_END, LOOPS, TASKS, Task
from plain_parts import BATCH_SIZE, GAMMA, SAMPLES_PER_STEP, STEPS_PER_UPDATE
from recording import Measurement, at_least, finish, make_parser, say
from redline.bench.measuring import rate_of, why_not_judged
from redline.cli.process import choose_spin
from redline.jsonl import Row
from redline.report.statistics import mean_interval
from redline.runs.host import has_bf16, usable_cores
from redline_process import (
    SETTLE_STEPS,
    WatchedProcess,
    read_window,
    run_redline,
    take_turns,
    train_for_window,
    wait_for_window,
)
from run_reading import as_text
from sb3_training import sb3_window

BASE, SB3 = "textbook", "stable-baselines3"
NUM_ENVS = 8
REQUIRED_RATIO = 0.95  # of the peer's steps/s, or the base is a strawman
LEARNT, MOST_LEARNING_STEPS = 0.9, 60_000  # mean return of 100 episodes of Catch that counts as learnt


@dataclass(frozen=True)
class Rung:
    """One thing that is switched on, beside all that the rung below it has."""

    name: str
    switches_on: str
    over: str | None = None  # the rung below it; None: the one before
    batch_size: int = BATCH_SIZE  # of Redline's trainer
    flags: tuple[str, ...] = ()  # more flags of `redline train`; a rung of the plain loop has none

    @property
    def is_plain(self) -> bool:
        """Whether it is the plain loop with other parts, not Redline's trainer."""
        return self.name in LOOPS


def asynchronous(sync_steps: int) -> tuple[str, ...]:
    """Return the flags of actor and learner in processes of their own."""
    return ("--topology", "async", "--actor.sync-steps", str(sync_steps), "--evaluator.every-minutes", "0")


RUNGS = (
    Rung(BASE, "one env behind Gymnasium's wrappers, NCHW, default Adam, whole stacks copied"),
    Rung("native-env", "the native env, still one"),
    Rung("envs-8", "8 envs, acting in one batch"),
    Rung("overlapped", "learning while the envs step"),
    Rung("channels-last", "channels_last instead of NCHW"),
    Rung("fused-adam", "Adam in one pass"),
    Rung("frames-once", "a replay that stores each frame once"),
    Rung("zstd", "frames compressed"),
    Rung("prefetch", "the next batch gathered by a thread"),
    Rung(
        "engine",
        "`redline train`, several things in one: its loop and records, He initialisation, 1/255 folded into the first "
        "layer, activations in place, targets of coming updates computed together",
    ),
    # the same replay ratio in fewer, larger updates is another way to learn: nothing else builds on it
    Rung("batch-64", "one update of 64 per 8 steps", batch_size=64),
    Rung("batch-128", "one update of 128 per 16 steps", batch_size=128),
    Rung("batch-256", "one update of 256 per 32 steps", batch_size=256),
    Rung("batch-512", "one update of 512 per 64 steps", batch_size=512),
    Rung(
        "processes",
        "actor and learner in processes, weights after every vector step (--actor.sync-steps 8)",
        over="engine",
        flags=asynchronous(NUM_ENVS),
    ),
    Rung("sync-4", "weights every 4 vector steps (--actor.sync-steps 32)", flags=asynchronous(4 * NUM_ENVS)),
    Rung("sync-10", "weights every 10 vector steps (--actor.sync-steps 80)", flags=asynchronous(10 * NUM_ENVS)),
    Rung("bf16", "products in bf16 (--learner.precision bf16)", over="engine", flags=("--learner.precision", "bf16")),
    # only their speed can show: neither game has lives, and both have rewards of ±1
    Rung("no-life-loss", "a life lost ends nothing: that wrapper off; speed only, neither game has lives", over=BASE),
    Rung("no-clipping", "rewards as they are: that wrapper off too; speed only, both games' rewards are ±1"),
)


def train_flags(rung: Rung, task: Task, *, seed: int) -> list[str]:
    """Return a rung of Redline's trainer as flags of `redline train`, with the numbers of the plain loop."""
    updates = task.target_sync_steps * BATCH_SIZE // (STEPS_PER_UPDATE * rung.batch_size)
    flags = {
        "env": task.env,
        "algo": "dqn",
        "network": task.network,
        "num-envs": NUM_ENVS,
        "device": "cpu",
        "batch-size": rung.batch_size,
        "samples-per-step": SAMPLES_PER_STEP,
        "warmup-steps": task.warmup_steps,
        "target-sync-updates": max(1, updates),
        "returns.gamma": GAMMA,
        "explore.epsilon.end": EPSILON_END,
        "explore.epsilon.over-steps": task.epsilon_over_steps,
        "optimizer.lr": task.lr,
        "optimizer.eps": ADAM_EPS,
        "replay.capacity": task.capacity,
        "replay.codec": "zstd",
        "replay.prefetch": 1,
        "seed": seed,
        "checkpoint-minutes": 1_000_000.0,
        "monitor.hz": 0,
    }
    return [text for name, value in flags.items() for text in (f"--{name}", str(value))] + list(rung.flags)


def plain_command(rung: Rung, task: str, seed: int, folder: str, *steps: str) -> list[str]:
    """Return the command of a rung of the plain loop."""
    return [sys.executable, plain_loop.__file__, rung.name, task, str(seed), folder, *steps]


def window_of(rung: Rung, seconds: float, seed: int) -> Row:
    """Train a rung on Pong, and return what its window saw."""
    if not rung.is_plain:
        return train_for_window(train_flags(rung, TASKS["pong"], seed=seed), seconds=seconds)
    with tempfile.TemporaryDirectory() as folder:
        command = plain_command(rung, "pong", seed, folder)
        with WatchedProcess(command, Path(folder) / "said.log", environ=choose_spin(["train"])) as process:
            opens_at_steps = TASKS["pong"].warmup_steps + SETTLE_STEPS
            rows = wait_for_window(process, Path(folder), opens_at_steps=opens_at_steps, seconds=seconds)
        return read_window(rows)


def learn_plainly(seed: int, *limits: str) -> Mapping[str, Any]:
    """Train the base on Catch, and return what it reached after how many steps."""
    base = next(rung for rung in RUNGS if rung.name == BASE)
    with tempfile.TemporaryDirectory() as folder:
        command = plain_command(base, "catch", seed, folder, *limits)
        done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found: Mapping[str, Any] = json.loads(done.stdout)
    return found


def steps_to_learn(seeds: Sequence[int]) -> int:
    """Return the steps after which the base has learnt Catch on all seeds."""
    found = [learn_plainly(seed, str(MOST_LEARNING_STEPS), str(LEARNT)) for seed in seeds]
    needed = ", ".join(str(one["steps"]) for one in found)
    if any(one["mean_return_100"] < LEARNT for one in found):
        raise SystemExit(f"ladder: {BASE} has not learnt Catch after {needed} steps")
    say(f"{BASE} reaches {LEARNT} on Catch after {needed} steps")
    return max(int(one["steps"]) for one in found)


def mean_return_of(rung: Rung, *, seed: int, steps: int) -> float | None:
    """Train a rung on Catch, and return the mean return of its last 100 episodes; None for one like the base."""
    if rung.name == BASE:
        return float(learn_plainly(seed, str(steps))["mean_return_100"])
    if rung.is_plain:
        return None
    with tempfile.TemporaryDirectory() as folder:
        flags = [*train_flags(rung, TASKS["catch"], seed=seed), "--max-steps", str(steps), "--log-dir", folder]
        mean: float | None = run_redline(["train", *flags], Path(folder) / "said.log")["mean_return_100"]
    return mean


def place_rungs(names: Sequence[str] = ()) -> dict[Rung, str | None]:
    """Return the rungs that are named, all if none is, and the base, each with the nearest such rung below it."""
    wanted = {BASE, *(names or [rung.name for rung in RUNGS])} - (set() if has_bf16() else {"bf16"})
    below: dict[str, str | None] = {}
    for place, rung in enumerate(RUNGS):
        over = None if place == 0 else rung.over or RUNGS[place - 1].name
        below[rung.name] = over if over is None or over in wanted else below[over]
    return {rung: below[rung.name] for rung in RUNGS if rung.name in wanted}


def read_rung(rung: Rung, over: str | None, rounds: Sequence[Row], returns: Sequence[float | None]) -> dict[str, Any]:
    """Return all that is known of a rung."""
    known = [value for value in returns if value is not None]
    interval = mean_interval(known)
    own = [row[rung.name] for row in rounds]
    return {
        "name": rung.name,
        "switches_on": rung.switches_on,
        "over": over,
        "missing": None,
        "gain": None if over is None else gain(rounds, rung.name, over),
        "gain_over_base": gain(rounds, rung.name, BASE),
        "steps_per_s": rate_of([window["steps_per_s"] for window in own]),
        "updates_per_s": rate_of([window["updates_per_s"] for window in own]),
        "samples_per_step": rate_of([window["samples_per_step"] for window in own]),
        "cpu_share": rate_of([window["cpu_percent"] / 100 / usable_cores() for window in own]),
        "learning": {
            "mean_return": sum(known) / len(known) if known else None,
            "low": None if interval is None else interval[0],
            "high": None if interval is None else interval[1],
            "by_seed": list(returns),
            "reason": None if known else "as the base",
        },
    }


def gain(rounds: Sequence[Row], name: str, over: str) -> dict[str, float]:
    """Return the ratio of steps/s within each round."""
    return rate_of([row[name]["steps_per_s"] / row[over]["steps_per_s"] for row in rounds])


def judge_base(rounds: Sequence[Row]) -> dict[str, Any]:
    """Say whether the base keeps up with the peer; `valid` is None if this run can't tell."""
    ratio = gain(rounds, BASE, SB3)
    is_valid = ratio["median"] >= REQUIRED_RATIO
    others_percent = max(row["busy_percent_before"] for row in rounds)
    why_not = why_not_judged(rounds=len(rounds), others_percent=others_percent)
    verdict = f"{BASE} {'keeps' if is_valid else 'does not keep'} up with {SB3}"
    said = verdict if why_not is None else f"nobody can tell whether {BASE} keeps up with {SB3}, {why_not}"
    return {
        "name": BASE,
        "peer": SB3,
        "required_ratio": REQUIRED_RATIO,
        "valid": is_valid if why_not is None else None,
        "ratio": ratio,
        "reason": f"{said}: {ratio['median']:.2f} × its steps/s, {REQUIRED_RATIO:g} required",
        "peer_steps_per_s": rate_of([row[SB3]["steps_per_s"] for row in rounds]),
    }


def measurement(options: Namespace, rungs: Sequence[Mapping[str, Any]], base: Mapping[str, Any]) -> Measurement:
    """Return what the ladder shows; it holds if its base keeps up with the peer."""
    best = max(rungs, key=lambda rung: rung["gain_over_base"]["median"])
    returns = [mean for rung in rungs if (mean := rung["learning"]["mean_return"]) is not None]
    learnt = f"mean return {as_text(min(returns))} … {as_text(max(returns))}" if returns else "nothing was trained"
    times = "{median:.2f} × ({low:.2f}–{high:.2f})".format(**best["gain_over_base"])
    regime = f"DQN, batch {BATCH_SIZE}, one update per {STEPS_PER_UPDATE} steps, Adam, γ {GAMMA:g}"
    return Measurement(
        name="ladder",
        title=f"the ladder: {len(rungs)} rungs from the textbook loop, {regime}",
        headline=f"up to {times} the base, with {best['name']}; {base['reason']}",
        learning=learnt,
        passed=base["valid"],
        config={
            "regime": regime,
            "speed": asdict(TASKS["pong"]),
            "learning": {
                **asdict(TASKS["catch"]),
                "steps": options.learning_steps,
                "seeds": options.learning_seeds,
            },
            "rounds": options.rounds,
            "window_seconds": options.window_seconds,
        },
        repeats=rungs,
        summary={"base": base},
        packages=("stable_baselines3",),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Measure all rungs by turns, train each on the small game, and record."""
    options = parse(argv)
    placed = place_rungs(options.rungs)
    seconds = options.window_seconds
    sides: dict[str, Callable[[int], Row]] = {rung.name: partial(window_of, rung, seconds) for rung in placed}
    sides[SB3] = lambda seed: sb3_window("dqn-one-env", seconds=seconds, seed=seed)
    rounds = take_turns(sides, rounds=options.rounds)
    rungs, seeds = [], range(1, options.learning_seeds + 1)
    if options.learning_steps is None and options.learning_seeds:
        options.learning_steps = steps_to_learn(seeds)
    for rung, over in placed.items():
        say(f"what {rung.name} learns")
        returns = [mean_return_of(rung, seed=seed, steps=options.learning_steps) for seed in seeds]
        rungs.append(read_rung(rung, over, rounds, returns))
    found = measurement(options, rungs, judge_base(rounds))
    return finish(found, as_json=options.json, keep=not options.no_record and not options.rungs)


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    names = tuple(rung.name for rung in RUNGS)
    parser.add_argument("--rungs", nargs="+", choices=names, default=(), help="beside the textbook; only all are kept")
    parser.add_argument("--rounds", type=at_least(1), default=5, help="rounds in which all rungs work by turns")
    parser.add_argument("--window-seconds", type=float, default=5.0, help="seconds of each window")
    parser.add_argument("--learning-seeds", type=at_least(0), default=3, help="trainings of each rung on Catch")
    parser.add_argument("--learning-steps", type=at_least(501), help="of each of them; as the base needs to learn")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

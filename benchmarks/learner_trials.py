"""What was tried to make an update cheaper, each beside the learner without it, by turns in one process.

A trial's number is the time without ÷ the time with: above 1 it helps. What is kept is what Redline does; what is not
is here so that nobody has to try it again. Trials that need a process of their own (how threads wait, what freed memory
becomes, how many threads) are pairs of processes.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from arguments import at_least, make_parser
from recording import Measurement, finish, say, spread
from redline.algorithms.named.dqn import DQN
from redline.algorithms.optimizers import Radam, Rmsprop
from redline.bench.measuring import Contender, alternate
from redline.cli.spinning import LONG_SPIN, SHORT_SPIN
from redline.runtime.building import keep_freed_memory
from trial_learners import (
    Bf16,
    Learning,
    Moving,
    OneThread,
    Rollouts,
    compiled,
    default_adam,
    dense_transposed,
    fused_adam,
    of_recipe,
    plain_nchw,
    with_optimizer,
)
from trial_torsos import (
    HalvesOnTwoThreads,
    InPieces,
    OtherFirstLayer,
    OtherTorso,
    bytes_first,
    divided_pixels,
    in_one_step,
    normed_outermost,
    space_to_depth,
)

WORKER_TURNS, WORKER_GROUP = 3, 2  # of a process: how often it is timed, and batches precomputed at once

SLICES = 4  # of a turn


@dataclass(frozen=True)
class Trial:
    """A change, and whether Redline has it."""

    title: str
    kept: bool
    without: Callable[[], Contender]
    with_it: Callable[[], Contender]


@dataclass(frozen=True)
class ProcessTrial:
    """A change that a process has or has not from its start."""

    title: str
    kept: bool
    without: Mapping[str, str]  # environment, and the worker's own settings
    with_it: Mapping[str, str]


TRIALS = {
    "channels-last": Trial("channels innermost instead of outermost (NCHW)", True, plain_nchw, Learning),
    "planes": Trial(
        "planes widened into their channels one by one, instead of all in one operation",
        True,
        lambda: Learning(torso=lambda t: OtherTorso(t, convert=in_one_step)),
        Learning,
    ),
    "fold-scale": Trial(
        "the scale 1/255 in the first layer's weights",
        True,
        lambda: Learning(torso=lambda t: OtherFirstLayer(t, divided_pixels)),
        Learning,
    ),
    "relu-in-place": Trial(
        "activations rectified in place",
        True,
        lambda: Learning(torso=lambda t: OtherTorso(t, in_place=False)),
        Learning,
    ),
    "as-it-lies": Trial(
        "features in the order in which they lie",
        True,
        lambda: Learning(torso=lambda t: OtherTorso(t, as_it_lies=False)),
        Learning,
    ),
    "two-targets": Trial("the target's view of 2 batches in one pass", True, Learning, lambda: Learning(group=2)),
    "four-targets": Trial(
        "the target's view of 4 batches in one pass, instead of 2",
        True,
        lambda: Learning(group=2),
        lambda: Learning(group=4),
    ),
    "fused-adam": Trial(
        "Adam fused into one pass", True, lambda: with_optimizer(default_adam), lambda: with_optimizer(fused_adam)
    ),
    "rmsprop-as-adam": Trial(
        "RMSProp by Adam's fused pass (the step alone)",
        True,
        lambda: Moving(lambda values: torch.optim.RMSprop(values, lr=7e-4, eps=1e-5)),
        lambda: Moving(Rmsprop().build),
    ),
    "radam-foreach": Trial(
        "RAdam over all tensors at once (the step alone)",
        True,
        lambda: Moving(lambda values: torch.optim.RAdam(values, lr=2.5e-4)),
        lambda: Moving(Radam().build),
    ),
    "acting-graph": Trial(
        "A2C learns from what acting computed (acting and update)",
        True,
        lambda: Rollouts(keep=False),
        lambda: Rollouts(keep=True),
    ),
    "flat": Trial(
        "all weights in one flat tensor",
        False,
        lambda: with_optimizer(fused_adam),
        lambda: with_optimizer(fused_adam, flat=True),
    ),
    "interleave": Trial(
        "bytes interleaved first, then widened",
        False,
        Learning,
        lambda: Learning(torso=lambda t: OtherTorso(t, convert=bytes_first)),
    ),
    "dense-transposed": Trial(
        "the wide dense layer as weights × rows instead of rows × weights", False, Learning, dense_transposed
    ),
    "bf16": Trial("products in bf16 (autocast): other arithmetic", False, Learning, lambda: Bf16(Learning())),
    "space-to-depth": Trial(
        "the first layer as 2 × 2 on 64 channels",
        False,
        Learning,
        lambda: Learning(torso=lambda t: OtherFirstLayer(t, space_to_depth)),
    ),
    "pieces": Trial(
        "convolutions on 16 rows at a time", False, Learning, lambda: Learning(torso=lambda t: InPieces(t, rows=16))
    ),
    "pieces-of-256": Trial(
        "convolutions on 64 rows at a time, batch 256",
        False,
        lambda: Learning(replace(DQN, batch_size=256)),
        lambda: Learning(replace(DQN, batch_size=256), torso=lambda t: InPieces(t, rows=64)),
    ),
    "halves": Trial(
        "two half-batches on a thread each, without barriers",
        False,
        Learning,
        lambda: Learning(torso=HalvesOnTwoThreads),
    ),
    "compile": Trial("torch.compile of torso and head", False, Learning, compiled),
    "small-norm": Trial(
        "recipe pong: LayerNorm with the channels innermost instead of PyTorch's",
        True,
        lambda: of_recipe(normed_outermost),
        of_recipe,
    ),
    "small-two-threads": Trial(
        "recipe pong: two threads instead of one", True, lambda: OneThread(of_recipe()), of_recipe
    ),
    "small-halves": Trial(
        "recipe pong: two half-batches on a thread each", False, of_recipe, lambda: of_recipe(HalvesOnTwoThreads)
    ),
    "small-pieces": Trial(
        "recipe pong: convolutions on 16 rows at a time",
        False,
        of_recipe,
        lambda: of_recipe(lambda t: InPieces(t, rows=16)),
    ),
    "small-bf16": Trial("recipe pong: products in bf16 (autocast)", False, of_recipe, lambda: Bf16(of_recipe())),
}
PROCESS_TRIALS = {
    "kept-memory": ProcessTrial("freed memory is kept", True, {"keep": "0"}, {"keep": "1"}),
    "flush-denormal": ProcessTrial("denormal numbers count as 0", True, {"flush": "0"}, {"flush": "1"}),
    "two-threads": ProcessTrial("two threads instead of one", True, {"threads": "1"}, {"threads": "2"}),
    "short-spin": ProcessTrial(
        "threads that wait spin briefly (on a quiet machine)", True, {"OMP_WAIT_POLICY": "", "GOMP_SPINCOUNT": ""}, {}
    ),
    "long-spin": ProcessTrial("they spin 25 times longer where nobody else computes", True, SHORT_SPIN, LONG_SPIN),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Try, compare, record; as a worker, learn and print how fast."""
    options = parse(argv)
    if options.worker is not None:
        print(json.dumps(work(json.loads(options.worker), options.turn_seconds)))
        return 0
    torch.set_flush_denormal(True)
    torch.set_num_threads(2)
    keep_freed_memory()
    rows = [try_it(name, TRIALS[name], options) for name in options.trials if name in TRIALS]
    rows += [try_processes(name, PROCESS_TRIALS[name], options) for name in options.trials if name in PROCESS_TRIALS]
    return finish(measurement(rows, options), as_json=options.json, keep=not options.no_record)


def try_it(name: str, trial: Trial, options: Namespace) -> dict[str, Any]:
    """Measure one trial by turns."""
    contenders = {"without": trial.without(), "with": trial.with_it()}
    rates = alternate(contenders, rounds=options.rounds, turn_s=options.turn_seconds, slices=SLICES)
    return told_row(name, trial, [a / b for a, b in zip(rates["with"], rates["without"], strict=True)])


def try_processes(name: str, trial: ProcessTrial, options: Namespace) -> dict[str, Any]:
    """Measure one trial in processes by turns."""
    ratios = []
    for number in range(options.process_rounds):
        sides = [("without", trial.without), ("with", trial.with_it)]
        speed = {side: run_worker(changes, options) for side, changes in sides[:: 1 if number % 2 == 0 else -1]}
        ratios.append(speed["with"] / speed["without"])
    return told_row(name, trial, ratios)


def told_row(name: str, trial: Trial | ProcessTrial, ratios: Sequence[float]) -> dict[str, Any]:
    """Return a trial's row, and say it."""
    say(f"{name}: × {spread(ratios)['median']:.3f} ({min(ratios):.3f}–{max(ratios):.3f})")
    return {"name": name, "title": trial.title, "kept": trial.kept, "gains": list(ratios), "gain": spread(ratios)}


def run_worker(changes: Mapping[str, str], options: Namespace) -> float:
    """Learn for some seconds in a process with these settings, and return its updates per second."""
    environ = {**os.environ, **SHORT_SPIN}
    for name, value in changes.items():
        if name.isupper():
            environ[name] = value
    own = {name: value for name, value in changes.items() if name.islower()}
    environ = {name: value for name, value in environ.items() if value or name not in changes}
    command = [sys.executable, str(Path(__file__)), "--worker", json.dumps(own)]
    command += ["--turn-seconds", str(options.turn_seconds)]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, check=True)
    return float(json.loads(done.stdout))


def work(settings: Mapping[str, str], turn_s: float) -> float:
    """Learn as a training does with these settings; return updates per second, warm-up excluded.

    Nothing here frees a large block first, as `alternate` does: what freed memory becomes is one of the settings.
    """
    torch.set_flush_denormal(settings.get("flush", "1") == "1")
    torch.set_num_threads(int(settings.get("threads", "2")))
    if settings.get("keep", "1") == "1":
        keep_freed_memory()
    learning = Learning(group=WORKER_GROUP)
    _, *rates = (updates_per_s(learning, turn_s) for _ in range(1 + WORKER_TURNS))
    return statistics.median(rates)


def updates_per_s(learning: Learning, seconds: float) -> float:
    """Learn for about so long and return the updates per second."""
    count, begun_s, spent_s = 0, time.perf_counter(), 0.0
    while spent_s < seconds:
        learning(WORKER_GROUP)
        count += WORKER_GROUP
        spent_s = time.perf_counter() - begun_s
    return count / spent_s


def measurement(rows: list[dict[str, Any]], options: Namespace) -> Measurement:
    """Return what the trials show."""
    best = max(rows, key=lambda row: row["gain"]["median"])
    return Measurement(
        name="learner-trials",
        title="What was tried on the learner (Nature CNN, batch 32, unless named), 2 threads: time without ÷ time with",
        headline=f"{sum(row['kept'] for row in rows)} of {len(rows)} kept; most from: {best['title']}",
        learning="the same updates on both sides; tests hold the numbers to those of the plain path",
        passed=None,
        config={"rounds": options.rounds, "turn_s": options.turn_seconds, "process_rounds": options.process_rounds},
        repeats=rows,
        summary={row["name"]: row["gain"] for row in rows},
    )


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    every = [*TRIALS, *PROCESS_TRIALS]
    parser = make_parser(__doc__)
    parser.add_argument("--trials", nargs="+", choices=every, default=every, help="what to try")
    parser.add_argument("--rounds", type=at_least(1), default=7, help="rounds of each trial in one process")
    parser.add_argument("--process-rounds", type=at_least(1), default=5, help="pairs of processes of each other trial")
    parser.add_argument("--turn-seconds", type=float, default=1.0, help="seconds that each side works in each round")
    parser.add_argument("--worker", help="settings of a worker, as JSON; it prints its updates per second")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

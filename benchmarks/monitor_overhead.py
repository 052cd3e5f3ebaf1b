"""What does the monitor cost? One training process, watched and not watched by turns, at a fixed number of steps each.

The same process trains all the time; only the monitor comes and goes. Each pair is two turns in a row, in changing
order, so that a machine that becomes slower or faster favours neither. The monitor starts before its turn and ends
after it; the cost of starting it is reported separately.
"""

import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean, median
from typing import Any

import psutil

from recording import Measurement, at_least, finish, make_parser, say, spread
from redline.bench.measuring import MAX_BUSY_PERCENT
from redline.cli.flags import parse_train
from redline.jsonl import Row, read_records
from redline.monitor import record
from redline.report.statistics import mean_interval
from redline.runtime.building import build_trainer, prepare_process
from redline.runtime.resolve import resolve_job
from redline.runtime.training import Trainer

NAME = "monitor-overhead"
FLAGS = (
    "--env",
    "pong",
    "--algo",
    "dqn",
    "--warmup-steps",
    "400",
    "--replay.capacity",
    "20000",
    "--replay.prefetch",
    "1",
)
SETTLE_STEPS = 1_000  # before the first turn
MIN_PAIRS, REQUIRED_HZ = 5, 10.0  # for a verdict
LARGEST_SHARE = 0.01  # of the machine's CPU time, for the monitor
LARGEST_LOSS = 0.02  # of the steps per second


def train_for(trainer: Trainer, steps: int) -> float:
    """Train for so many steps and return steps per second."""
    end, begun_s, before = trainer.counters.steps + steps, time.perf_counter(), trainer.counters.steps
    while trainer.counters.steps < end:
        trainer.vector_step()
    return (trainer.counters.steps - before) / (time.perf_counter() - begun_s)


def take_turn(trainer: Trainer, steps: int, *, hz: float | None) -> Row:
    """Train for so many steps, watched or not, and return how fast that was and what the watching cost."""
    if hz is None:
        return {"is_watched": False, "steps_per_s": train_for(trainer, steps)}
    with tempfile.TemporaryDirectory() as name:
        with record(name, hz=hz):
            steps_per_s = train_for(trainer, steps)
        start, *_, stop = read_records(Path(name) / "events.jsonl")
    return {
        "is_watched": True,
        "steps_per_s": steps_per_s,
        "samples": stop["samples"],
        "elapsed_s": stop["elapsed_s"],
        "monitor_cpu_share": stop["monitor_cpu_share"],
        "monitor_starting_cpu_s": start["monitor_cpu_s"],
    }


def measure_pair(trainer: Trainer, steps: int, *, hz: float, watched_first: bool) -> Row:
    """Return a pair of turns."""
    order = (hz, None) if watched_first else (None, hz)
    turns = [take_turn(trainer, steps, hz=rate) for rate in order]
    watched, alone = sorted(turns, key=lambda turn: not turn["is_watched"])
    ratio = watched["steps_per_s"] / alone["steps_per_s"]
    say(f"watched {watched['steps_per_s']:.1f}, alone {alone['steps_per_s']:.1f} steps/s: ratio {ratio:.4f}")
    return {
        "watched_first": watched_first,
        "ratio": ratio,
        "watched": watched,
        "alone": alone,
    }


def measurement(pairs: Sequence[Row], *, options: Namespace, others_percent: float) -> Measurement:
    """Return what the pairs show."""
    ratios = [pair["ratio"] for pair in pairs]
    interval = mean_interval(ratios)
    shares = [pair["watched"]["monitor_cpu_share"] for pair in pairs]
    starting = median(pair["watched"]["monitor_starting_cpu_s"] for pair in pairs)
    low, high = interval or (None, None)
    is_free = low is not None and high is not None and (low <= 1.0 <= high or low > 1.0 - LARGEST_LOSS)
    is_as_required = len(pairs) >= MIN_PAIRS and options.hz >= REQUIRED_HZ
    told = "" if interval is None else f" (90 % interval {interval[0]:.4f}–{interval[1]:.4f})"
    summary: dict[str, Any] = {
        "steps_per_s_ratio": {"mean": fmean(ratios), "low": low, "high": high, **spread(ratios)},
        "monitor_cpu_share": spread(shares),
        "monitor_starting_cpu_s": starting,
        "others_percent_before": others_percent,
        "machine_was_quiet": others_percent <= MAX_BUSY_PERCENT,
    }
    return Measurement(
        name=NAME,
        title=f"DQN on Pong, watched at {options.hz:g} Hz ÷ not watched, steps/s, {len(pairs)} pairs in one process",
        headline=f"{fmean(ratios):.4f} ×{told}; the monitor takes {max(shares):.2%} of the machine's CPU time at most",
        learning=f"{options.steps:,} steps a turn, one update of 32 per 4 steps in all of them; to start, the monitor "
        f"takes {starting:.2f} CPU seconds once",
        passed=is_free and max(shares) < LARGEST_SHARE if is_as_required else None,
        config={"flags": FLAGS, "hz": options.hz, "steps_per_turn": options.steps, "settle_steps": SETTLE_STEPS},
        repeats=pairs,
        summary=summary,
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Train, watch by turns, record."""
    options = parse(argv)
    others_percent = psutil.cpu_percent(interval=1.0)
    settled = resolve_job(parse_train(FLAGS).job)
    prepare_process(settled)
    trainer = build_trainer(settled, env_seed=settled.job.seed)
    try:
        trainer.begin()
        train_for(trainer, settled.job.algorithm.warmup_steps + SETTLE_STEPS)
        pairs = [
            measure_pair(trainer, options.steps, hz=options.hz, watched_first=bool(place % 2))
            for place in range(options.pairs)
        ]
    finally:
        trainer.close()
    result = measurement(pairs, options=options, others_percent=others_percent)
    return finish(result, as_json=options.json, keep=not options.no_record)


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("--pairs", type=at_least(2), default=10, help="pairs of turns")
    parser.add_argument("--steps", type=at_least(8), default=2_000, help="steps of a turn")
    parser.add_argument("--hz", type=float, default=10.0, help="samples per second")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

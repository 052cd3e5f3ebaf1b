"""How many runs of a fleet go side by side: steps/s of all together as chosen, against 1, 2 and 3 at a time.

Each side trains so many runs at once, with their shares of the threads, in one window of time that opens when all of
them learn. As chosen: one run is measured as a fleet measures its first, and the rule decides. The sides take turns;
the ratio of a round is that of the choice to the number that is best over all rounds.
"""

import statistics
import sys
import tempfile
import time
from argparse import Namespace
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from recording import Measurement, at_least, finish, make_parser, refuse_busy_machine, say, spread
from redline.files import free_bytes
from redline.fleet.needs import measure_needs, resident_bytes
from redline.fleet.packing import Machine, Packing, choose
from redline.jsonl import Row
from redline.runs.host import available_bytes, usable_cores
from redline.runs.run_json import read_run_json
from redline_process import (
    SETTLE_STEPS,
    START_AND_WARMUP_S,
    WatchedProcess,
    find_run,
    read_metrics,
    redline_command,
    take_turns,
)

LEAST_RATIO = 0.95
FIXED = (1, 2, 3)
SLOTS = 10  # of the fleet that is chosen for
CHOSEN = "chosen"
WORKLOADS = {
    "ppo-pong": ("--env", "pong", "--model", "ppo", "--network", "small"),
    "dqn-cartpole": ("--env", "CartPole-v1", "--model", "dqn"),
    "dqn-pong": ("--env", "pong", "--network", "small", "--warmup-steps", "1000", "--replay.capacity", "20000"),
}


@dataclass
class Trained:
    """A run that goes on."""

    process: WatchedProcess
    run: Path
    opens_at_steps: int

    def rows(self) -> list[Row]:
        """Return the readings from which on it learns steadily."""
        rows = read_metrics(self.run)
        return [row for row in rows if row["steps"] >= self.opens_at_steps and row["updates"] > 0]


def start(stack: ExitStack, flags: Sequence[str], *, threads: int, seed: int) -> Trained:
    """Start a run with its share of the threads; leaving the stack ends it."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    share = [f"--{role}.threads={threads}" for role in ("learner", "actor")]
    command = redline_command("train", *flags, *share, "--seed", str(seed), "--log-dir", str(folder), "--json")
    process = stack.enter_context(WatchedProcess(command, folder / "said.log"))
    run = process.wait_for(lambda: find_run(folder), timeout_s=START_AND_WARMUP_S)
    return Trained(process, run, read_run_json(run)["config"].get("warmup_steps", 0) + SETTLE_STEPS)


def train_side_by_side(flags: Sequence[str], count: int, threads: int, *, seconds: float, seed: int) -> Row:
    """Train so many runs at once; return what all of them did in a window in which all learnt."""
    with ExitStack() as stack:
        runs = [start(stack, flags, threads=threads, seed=10 * seed + place) for place in range(count)]
        for one in runs:
            one.process.wait_for(partial(first_moment, one), timeout_s=START_AND_WARMUP_S)
        begin_s = max(one.rows()[0]["unix_s"] for one in runs)
        end_s = begin_s + seconds
        for one in runs:
            one.process.wait_for(partial(is_past, one, end_s), timeout_s=START_AND_WARMUP_S + seconds)
        rows = [one.rows() for one in runs]
    grown = {
        name: [reading_at(run, name, end_s) - reading_at(run, name, begin_s) for run in rows]
        for name in ("steps", "updates", "samples")
    }
    return {
        "concurrency": count,
        "threads": threads,
        "steps_per_s": sum(grown["steps"]) / seconds,
        "updates_per_s": sum(grown["updates"]) / seconds,
        "samples_per_step": sum(grown["samples"]) / sum(grown["steps"]),
        "steps_per_s_of_each": [steps / seconds for steps in grown["steps"]],
    }


def first_moment(one: Trained) -> float | None:
    """Return when a run began to learn steadily; None if it does not yet."""
    rows = one.rows()
    return rows[0]["unix_s"] if rows else None


def is_past(one: Trained, unix_s: float) -> bool | None:
    """Return True once a run has a reading after a moment; None before."""
    rows = one.rows()
    return True if rows and rows[-1]["unix_s"] >= unix_s else None


def reading_at(rows: Sequence[Row], name: str, unix_s: float) -> float:
    """Return a count at a moment between two readings, as if it had grown evenly."""
    place = bisect_left([row["unix_s"] for row in rows], unix_s)
    after = rows[min(max(place, 1), len(rows) - 1)]
    before = rows[min(max(place, 1), len(rows) - 1) - 1]
    share = (unix_s - before["unix_s"]) / (after["unix_s"] - before["unix_s"])
    return float(before[name] + share * (after[name] - before[name]))


def choose_by_measuring(flags: Sequence[str], *, seed: int) -> Packing:
    """Measure one run as a fleet measures its first, and return what the rule makes of it."""
    cores = usable_cores()
    with ExitStack() as stack:
        one = start(stack, flags, threads=max(1, cores // min(SLOTS, cores)), seed=seed)
        begun_s = time.monotonic()
        pid = one.process.pid
        needs = one.process.wait_for(lambda: measure_needs(one.run, pid), timeout_s=START_AND_WARMUP_S)
        say(f"measured after {time.monotonic() - begun_s:.0f} s")
        memory_bytes = available_bytes() + resident_bytes(one.run)
        machine = Machine(cores=cores, memory_bytes=memory_bytes, disk_bytes=free_bytes(one.run))
    return choose(needs, machine, slots=SLOTS)


def as_chosen(flags: Sequence[str], seed: int, *, seconds: float) -> Row:
    """Choose, and train as chosen."""
    packing = choose_by_measuring(flags, seed=seed)
    say(packing.why)
    row = train_side_by_side(flags, packing.concurrency, packing.threads, seconds=seconds, seed=seed)
    return {**row, "why": packing.why}


def as_fixed(flags: Sequence[str], count: int, seed: int, *, seconds: float) -> Row:
    """Train a fixed number of runs at a time."""
    threads = max(1, usable_cores() // count)
    return train_side_by_side(flags, count, threads, seconds=seconds, seed=seed)


def measure(workload: str, *, rounds: int, seconds: float) -> list[Row]:
    """Let all sides take turns; return a row for each round."""
    flags = WORKLOADS[workload]
    sides: dict[str, Callable[[int], Row]] = {CHOSEN: partial(as_chosen, flags, seconds=seconds)}
    sides |= {str(count): partial(as_fixed, flags, count, seconds=seconds) for count in FIXED}
    return take_turns(sides, rounds=rounds)


def summary_of(rows: Sequence[Row]) -> dict[str, Any]:
    """Return the medians of all sides, and the ratio of the choice to the best fixed number."""
    sides = {name: [row[name]["steps_per_s"] for row in rows] for name in (CHOSEN, *map(str, FIXED))}
    medians = {name: statistics.median(values) for name, values in sides.items()}
    best = max(map(str, FIXED), key=lambda name: medians[name])
    ratios = [row[CHOSEN]["steps_per_s"] / row[best]["steps_per_s"] for row in rows]
    return {
        "best_fixed": int(best),
        "chosen": [row[CHOSEN]["concurrency"] for row in rows],
        "ratio": spread(ratios),
        "steps_per_s": {name: spread(values) for name, values in sides.items()},
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure one workload, and record what came of it."""
    options = parse(argv)
    refuse_busy_machine("fleet_packing.py", allow_busy=options.allow_busy)
    rows = measure(options.workload, rounds=options.rounds, seconds=options.seconds)
    return finish(measurement(options, rows), as_json=options.json, keep=not options.no_record)


def measurement(options: Namespace, rows: Sequence[Row]) -> Measurement:
    """Return what the rounds show."""
    summary = summary_of(rows)
    ratio, chosen = summary["ratio"], "/".join(str(count) for count in sorted(set(summary["chosen"])))
    speeds: Mapping[str, Any] = summary["steps_per_s"]
    told = ", ".join(f"{name} at a time {speeds[name]['median']:,.0f}" for name in map(str, FIXED))
    return Measurement(
        name=f"fleet-packing-{options.workload}",
        title=f"runs side by side, {options.workload}: steps/s of all together as chosen ÷ best fixed number",
        headline=f"{ratio['median']:.2f} × ({ratio['min']:.2f}–{ratio['max']:.2f}); chosen {chosen}, "
        f"best {summary['best_fixed']}",
        learning=f"steps/s: chosen {speeds[CHOSEN]['median']:,.0f}, {told}; "
        f"samples per step {rows[0][CHOSEN]['samples_per_step']:.1f} on all sides",
        passed=ratio["median"] >= LEAST_RATIO,
        config={
            "flags": list(WORKLOADS[options.workload]),
            "seconds": options.seconds,
            "rounds": options.rounds,
            "cores": usable_cores(),
            "required_ratio": LEAST_RATIO,
        },
        repeats=rows,
        summary=summary,
    )


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("--workload", choices=tuple(WORKLOADS), default="ppo-pong", help="what is trained")
    parser.add_argument("--rounds", type=at_least(1), default=3, help="turns of each side")
    parser.add_argument("--seconds", type=float, default=60.0, help="of a window; a rollout of ppo takes some seconds")
    parser.add_argument("--allow-busy", action="store_true", help="try the script beside other work")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

"""Whether `redline plan speed` chooses well: ten planted cases, each against every way that it could have chosen.

The chosen settings and all single changes and pairs of changes are measured by turns. A choice is good if none of them
beats it with its 90 % interval above 1.05; nine of ten must be good.
"""

import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

from recording import Measurement, at_least, finish, make_parser, refuse_busy_machine, say
from redline.cli.flags import parse_train
from redline.cli.plan.speed import environ_of, typed_knobs
from redline.jsonl import Row
from redline.plan.candidate_pool import CandidatePool
from redline.plan.knobs import Asked, Changes, Vary, changed, measured_job, ways, why_impossible
from redline.plan.speed import Race, gain_of
from redline.plan.speed_plan import may_be_chosen, name_of
from redline.plan.speed import CandidateLostError, Window
from redline.runtime.resolve import ResolvedJob, resolve_job
from redline.tune.space import write_settings
from redline_process import run_redline

TOLERATED = 1.05  # times the chosen speed, at the lower end of the interval
REQUIRED_SHARE = 0.9
BESIDE = 3  # candidates that are measured with the choice at a time: each is a process in memory
WINDOW_S = 1.5
CHOSEN = "chosen"
START_S, SWEEP_S = 300.0, 3_600.0  # generous limits
SPIN = "while True: pass"  # what others do beside the measurement


@dataclass(frozen=True)
class Case:
    """A training with a known way to be fast."""

    title: str
    flags: tuple[str, ...]
    vary: Vary = "exact"
    settings: Mapping[str, Any] = field(default_factory=dict)  # asked for in a file, so that they may be changed
    busy_processes: int = 0  # of others


CARTPOLE, PONG = ("--env", "CartPole-v1"), ("--env", "pong")
SLEEPY = ("--env", "redline/SleepyCartPole-v0", "--model", "dqn")
CASES: Mapping[str, Case] = {
    "sleepy": Case("an env that sleeps: several actors", SLEEPY, "nearly"),
    "sleepy-4": Case("four envs that sleep: several actors", (*SLEEPY, "--num-envs", "4"), "nearly"),
    "large": Case(
        "a large network: inline, all threads to the learner",
        (*PONG, "--model", "dqn", "--batch-size", "128"),
        "nearly",
        {"learner.threads": 1},
    ),
    "tiny": Case("a tiny network: one thread", (*CARTPOLE, "--model", "dqn"), settings={"learner.threads": 2}),
    "tiny-ppo": Case("a tiny network on rollouts", (*CARTPOLE, "--model", "ppo"), settings={"learner.threads": 2}),
    "processes": Case(
        "a tiny network in processes that it does not need",
        (*CARTPOLE, "--model", "dqn"),
        "nearly",
        {"topology": "async", "actors": 4},
    ),
    "pong": Case("plain DQN on Pong", (*PONG, "--model", "dqn")),
    "pong-ppo": Case("PPO on Pong with one thread", (*PONG, "--model", "ppo"), settings={"learner.threads": 1}),
    "load": Case("a tiny network, foreign load beside it", (*CARTPOLE, "--model", "dqn"), busy_processes=1),
    "load-pong": Case("DQN on Pong, foreign load beside it", (*PONG, "--model", "dqn"), busy_processes=1),
}


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Keep as many cores busy as others would."""
    running = [subprocess.Popen([sys.executable, "-c", SPIN]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in running:
            process.kill()
            process.wait()


def judge(name: str, *, seconds: float, rounds: int) -> Row:
    """Let Redline choose in a case, and measure every way against its choice."""
    case = CASES[name]
    with tempfile.TemporaryDirectory(prefix="redline-choice-") as folder, load(case.busy_processes):
        config = Path(folder) / "requested.toml"
        write_settings(config, case.settings)
        flags = [*case.flags, "--config", str(config)]
        say(f"{name}: {case.title}")
        plan = run_redline(
            ["plan", "speed", *flags, "--vary", case.vary, "--seconds", str(seconds)], Path(folder) / "said.txt"
        )
        parsed = parse_train(flags)
        asked = Asked(parsed.job, parsed.algo, case.vary, frozenset(typed_knobs(flags)))
        before = resolve_job(asked.job)
        say(f"{name}: chosen in {plan['duration_s']:.0f} s: {plan['chosen']}")
        gains = sweep(asked, before, plan["changes"], Path(folder), rounds=rounds)
    better = {way: gain for way, gain in gains.items() if gain["low"] > TOLERATED}
    return {
        "case": name,
        "title": case.title,
        "chosen": plan["chosen"],
        "why": plan["why"],
        "took_s": plan["duration_s"],
        "others_percent": plan["others_percent"],
        "is_good": not better and plan["duration_s"] <= seconds,
        "better": better,
        "gains": gains,
        "candidates": plan["candidates"],
    }


def sweep(
    asked: Asked, before: ResolvedJob, chosen: Changes, folder: Path, *, rounds: int
) -> dict[str, dict[str, float]]:
    """Return how many times as fast as the choice each way is, with its 90 % interval."""
    found = all_ways(asked, before, chosen)
    names, gains = list(found), dict[str, dict[str, float]]()
    for start in range(0, len(names), BESIDE):
        group = names[start : start + BESIDE]
        say(f"  {start + len(group)} of {len(names)}: {' | '.join(group)}")
        with CandidatePool(Path(tempfile.mkdtemp(dir=folder)), environ_of) as pool:
            for name, changes in {CHOSEN: chosen, **{name: found[name] for name in group}}.items():
                pool.start(name, measured_job(changed(asked, changes), before, folder), asked.algorithm)
                with suppress(CandidateLostError):  # `why_lost` says so
                    pool.wait_ready(name, time.monotonic() + START_S)
            race = Race(CHOSEN, partial(window_of, pool), time.monotonic() + SWEEP_S)
            for _ in range(rounds):
                race.play_round(group)
            if pool.why_lost:
                raise RuntimeError(f"these can't be measured: {pool.why_lost}")
        for name in group:
            if (gain := gain_of(race.ratios(name))) is not None:
                gains[name] = gain._asdict()
    return gains


def window_of(pool: CandidatePool, name: str, until_s: float) -> Window:
    """Measure a candidate for a window."""
    return pool.window(name, WINDOW_S, until_s)


def all_ways(asked: Asked, before: ResolvedJob, chosen: Changes) -> dict[str, Changes]:
    """Return the training as requested, every change and every pair of changes, without the choice itself."""
    single = [changes for changes in ways(asked, before) if may_be_chosen(changes)]
    pairs = [
        {**one, **other}
        for one, other in combinations(single, 2)
        if all(other.get(key, value) == value for key, value in one.items())
    ]
    found = {name_of(changes): changes for changes in ({}, *single, *pairs)}
    found.pop(name_of(chosen), None)
    is_image = before.spec.is_image
    return {
        name: changes
        for name, changes in found.items()
        if why_impossible(changed(asked, changes), is_image=is_image) is None
    }


def measurement(repeats: Sequence[Row], *, seconds: float, rounds: int) -> Measurement:
    """Return what the cases show."""
    good, slowest_s = sum(row["is_good"] for row in repeats), max(row["took_s"] for row in repeats)
    missed = "".join(f"; {row['case']}: {', '.join(row['better'])}" for row in repeats if not row["is_good"])
    return Measurement(
        name="plan-choice" + ("" if len(repeats) == len(CASES) else "-some"),
        title="Settings chosen by redline plan speed against every way that it could have chosen",
        headline=f"{good} of {len(repeats)} choices are beaten by nothing beyond {TOLERATED:g} ×, in at most "
        f"{slowest_s:.0f} s{missed}",
        learning="no choice learns from fewer samples per step",
        passed=good >= REQUIRED_SHARE * len(CASES) if len(repeats) == len(CASES) else None,
        config={"seconds": seconds, "rounds": rounds, "window_s": WINDOW_S, "tolerated": TOLERATED},
        repeats=repeats,
        summary={"good": good, "cases": len(repeats), "slowest_s": slowest_s},
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Choose, sweep, record."""
    options = parse(argv)
    refuse_busy_machine("plan_choice", allow_busy=options.allow_busy)
    rows = [judge(name, seconds=options.seconds, rounds=options.rounds) for name in options.cases]
    found = measurement(rows, seconds=options.seconds, rounds=options.rounds)
    return finish(found, as_json=options.json, keep=not options.no_record)


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("--cases", nargs="+", choices=tuple(CASES), default=list(CASES), help="what is planted")
    parser.add_argument("--seconds", type=float, default=120.0, help="budget of each choice")
    parser.add_argument("--rounds", type=at_least(3), default=10, help="of the sweep; each gives one ratio")
    parser.add_argument("--allow-busy", action="store_true", help="measure although others use the machine")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

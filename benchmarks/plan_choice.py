"""Whether `redline plan speed` chooses well: ten planted cases, each against the other ways that it could have chosen.

The settings as requested, every change and the promising pairs of changes are measured by turns with the choice, each
until its 90 % interval ends below 1.05 or all rounds are played. A choice is good if it came in time, every change was
measured that long, and no interval begins above 1.05; nine of ten must be good. A case takes at most four minutes; its
row is kept.
"""

import subprocess
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from recording import Measurement, at_least, finish, make_parser, refuse_busy_machine, say
from redline.cli.flags import parse_train
from redline.cli.plan.speed import SECONDS, environ_of, typed_knobs
from redline.jsonl import RecordWriter, Row, read_records
from redline.plan.candidate_pool import CandidatePool
from redline.plan.knobs import (
    Asked,
    Changes,
    Vary,
    changed,
    may_be_chosen,
    measured_job,
    name_of,
    ways,
    why_impossible,
    why_no_room,
)
from redline.plan.speed import CandidateLostError, Gain, Race, Window, gain_of
from redline.plan.speed_plan import FILLS_MEMORY
from redline.recipes import write_settings
from redline.runs.host import commit
from redline.runtime.resolve import ResolvedJob, resolve_job
from redline_process import run_redline

TOLERATED = 1.05  # times the chosen speed, at the lower end of the interval
REQUIRED_SHARE = 0.9
CHOICE_S, CASE_S = 120.0, 240.0  # most seconds of the whole command, and of a case
CLOSING_S = 3.0  # to end the processes of a case
BESIDE = 4  # ways that are measured with the choice at a time: each is a process in memory
WINDOW_S = 1.0
PROMISING = 0.9  # times the chosen speed: two changes that together should reach it by their gains alone
CHOSEN = "chosen"
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
    """Let Redline choose in a case, and measure the other ways against its choice."""
    case, begun_s = CASES[name], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="redline-choice-") as folder, load(case.busy_processes):
        config = Path(folder) / "requested.toml"
        write_settings(config, case.settings)
        flags = [*case.flags, "--config", str(config)]
        say(f"{name}: {case.title}")
        plan = run_redline(
            ["plan", "speed", *flags, "--vary", case.vary, "--seconds", str(seconds)], Path(folder) / "said.txt"
        )
        took_s = time.monotonic() - begun_s
        say(f"{name}: chosen in {took_s:.0f} s: {plan['chosen']}")
        parsed = parse_train(flags)
        asked = Asked(parsed.job, parsed.algo, case.vary, frozenset(typed_knobs(flags)))
        with CandidatePool(Path(folder), environ_of) as pool:
            sweep = Sweep(asked, plan["changes"], pool, Path(folder), ends_s=begun_s + CASE_S - CLOSING_S)
            sweep.measure_all(rounds)
    better = {way: gain._asdict() for way, gain in sweep.gains.items() if gain.low > TOLERATED}
    return {
        "case": name,
        "commit": commit(),
        "seconds": seconds,
        "title": case.title,
        "chosen": plan["chosen"],
        "why": plan["why"],
        "took_s": took_s,
        "case_s": time.monotonic() - begun_s,
        "others_percent": plan["others_percent"],
        "is_good": not better and took_s <= CHOICE_S and not sweep.unmeasured,
        "better": better,
        "gains": {way: gain._asdict() for way, gain in sweep.gains.items()},
        "unmeasured": sweep.unmeasured,
        "unmeasured_pairs": sweep.unmeasured_pairs,
        "lost": sweep.lost,
        "candidates": plan["candidates"],
    }


class Sweep:
    """The ways of a case, measured by turns with its choice until a moment."""

    def __init__(self, asked: Asked, chosen: Changes, pool: CandidatePool, folder: Path, *, ends_s: float) -> None:
        self._asked, self._pool, self._folder, self._ends_s = asked, pool, folder, ends_s
        self._before = resolve_job(asked.job)
        self._chosen = chosen
        self.gains: dict[str, Gain] = {}  # of each way over the choice
        self.lost: dict[str, str] = {}  # ways that can't be measured, and why
        self.unmeasured: list[str] = []  # single changes that may be better, with fewer rounds than were asked for
        self.unmeasured_pairs: list[str] = []

    def measure_all(self, rounds: int) -> None:
        """Measure the settings as requested, every change, and the pairs that may be as fast as the choice."""
        self._start(CHOSEN, self._chosen)
        self._wait_ready([CHOSEN])
        if self.lost:
            raise RuntimeError(f"the choice can't be measured: {self.lost[CHOSEN]}")
        single = single_ways(self._asked, self._before)
        self.unmeasured = self._measure(without({name_of({}): {}, **single}, self._chosen), rounds)
        pairs = promising_pairs(single, {name: gain.ratio for name, gain in self.gains.items()}, self._chosen)
        possible = {name: changes for name, changes in pairs.items() if self._is_possible(changes)}
        self.unmeasured_pairs = self._measure(possible, rounds)

    def _measure(self, found: Mapping[str, Changes], rounds: int) -> list[str]:
        """Measure some ways, a few at a time; return those that may be better, but had no time for all rounds."""
        names, played = list(found), dict.fromkeys(found, 0)
        for start in range(0, len(names), BESIDE):
            group = names[start : start + BESIDE]
            say(f"  {start + len(group)} of {len(names)}: {' | '.join(group)}")
            for name in group:
                self._start(name, found[name])
            self._wait_ready(group)
            race = Race(CHOSEN, self._window, self._ends_s)
            alive = [name for name in group if name in self._pool.ready]
            while alive and len(race.rounds) < rounds and race.play_round(alive):
                played |= {name: len(race.ratios(name)) for name in alive}
                self.gains |= {name: gain for name in alive if (gain := gain_of(race.ratios(name))) is not None}
                alive = [name for name in alive if name not in race.why_lost and self._may_beat(name)]
            self.lost |= race.why_lost
            if CHOSEN in self.lost:
                raise RuntimeError(f"the choice can't be measured any more: {self.lost[CHOSEN]}")
            for name in set(group) & set(self._pool.ready):
                self._pool.end(name)
        return [name for name in names if name not in self.lost and played[name] < rounds and self._may_beat(name)]

    def _may_beat(self, name: str) -> bool:
        return name not in self.gains or self.gains[name].high > TOLERATED

    def _start(self, name: str, changes: Changes) -> None:
        job = measured_job(changed(self._asked, changes), self._before, self._folder)
        with suppress(CandidateLostError):  # told when it is waited for
            self._pool.start(name, job, self._asked.algorithm)

    def _wait_ready(self, names: Sequence[str]) -> None:
        for name in names:
            try:
                self._pool.wait_ready(name, self._ends_s)
            except CandidateLostError as lost:
                if time.monotonic() < self._ends_s:
                    self.lost[name] = str(lost)

    def _window(self, name: str, until_s: float) -> Window:
        return self._pool.window(name, WINDOW_S, until_s)

    def _is_possible(self, changes: Changes) -> bool:
        return why_impossible(changed(self._asked, changes), is_image=self._before.spec.is_image) is None


def single_ways(asked: Asked, before: ResolvedJob) -> dict[str, Changes]:
    """Return every change that could have been chosen."""
    return {
        name_of(changes): changes
        for changes in ways(asked, before)
        if may_be_chosen(changes)
        and why_impossible(changed(asked, changes), is_image=before.spec.is_image) is None
        and (changes.keys().isdisjoint(FILLS_MEMORY) or why_no_room(changed(asked, changes)) is None)
    }


def without(found: Mapping[str, Changes], chosen: Changes) -> dict[str, Changes]:
    """Return the ways that are not the choice."""
    return {name: changes for name, changes in found.items() if name != name_of(chosen)}


def promising_pairs(single: Mapping[str, Changes], ratios: Mapping[str, float], chosen: Changes) -> dict[str, Changes]:
    """Return pairs of changes that fit each other and may be as fast as the choice, the likeliest first.

    `ratios` are speeds relative to the choice. Together two changes should gain as much as each of them alone.
    """
    plain = ratios.get(name_of({}), 1.0)  # the choice itself, if it is missing
    expected: dict[str, float] = {}
    found: dict[str, Changes] = {}
    for (one, changes), (other, others) in combinations(single.items(), 2):
        pair = {**changes, **others}
        fits = all(others.get(key, value) == value for key, value in changes.items())
        known = all(name in ratios or name == name_of(chosen) for name in (one, other))
        if fits and known and name_of(pair) not in single:
            found[name_of(pair)] = pair
            expected[name_of(pair)] = ratios.get(one, 1.0) * ratios.get(other, 1.0) / plain
    promising = sorted(
        (name for name, ratio in expected.items() if ratio >= PROMISING), key=lambda name: -expected[name]
    )
    return without({name: found[name] for name in promising}, chosen)


def measurement(repeats: Sequence[Row], *, seconds: float, rounds: int) -> Measurement:
    """Return what the cases show."""
    good, slowest_s = sum(row["is_good"] for row in repeats), max(row["took_s"] for row in repeats)
    told = "".join(f"; {row['case']}: {', '.join(words)}" for row in repeats if (words := shortcomings(row)))
    return Measurement(
        name="plan-choice" + ("" if len(repeats) == len(CASES) else "-some"),
        title="Settings chosen by redline plan speed against the other ways that it could have chosen",
        headline=f"{good} of {len(repeats)} choices are beaten by nothing beyond {TOLERATED:g} ×, in at most "
        f"{slowest_s:.0f} s{told}",
        learning="no choice learns from fewer samples per step",
        passed=good >= REQUIRED_SHARE * len(CASES) if len(repeats) == len(CASES) else None,
        config={"seconds": seconds, "rounds": rounds, "window_s": WINDOW_S, "tolerated": TOLERATED},
        repeats=repeats,
        summary={"good": good, "cases": len(repeats), "slowest_s": slowest_s},
    )


def shortcomings(row: Row) -> list[str]:
    """Return what a case leaves to be desired: better ways, those that were not measured to the end, and lost ones."""
    late = [f"chosen in {row['took_s']:.0f} s"] if row["took_s"] > CHOICE_S else []
    better = [f"better is {name}" for name in row["better"]]
    told = {"undecided": [*row["unmeasured"], *row["unmeasured_pairs"]], "lost": row["lost"]}
    return [*late, *better, *(f"{len(names)} {word} ({' | '.join(names)})" for word, names in told.items() if names)]


def read_done(path: Path, *, seconds: float) -> dict[str, Row]:
    """Return the rows of this version of Redline, by case."""
    rows = read_records(path) if path.exists() else []
    return {row["case"]: row for row in rows if (row["commit"], row["seconds"]) == (commit(), seconds)}


def main(argv: Sequence[str] | None = None) -> int:
    """Choose, sweep, record."""
    options = parse(argv)
    done = read_done(options.rows, seconds=options.seconds)
    waiting = [name for name in options.cases if name not in done]
    if waiting:
        refuse_busy_machine("plan_choice", allow_busy=options.allow_busy)
    for name in waiting:
        done[name] = row = judge(name, seconds=options.seconds, rounds=options.rounds)
        with RecordWriter(options.rows) as rows:
            rows.write(row)
        say(f"{name}: {'good' if row['is_good'] else 'not good'}, {row['case_s']:.0f} s")
    found = measurement([done[name] for name in options.cases], seconds=options.seconds, rounds=options.rounds)
    return finish(found, as_json=options.json, keep=not options.no_record)


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("--cases", nargs="+", choices=tuple(CASES), default=list(CASES), help="what is planted")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="budget of each choice")
    parser.add_argument("--rounds", type=at_least(3), default=10, help="of the sweep, at most; each gives one ratio")
    parser.add_argument("--rows", type=Path, default=Path("plan-choice.jsonl"), help="JSON Lines of finished cases")
    parser.add_argument("--allow-busy", action="store_true", help="measure although others use the machine")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

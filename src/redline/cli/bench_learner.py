"""`redline bench learner`: measure updates per second here, against the arithmetic of the machine and peers."""

import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import tyro

from redline.bench.learner_speed import LearnerBench
from redline.cli.bench_printing import (
    OutputFlags,
    check_seed,
    check_turns,
    give_out,
    print_verdict,
    rate_text,
    tell,
)
from redline.cli.output import print_table
from redline.cli.parsing import parse


@dataclass(frozen=True)
class BenchLearnerFlags:
    """Measure updates per second, beside what the machine's arithmetic allows and beside other libraries."""

    algo: Annotated[str, tyro.conf.arg(aliases=("--model",))] = "dqn"
    """Algorithm, by name, with its settings for Atari."""
    batch_size: int | None = None
    """Transitions in one update; the algorithm's own if not given."""
    against: str = ""
    """Libraries to compare with, commas between them: sb3, at dqn."""
    threads: int = 0
    """Threads of the learner (0: as a training chooses)."""
    rounds: int = 7
    """Rounds in which learners and matrix products are measured by turns."""
    turn_seconds: float = 2.0
    """Seconds that each of them works in each round."""
    seed: int = 1
    """Seed of the weights and of the batches."""
    output: Annotated[OutputFlags, tyro.conf.arg(name="")] = field(default_factory=OutputFlags)
    """Where the result goes."""

    def __post_init__(self) -> None:
        check_turns(rounds=self.rounds, turn_seconds=self.turn_seconds)
        check_seed(self.seed)


def run(args: Sequence[str]) -> int:
    """Measure, print."""
    flags = parse(BenchLearnerFlags, args, default=BenchLearnerFlags(), prog="redline bench learner")
    bench = LearnerBench(
        algo=flags.algo,
        batch_size=flags.batch_size,
        threads=flags.threads,
        rounds=flags.rounds,
        turn_s=flags.turn_seconds,
        seed=flags.seed,
        against=split_names(flags.against),
    )
    with contextlib.redirect_stdout(sys.stderr):  # whatever a peer prints
        result = bench.run(tell)
    return give_out(result, flags.output, subject="learner", args=args, show=show)


def split_names(text: str) -> list[str]:
    """Return the names between the commas, each once."""
    return list(dict.fromkeys(name.strip().lower() for name in text.split(",") if name.strip()))


def show(result: Mapping[str, Any], plain: bool) -> None:
    """Print the result as a table."""
    config, limit = result["config"], result["limit"]
    print(f"{config['algo']}, batches of {config['batch_size']}, {config['threads']} threads")
    rows = [
        ("Redline", rate_text(result["updates_per_s"], 1), rate_text(result["steps_per_s"])),
        *(
            (name, rate_text(result["peer_updates_per_s"][name], 1), rate_text(rate))
            for name, rate in result["peers"].items()
        ),
        ("limit", f"{limit['updates_per_s']:.1f}", ""),
    ]
    print_table(("learner", "updates/s, median (90 %)", "steps/s they allow"), rows, plain=plain, numeric=(1, 2))
    print(
        f"limit: {limit['flop_per_update'] / 1e9:.2f} GFLOP per update at {limit['sgemm_gflops']:.0f} GFLOP/s, "
        f"the best sgemm of this run; reached {rate_text(result['limit_fraction'], 3)} of it"
    )
    if config["includes_forward_of_acting"]:
        print("an update here includes the forward pass that a training shares with acting")
    for name, ratio in result["ratio"].items():
        print(f"Redline ÷ {name}: {rate_text(ratio, 2)}")
    for name, reason in result["missing"].items():
        print(f"left out: {name}: {reason}")
    print_verdict(result)

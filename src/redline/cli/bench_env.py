"""`redline bench env`: measure the env layer here, against the bare emulators."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

import tyro

from redline.bench.env_speed import EnvBench
from redline.cli.bench_printing import (
    OutputFlags,
    check_seed,
    check_turns,
    give_out,
    print_verdict,
    rate_text,
    tell,
)
from redline.cli.main import FAILED, refuse
from redline.cli.parsing import parse
from redline.cli.tables import print_table
from redline.envs.atari import SEED_INTERVAL_STEPS
from redline.envs.config import EnvConfig
from redline.envs.vector import EnvError


@dataclass(frozen=True)
class BenchEnvFlags:
    """Measure steps per second through Redline's env layer, beside the bare emulators with the same options."""

    env: str = "pong"
    """Atari game."""
    num_envs: int = 8
    """Environments played side by side."""
    threads: int = 0
    """Threads that step them (0: all cores, at most one per env)."""
    rounds: int = 9
    """Rounds in which both are measured by turns."""
    turn_seconds: float = 1.0
    """Seconds that each of them steps in each round."""
    seed: int = 1
    """Seed of the games and of the actions."""
    output: Annotated[OutputFlags, tyro.conf.arg(name="")] = field(default_factory=OutputFlags)
    """Where the result goes."""

    def __post_init__(self) -> None:
        check_turns(rounds=self.rounds, turn_seconds=self.turn_seconds)
        check_seed(self.seed)


def run(args: Sequence[str]) -> int:
    """Measure, print."""
    flags = parse(BenchEnvFlags, args, default=BenchEnvFlags(), prog="redline bench env")
    bench = EnvBench(
        env=EnvConfig(id=flags.env),
        num_envs=flags.num_envs,
        threads=flags.threads,
        rounds=flags.rounds,
        turn_s=flags.turn_seconds,
        seed=flags.seed,
    )
    try:
        result = bench.run(tell)
    except EnvError as error:
        return refuse(str(error), as_json=flags.output.json, code=FAILED)
    return give_out(result, flags.output, subject="env", args=args, show=show)


def show(result: Mapping[str, Any], plain: bool) -> None:
    """Print the result as a table."""
    config = result["config"]
    print(f"{config['env']}, {config['num_envs']} envs on {config['threads']} threads, random actions")
    rows = [
        ("through Redline's env layer", rate_text(result["steps_per_s"])),
        ("bare emulators", rate_text(result["peers"]["bare"])),
        ("ratio of pairs, without seeded resets", rate_text(result["ratio"]["bare"], digits=3)),
        ("ratio of the means", f"{result['ratio_of_means']:.3f}"),
    ]
    print_table(("", "steps/s, median (90 %)"), rows, plain=plain, numeric=(1,))
    print(
        f"a seeded reset, once in {SEED_INTERVAL_STEPS:,} steps of a lane, takes "
        f"{result['seeded_reset_s'] * 1e3:.0f} ms: {result['key_share']:.1%} of the time at this speed, "
        f"which leaves {rate_text(result['ratio_with_keys']['bare'], 3)} of the bare emulators' speed"
    )
    print_verdict(result)

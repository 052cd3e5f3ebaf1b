"""`redline bench replay`: measure the replay memory here, against its peers."""

import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from redline.bench.replay import GAMES, ReplayBench
from redline.cli.bench_printing import OutputFlags, check_seed, give_out, tell
from redline.cli.main import FAILED, refuse
from redline.cli.output import print_table
from redline.cli.parsing import parse
from redline.envs.atari_games import AtariGame
from redline.envs.catalog import resolve
from redline.envs.vector import EnvError
from redline.errors import UserError
from redline.experience import ReplayError
from redline.runs.errors import explain
from redline.units import duration


@dataclass(frozen=True)
class BenchReplayFlags:
    """Measure what a transition takes and how fast the replay memory is, beside other libraries' on the same data."""

    games: str = ",".join(GAMES)
    """Atari games to play at random, with commas between them."""
    transitions: int = 20_000
    """Transitions to play of each game."""
    rounds: int = 7
    """Rounds in which all contenders are measured by turns."""
    turn_seconds: float = 0.4
    """Seconds that each of them works in each round."""
    path: Path = Path()
    """Folder on the disk that is measured."""
    seed: int = 1
    """Seed of the games and of the actions."""
    output: Annotated[OutputFlags, tyro.conf.arg(name="")] = field(default_factory=OutputFlags)
    """Where the result goes."""

    def __post_init__(self) -> None:
        if not 0.0 < self.turn_seconds <= 60.0:
            raise UserError(f"turn-seconds is {self.turn_seconds:g}: use more than 0 and at most 60")
        check_seed(self.seed)


def run(args: Sequence[str]) -> int:
    """Measure, print."""
    flags = parse(BenchReplayFlags, args, default=BenchReplayFlags(), prog="redline bench replay")
    bench = ReplayBench(
        games=[_game(name) for name in flags.games.split(",") if name.strip()],
        transitions=flags.transitions,
        rounds=flags.rounds,
        turn_s=flags.turn_seconds,
        path=flags.path,
        seed=flags.seed,
    )
    try:
        with contextlib.redirect_stdout(sys.stderr):  # whatever a peer prints
            result = bench.run(tell)
    except (EnvError, ReplayError) as error:
        return refuse(str(error), as_json=flags.output.json, code=FAILED)
    except OSError as error:
        return refuse(f"the bench stopped: {explain(error, flags.path)}", as_json=flags.output.json, code=FAILED)
    return give_out(result, flags.output, subject="replay", args=args, show=show)


def _game(name: str) -> str:
    game = resolve(name.strip())
    if not isinstance(game, AtariGame):
        raise UserError(f"{name.strip()!r} is no Atari game: use names such as pong,breakout")
    return game.name


def show(result: Mapping[str, Any], plain: bool) -> None:
    """Print the result as tables."""
    per_transition = result["bytes_per_transition"]
    print(f"bytes per transition, zstd, everything noted beside the frames included; staging {_staging(result)}")
    print_table(
        ("game", "bytes"), [(name, f"{n:,.0f}") for name, n in per_transition.items()], plain=plain, numeric=(1,)
    )
    print(f"batches of {result['config']['batch_size']} per second on {result['config']['sampled_game']}")
    rows = [
        (codec, sampler, *(_rate(rates[state]) for state in ("off", "on")))
        for codec, samplers in result["batches_per_s"].items()
        for sampler, rates in samplers.items()
    ]
    worst = result["batches_per_s_worst_game"]
    rows += [(f"zstd, {worst['game']}", name, _rate(r["off"]), _rate(r["on"])) for name, r in worst["zstd"].items()]
    print_table(("frames", "sampler", "prefetch off", "prefetch on"), rows, plain=plain, numeric=(2, 3))
    peers = [
        (name, _rate(peer["batches_per_s"]), f"{peer['bytes_per_transition']:,.0f}", f"{result['ratio'][name]:.2f} ×")
        if peer["batches_per_s"]
        else (name, "–", "–", peer["reason"])
        for name, peer in result["peers"].items()
    ]
    print_table(("peer", "batches/s", "bytes per transition", "ours (raw) ÷ it"), peers, plain=plain, numeric=(1, 2, 3))
    inserts = [(name, _rate(rate)) for name, rate in result["insert_steps_per_s"].items()]
    print_table(("frames", "steps inserted per second"), inserts, plain=plain, numeric=(1,))
    trees = result["sum_tree"]
    print(f"sum tree: {trees['ratio_to_pure_python']:.1f} × pure Python, parents exact: {trees['parents_exact']}")
    words = {True: "met", False: "NOT met", None: "not judged"}
    for name, goal in result["goals"].items():
        value = "–" if goal["value"] is None else f"{goal['value']:,.2f}"
        print(f"{name}: {value}, goal {goal['goal']:,}: {words[goal['met']]}")
    print(f"measured in {duration(result['duration_s'])}")


def _staging(result: Mapping[str, Any]) -> str:
    return f"{result['staging_bytes'] / 1e6:.2f} MB once"


def _rate(rate: Mapping[str, float]) -> str:
    return f"{rate['median']:,.0f} ({rate['low']:,.0f}–{rate['high']:,.0f})"

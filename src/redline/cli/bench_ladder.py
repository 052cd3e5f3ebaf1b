"""`redline bench ladder`: climb from the textbook loop to Redline, and see what each rung gives."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import shorten
from typing import Annotated, Any

import tyro

from redline.bench.ladder.chart import draw_ladder
from redline.bench.ladder.climb import Ladder
from redline.bench.ladder.contenders import FAILURES, in_one_line
from redline.cli.bench_learner import split_names
from redline.cli.bench_printing import (
    OutputFlags,
    check_seed,
    check_turns,
    ended_by_signals,
    give_out,
    rate_text,
    tell,
)
from redline.cli.main import FAILED, refuse
from redline.cli.output import print_table
from redline.cli.parsing import parse
from redline.errors import UserError
from redline.runs.errors import explain
from redline.units import duration, number

ENOUGH_SEEDS = 3  # to tell a rung that learns less from bad luck
MISSING_CHARACTERS = 40
VERDICTS = {True: "", False: "VOID: ", None: "NOT JUDGED: "}


@dataclass(frozen=True)
class BenchLadderFlags:
    """Measure Pong with DQN from the textbook loop on, one thing more switched on at each rung, and what it learns."""

    rungs: str = ""
    """Rungs to measure beside the textbook, with commas between them; all if none is named."""
    rounds: int = Ladder.rounds
    """Rounds in which all rungs work by turns."""
    turn_seconds: float = Ladder.turn_s
    """Seconds that each rung works in each round; one with processes of its own works 5 to 10 s more."""
    learning_seeds: int = Ladder.learning_seeds
    """Trainings of each rung on a small pixel game, to see what it learns (0: none)."""
    learning_steps: int = Ladder.learning_steps
    """Steps of each of those trainings."""
    seed: int = Ladder.seed
    """Seed of the games, the networks and the draws."""
    png: Path | None = None
    """File for a picture of the ladder."""
    output: Annotated[OutputFlags, tyro.conf.arg(name="")] = field(default_factory=OutputFlags)
    """Where the result goes."""

    def __post_init__(self) -> None:
        check_turns(rounds=self.rounds, turn_seconds=self.turn_seconds)
        check_seed(self.seed)
        if self.png is not None and not self.png.absolute().parent.is_dir():
            raise UserError(f"png {self.png} lies in no folder: create {self.png.parent} first")


def run(args: Sequence[str]) -> int:
    """Measure, print; 1 if the base is void."""
    flags = parse(BenchLadderFlags, args, default=BenchLadderFlags(), prog="redline bench ladder")
    ladder = Ladder(
        names=split_names(flags.rungs),
        rounds=flags.rounds,
        turn_s=flags.turn_seconds,
        learning_seeds=flags.learning_seeds,
        learning_steps=flags.learning_steps,
        seed=flags.seed,
    )
    try:
        with ended_by_signals():
            result = ladder.run(tell)
    except FAILURES as error:  # of the base
        return refuse(in_one_line(error), as_json=flags.output.json, code=FAILED)
    if flags.png is not None:
        try:
            draw_ladder(result, flags.png)
        except OSError as error:
            tell(f"the picture can't be written: {explain(error, flags.png)}")
    code = give_out(result, flags.output, subject="ladder", args=args, show=show)
    return FAILED if result["base"]["valid"] is False else code


def show(result: Mapping[str, Any], plain: bool) -> None:
    """Print the result as a table, what each rung switches on below it, and what the base is worth."""
    head = ("rung", "steps/s", "updates/s", "samples/step", "× over", "", "× base", "CPU", "GPU", "return")
    rows = [_row(rung) for rung in result["rungs"]]
    print_table(head, rows, plain=plain, numeric=(1, 2, 3, 4, 6, 7, 8, 9))
    print()
    for rung in result["rungs"]:
        missing = "" if rung["missing"] is None else f" – {rung['missing']}"
        print(f"{rung['name']}: {rung['switches_on']}{missing}")
    learning, base = result["config"]["learning"], result["base"]
    print()
    print(f"steps/s on {result['config']['speed']['env']}, median and 90 % of {result['config']['rounds']} rounds")
    if learning["seeds"]:
        print(f"return: on {learning['env']} after {learning['steps']:,} steps, mean of the last 100 episodes")
        if learning["seeds"] < ENOUGH_SEEDS:
            print(f"learnt by {learning['seeds']} of each, so half a point may be chance: see --learning-seeds")
    else:
        print("return: not measured (--learning-seeds 0)")
    print(f"{VERDICTS[base['valid']]}{base['reason']}")
    if result["is_busy"]:
        print(f"others used up to {result['others_percent']:.0f} % of the CPU: measure again on a machine that is free")
    print(f"measured in {duration(result['duration_s'])}")


def _row(rung: Mapping[str, Any]) -> tuple[str, ...]:
    if rung["steps_per_s"] is None:
        return (rung["name"], shorten(rung["missing"], MISSING_CHARACTERS), *["–"] * 8)
    return (
        rung["name"],
        rate_text(rung["steps_per_s"], 1),
        f"{rung['updates_per_s']['median']:,.1f}",
        f"{rung['samples_per_step']['median']:.2f}",
        _times(rung["gain"]),
        rung["over"] or "",
        _times(rung["gain_over_base"]),
        f"{rung['cpu_share']['median']:.0%}",
        "–" if rung["gpu_share"] is None else f"{rung['gpu_share']['median']:.0%}",
        number(rung["learning"]["mean_return"]),
    )


def _times(gain: Mapping[str, float] | None) -> str:
    return "–" if gain is None else f"{gain['median']:.2f}"

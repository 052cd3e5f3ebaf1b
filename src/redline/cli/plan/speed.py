"""`redline plan speed`: the settings with which a training runs fastest here, found by measuring."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from redline.cli.bench import check_out, tell
from redline.cli.flags import TrainFlags, as_typed, is_several, refuse_auto, refuse_replay_flags, train_defaults
from redline.cli.main import failing
from redline.cli.output import command, give, print_table
from redline.cli.parsing import parse
from redline.cli.speed import (
    CANDIDATES,
    SECONDS,
    SETTINGS,
    candidate_cells,
    closing_lines,
    measure_speed,
    setting_cells,
)
from redline.cli.train import TRAINING_ERRORS
from redline.errors import UserError, check_range
from redline.plan.knobs import Vary
from redline.plan.speed_plan import LEAST_SECONDS, MOST_SECONDS
from redline.plan.speed_result import result_of
from redline.tune.space import write_settings
from redline.units import duration

PROGRAM = "redline plan speed"
VARIED = {
    "exact": "knobs that leave what is learnt alone",
    "nearly": "those, and knobs that change the age of the weights that act",
    "all": "those, and knobs that change what is learnt",
}


@dataclass(frozen=True)
class PlanSpeedFlags:
    """Find the fastest settings for a training on this machine. Takes the flags of redline train; saves no run.

    A knob that you type stays as it is.
    """

    train: Annotated[TrainFlags, tyro.conf.arg(name="")]
    """What is to be trained."""
    vary: Vary = "exact"
    """exact: threads, prefetch, codec; nearly: topology, actors, push too; all: envs, batch size, replay ratio too."""
    seconds: float = SECONDS
    """Most seconds to measure, the start of all processes included."""
    write: Path | None = None
    """TOML file for the chosen settings, to be used with --config."""

    def __post_init__(self) -> None:
        check_range("seconds", self.seconds, LEAST_SECONDS, MOST_SECONDS)
        if self.write is not None:
            check_out(self.write, "write")


def run(args: Sequence[str]) -> int:
    """Measure, choose, print."""
    if is_several(args):
        raise UserError("one training is measured at a time: use --model with one name (see redline algos) and --seed")
    refuse_auto(args, "redline plan speed measures without it, so leave it out")
    default = train_defaults(args)
    refuse_replay_flags(args, default.job, default.algo)
    flags = parse(PlanSpeedFlags, args, default=PlanSpeedFlags(train=default), prog=PROGRAM)
    asked = as_typed(flags.train, args)
    if asked.print_config:
        raise UserError("--print-config prints settings without measuring: use redline train --print-config")
    with failing(*TRAINING_ERRORS):
        plan = measure_speed(asked, args, vary=flags.vary, seconds=flags.seconds, progress=tell)
    result = result_of(plan)
    if flags.write is not None:
        subject = f"{asked.algo} on {asked.job.env.id}, {plan.choice.why}"
        write_settings(flags.write, plan.chosen, (f"redline plan speed, {subject}",))
    return give(result, asked, partial(show, write=flags.write, chosen=plan.chosen))


def show(result: Mapping[str, Any], *, plain: bool, write: Path | None, chosen: Mapping[str, Any]) -> None:
    """Print the result: requested → effective, all candidates, what they mean, and what to type next."""
    print(f"{result['algorithm']} on {result['env']}; varied: {VARIED[result['vary']]}")
    print("\nrequested → effective")
    print_table(SETTINGS, [setting_cells(row) for row in result["settings"]], plain=plain, numeric=())
    for adjustment in result["adjustments"]:
        print(f"requested → effective: {adjustment}")
    print("\ncandidates, by turns; in brackets the 90 % interval of the paired ratios")
    rows = [candidate_cells(row) for row in result["candidates"]]
    print_table(CANDIDATES, rows, plain=plain, numeric=range(1, 6))
    print()
    for line in closing_lines(result):
        print(line)
    print(f"measured in {duration(result['duration_s'])}")
    if write is not None:
        print(f"wrote {write}; train with it: {command('train', '--config', write)}, and your other flags")
    elif chosen:
        print(f"--write FILE.toml keeps it for --config; or add to {command('train')}: {result['chosen']}")

"""`redline profile`: where the time of a training goes, what its bottleneck is, and which setting may help."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from redline.bench.costs import LEARNER_PARTS, OTHER_PARTS, WHOLE_LEARNER, percent
from redline.bench.measuring import busy_words
from redline.bench.profiling import VIEWER, Profile
from redline.cli.bench import OutputFlags, check_out, give_out, measure, tell
from redline.cli.flags import TrainFlags, as_typed, is_several, refuse_auto, train_defaults
from redline.cli.main import FAILED
from redline.cli.output import print_table
from redline.cli.parsing import parse
from redline.errors import UserError
from redline.units import duration, number, rate

PROGRAM = "redline profile"
WITHOUT = {
    "full": "nothing",
    "constant_batch": "sampling batches: always the same one",
    "no_optimiser": "the optimiser's step",
    "no_backward": "backward pass and optimiser",
    "no_loss": "all learning; batches are still sampled",
    "no_env": "the envs: recorded steps come back at once",
    "no_acting": "the network when acting: random actions",
    "no_records": "records and hardware monitor",
    "no_env_no_loss": "envs and all learning",
}


@dataclass(frozen=True)
class ProfileFlags:
    """Find where the time of a training goes. Takes the flags of redline train; saves no run."""

    train: Annotated[TrainFlags, tyro.conf.arg(name="")]
    """What to profile."""
    rounds: int = Profile.rounds
    """Rounds in which all variants are measured by turns; a verdict needs 5."""
    turn_seconds: float = Profile.turn_s
    """Seconds that each variant trains in each round; at least a whole rollout."""
    trace: Path | None = None
    """File for a timeline of a few steps, .json or .json.gz, for a trace viewer."""
    out: Path | None = None
    """File for the JSON object."""

    def __post_init__(self) -> None:
        if self.trace is not None:
            check_out(self.trace, "trace")


def run(args: Sequence[str]) -> int:
    if is_several(args):
        raise UserError("one training is profiled at a time: use --algo with one name (see redline algos) and --seed")
    refuse_auto(args, "a profile takes settings as they are, so leave it out")
    flags = parse(ProfileFlags, args, default=ProfileFlags(train=train_defaults(args)), prog=PROGRAM)
    asked = as_typed(flags.train, args)
    output = OutputFlags(out=flags.out, plain=asked.plain, json=asked.json)
    profile = Profile(
        job=asked.job, algorithm=asked.algo, rounds=flags.rounds, turn_s=flags.turn_seconds, trace=flags.trace
    )
    result = measure(profile.run)
    trace_error = None if result["trace"] is None else result["trace"]["error"]
    if trace_error is not None:
        tell(f"redline: trace {flags.trace} can't be written: {trace_error}")
    code = give_out(result, output, command=PROGRAM, args=args, show=show)
    return code if trace_error is None else FAILED


def show(result: Mapping[str, Any], *, plain: bool) -> None:
    """Print the result: how fast it is, what each part costs, what that means."""
    config, full = result["config"], result["full"]
    subject = f"{config['algorithm']} on {config['env']['id']}, {config['num_envs']} envs"
    print(f"{subject}: {_rate(full['steps_per_s'])} steps/s, {_rate(full['updates_per_s'])} updates/s while learning")
    print(f"medians of {config['rounds']} rounds, in brackets the {config['low_high']}")
    rows = [(WITHOUT[name], _rate(variant["steps_per_s"])) for name, variant in result["variants"].items()]
    print_table(("left out", "steps/s"), rows, plain=plain, numeric=(1,))
    print()
    parts = result["parts"]
    costs = [_cost(part.words, parts[name]) for name, part in OTHER_PARTS.items()]
    costs += [_cost(WHOLE_LEARNER.words, result["learner"])]
    costs += [_cost(f"  {part.words}", parts[name]) for name, part in LEARNER_PARTS.items()]
    whole = full["ms_per_vector_step"]
    costs += [("sum of the parts", _milliseconds(result["overlap"]["sum_of_parts_ms"]), "")]
    costs += [("the whole", _milliseconds(whole), percent(1.0))]
    print_table(("part", "ms per vector step", "share"), costs, plain=plain, numeric=(1, 2))
    print(
        f"A vector step is one step of all {config['num_envs']} envs. A cost whose interval includes 0 may be nothing."
    )
    for remark in result["remarks"]:
        print(remark)
    print(result["overlap"]["beside"], result["overlap"]["sentence"])
    print()
    print(f"bottleneck: {result['bottleneck']['sentence']}")
    for place, advice in enumerate(result["advice"]):
        print(f"{'try' if place == 0 else 'or'} {advice['flag']}: {advice['why']}")
    if result["trace"] is not None and result["trace"]["error"] is None:
        print(f"trace of {result['trace']['steps']} vector steps: open {result['trace']['path']} at {VIEWER}")
    took = f"{duration(result['duration_s'])}{busy_words(result['others_percent'])}"
    print(f"measured in {took}; without checkpoints and evaluations")


def _cost(words: str, cost: Mapping[str, Mapping[str, float]]) -> tuple[str, str, str]:
    return words, _milliseconds(cost["ms_per_vector_step"]), percent(cost["share"]["median"])


def _milliseconds(spent: Mapping[str, float]) -> str:
    return f"{number(spent['median'])} ({number(spent['low'])} … {number(spent['high'])})"


def _rate(measured: Mapping[str, float]) -> str:
    return f"{rate(measured['median'])} ({rate(measured['low'])}–{rate(measured['high'])})"

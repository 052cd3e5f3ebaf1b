"""`redline profile`: where the time of a training goes, what holds it up, and which setting may help."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import tyro

from redline.bench.knockout.costs import LEARNER_PARTS, OTHER_PARTS, WHOLE_LEARNER, percent
from redline.bench.knockout.profiling import Profile
from redline.bench.knockout.tracing import VIEWER
from redline.bench.other_work import busy_words
from redline.cli.bench_printing import check_out, ended_by_signals, tell
from redline.cli.flags import TrainFlags, as_typed, is_several, train_defaults
from redline.cli.main import DONE, FAILED, refuse
from redline.cli.output import is_plain, print_table
from redline.cli.parsing import parse
from redline.cli.train import TRAINING_ERRORS
from redline.errors import UserError
from redline.records import as_json_value
from redline.units import duration, number, rate

PROGRAM = "redline profile"
WITHOUT = {
    "full": "nothing",
    "constant_batch": "making batches: the same one again and again",
    "no_optimiser": "the optimiser's step",
    "no_backward": "backward pass and optimiser",
    "no_loss": "all learning; batches are still made",
    "no_env": "the envs: recorded observations come back at once",
    "no_acting": "the network when acting: random actions",
    "no_records": "records and hardware monitor",
    "no_env_no_loss": "envs and all learning",
}


@dataclass(frozen=True)
class ProfileFlags:
    """Find where the time of a training goes. Takes the flags of redline train; of a run nothing is saved."""

    train: Annotated[TrainFlags, tyro.conf.arg(name="")]
    """What to profile."""
    rounds: int = Profile.rounds
    """Rounds in which all variants are measured by turns; a verdict needs 5."""
    turn_seconds: float = Profile.turn_s
    """Seconds that each variant trains in each round; a whole rollout if that takes longer."""
    trace: Path | None = None
    """File for a timeline of a few steps, .json or .json.gz, to look at with a trace viewer."""
    out: Path | None = None
    """File for the JSON object."""

    def __post_init__(self) -> None:
        for name in ("trace", "out"):
            path: Path | None = getattr(self, name)
            try:
                if path is not None:
                    check_out(path)
            except UserError as error:
                raise UserError(f"{name} {str(error).removeprefix('out ')}") from None


def run(args: Sequence[str]) -> int:
    """Measure, print."""
    if is_several(args):
        raise UserError(
            "one training is profiled at a time: use --algo with one name (redline algos lists them) and --seed"
        )
    flags = parse(ProfileFlags, args, default=ProfileFlags(train=train_defaults(args)), prog=PROGRAM)
    asked = as_typed(flags.train, args)
    profile = Profile(
        job=asked.job, algorithm=asked.algo, rounds=flags.rounds, turn_s=flags.turn_seconds, trace=flags.trace
    )
    try:
        with ended_by_signals():
            result = profile.run(tell)
    except TRAINING_ERRORS as error:
        return refuse(str(error), as_json=asked.json, code=FAILED)
    whole: Any = as_json_value({**result, "command": shlex.join([*PROGRAM.split(), *args])})
    text = json.dumps(whole, allow_nan=False)
    if asked.json:
        print(text)
    else:
        show(whole, plain=is_plain(plain=asked.plain, as_json=False))
    unwritten = {} if whole["trace"] is None else {f"trace {flags.trace}": whole["trace"]["error"]}
    if flags.out is not None:
        unwritten[f"out {flags.out}"] = _write(flags.out, text)
    unwritten = {file: reason for file, reason in unwritten.items() if reason is not None}
    for file, reason in unwritten.items():
        tell(f"redline: {file} can't be written: {reason}")
    return FAILED if unwritten else DONE


def _write(path: Path, text: str) -> str | None:
    """Write the object; return why it could not be, or None."""
    try:
        path.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        return (error.strerror or str(error)).lower()
    return None


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
        f"A vector step is a step of all {config['num_envs']} envs. A cost whose interval holds 0 may be none at all."
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
    print(f"measured in {took}; checkpoints and evaluations were left out")


def _cost(words: str, cost: Mapping[str, Mapping[str, float]]) -> tuple[str, str, str]:
    return words, _milliseconds(cost["ms_per_vector_step"]), percent(cost["share"]["median"])


def _milliseconds(spent: Mapping[str, float]) -> str:
    return f"{number(spent['median'])} ({number(spent['low'])} … {number(spent['high'])})"


def _rate(measured: Mapping[str, float]) -> str:
    return f"{rate(measured['median'])} ({rate(measured['low'])}–{rate(measured['high'])})"

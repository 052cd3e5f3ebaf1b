"""`redline plan speed`: the settings with which a training runs fastest here, by measuring; also for `train --auto`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import tyro

from redline.bench.measuring import MAX_BUSY_PERCENT
from redline.cli.bench import check_out, tell
from redline.cli.flags import TrainFlags, as_typed, is_several, refuse_auto, refuse_replay_flags, scan, train_defaults
from redline.cli.main import RESUMABLE, FailureError, failing
from redline.cli.output import command, give, print_table
from redline.cli.parsing import parse
from redline.cli.process import ended_by_signals, spin_in_processes
from redline.cli.train import TRAINING_ERRORS
from redline.errors import UserError, check_range
from redline.plan.knobs import KNOBS, Asked, Vary
from redline.plan.speed_plan import DEFAULT, LEAST_SECONDS, MOST_SECONDS, SpeedPlan, plan_speed
from redline.plan.speed_result import OPEN, result_of
from redline.recipes import write_settings
from redline.runtime.config import Job, flag_of
from redline.units import duration, number, rate, size

PROGRAM = "redline plan speed"
SECONDS = 115.0  # with the start of this program: two minutes
VARIED = {
    "exact": "knobs that leave what is learnt alone",
    "nearly": "those, and knobs that change the age of the weights that act, or rounding",
    "all": "those, and knobs that change what is learnt",
}
SETTINGS = ("setting", "requested", "effective", "why")
CANDIDATES = ("candidate", "steps/s", "× default", "samples/step", "updates/step", "weights' age", "what became of it")


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


def measure_speed(
    flags: TrainFlags, args: Sequence[str], *, vary: Vary, seconds: float, progress: Callable[[str], None]
) -> SpeedPlan:
    """Measure what runs fastest; knobs among `args`, as the user typed them, stay as they are."""
    asked = Asked(flags.job, flags.algo, vary, frozenset(typed_knobs(args)))
    with ended_by_signals():
        return plan_speed(asked, seconds=seconds, environ=environ_of, progress=progress)


def environ_of(job: Job) -> Mapping[str, str]:
    """Return the variables that a process for this job needs beside our own."""
    return spin_in_processes() if job.topology == "async" else {}


def typed_knobs(args: Sequence[str]) -> set[str]:
    """Return the knobs for which a value was typed, not the request to choose one."""
    names = {flag_of(key).removeprefix("--"): key for key in KNOBS}
    return {key for key, value in scan(args, names).items() if key not in OPEN or value != str(OPEN[key])}


def choose_speed(flags: TrainFlags, args: Sequence[str], note: Callable[[str], None]) -> tuple[Job, Mapping[str, Any]]:
    """Measure before a training, tell what was found, and return the chosen job and the result for run.json."""
    note(f"measuring what runs fastest here, for at most {duration(SECONDS)}")
    try:
        plan = measure_speed(flags, args, vary="exact", seconds=SECONDS, progress=note)
    except KeyboardInterrupt as interrupt:
        if not (stopped := str(interrupt)):  # Ctrl-C
            raise
        raise FailureError(f"{stopped} before the training began", RESUMABLE) from None
    result = result_of(plan)
    for row in result["settings"]:
        note(f"requested → effective: {row['setting']}: {row['requested']} → {row['effective']} ({row['why']})")
    for row in result["candidates"]:
        note(f"candidate {' · '.join(candidate_cells(row))}")
    for line in closing_lines(result):
        note(line)
    return plan.job, result


def setting_cells(row: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Return a knob as a row of a table."""
    return row["setting"], str(row["requested"]), str(row["effective"]), row["why"]


def candidate_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return a candidate as a row of a table."""
    gain, speed = row["gain"], row["steps_per_s"]
    return (
        row["name"],
        "–" if speed is None else rate(speed),
        "–" if gain is None else f"{gain['ratio']:.2f} ({gain['low']:.2f}–{gain['high']:.2f})",
        number(row["samples_per_step"]),
        number(row["updates_per_step"], 3),
        number(row["weights_age_updates"], 1),
        row["state"],
    )


def closing_lines(result: Mapping[str, Any]) -> list[str]:
    """Return what the tables do not say."""
    return [
        f"bottleneck: {result['bottleneck']['sentence']}",
        *_use_lines(result),
        *(f"not tried: {row['name']} ({row['why']})" for row in result["not_tried"]),
        *_quiet_lines(result),
        f"chosen: {'the settings as requested' if result['chosen'] == DEFAULT else result['chosen']} ({result['why']})",
    ]


def _use_lines(result: Mapping[str, Any]) -> list[str]:
    """Say what each role took; the processes of one role, such as actors, together."""
    roles: dict[str, list[Mapping[str, float]]] = {}
    for name, use in result["roles"].items():
        roles.setdefault(name.rstrip("-0123456789"), []).append(use)
    if not roles:
        return []
    told = [
        f"{role if len(uses) == 1 else f'{len(uses)} × {role}'} {sum(use['cores'] for use in uses):.1f} cores, "
        f"{size(sum(use['memory_bytes'] for use in uses))}"
        for role, uses in roles.items()
    ]
    told += [f"GPU {size(result['gpu_memory_bytes'])}"] if result["gpu_memory_bytes"] else []
    return [f"it takes: {' · '.join(told)}; its replay memory is small: redline plan memory tells more"]


def _quiet_lines(result: Mapping[str, Any]) -> list[str]:
    """Say how others disturbed the measurement."""
    lines, others = [], result["others_percent"]
    if others > MAX_BUSY_PERCENT:
        lines.append(f"others used {others:.0f} % of the CPU all along: on a free machine the choice may differ")
    if result["windows_repeated"]:
        lines.append(f"{result['windows_repeated']} windows were disturbed by others and measured again")
    if result["windows_disturbed"]:
        lines.append(f"{result['windows_disturbed']} disturbed windows count: too many to measure all of them again")
    return lines

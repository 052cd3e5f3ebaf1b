"""Settings chosen by measurement, for `redline plan speed` and `redline train --auto`: measured, and told in lines."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from redline.bench.measuring import MAX_BUSY_PERCENT
from redline.cli.flags import TrainFlags, scan
from redline.cli.process import ended_by_signals, spin_in_processes
from redline.plan.knobs import KNOBS, Asked, Vary
from redline.plan.speed_plan import DEFAULT, SpeedPlan, plan_speed
from redline.plan.speed_result import OPEN, result_of
from redline.runtime.config import Job, flag_of
from redline.units import duration, number, rate, size

SECONDS = 120.0
SETTINGS = ("setting", "requested", "effective", "why")
CANDIDATES = ("candidate", "steps/s", "× default", "samples/step", "updates/step", "weights' age", "what became of it")


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
    plan = measure_speed(flags, args, vary="exact", seconds=SECONDS, progress=note)
    result = result_of(plan)
    for row in result["settings"]:
        note(f"requested → effective: {row['setting']}: {row['requested']} → {row['effective']} ({row['why']})")
    for row in result["candidates"]:
        note(f"candidate {' · '.join(cell for cell in candidate_cells(row))}")
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

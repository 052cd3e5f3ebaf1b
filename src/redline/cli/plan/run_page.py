"""The page of `redline plan run`."""

from collections.abc import Iterator

from redline.cli.output import print_facts
from redline.plan.run import Need, RunPlan, TimePlan
from redline.units import rate, size


def show(plan: RunPlan, *, plain: bool) -> None:
    """Print one run on one page."""
    job = plan.job
    limit = "without a limit of steps" if plan.steps is None else f"{plan.steps:,} steps"
    print(f"{plan.algorithm} on {job.env.id}, {limit}, {job.num_envs} envs, {job.topology}, seed {job.seed}")
    for adjustment in plan.adjustments:
        print(f"requested → effective: {adjustment}")
    print_facts([*_facts(plan)], plain=plain)
    for what, remedy in plan.misfits:
        print(f"does not fit: {what}: {f'the largest setting that fits is {remedy}' if remedy else _way_out(what)}")
    if plan.fits:
        print("it fits this machine")


def _facts(plan: RunPlan) -> Iterator[tuple[str, str]]:
    yield from _need_facts(plan.memory, "free")
    yield from _need_facts(plan.disk, f"free at {plan.disk_path}")
    roles = [
        f"{role.name} {role.threads} thread{'s' * (role.threads > 1)}{f' × {role.count}' if role.count > 1 else ''}"
        for role in plan.cores.roles
    ]
    yield "cores", f"{plan.cores.usable} usable: {', '.join(roles)}"
    for name, use in plan.cores.used.items():
        yield f"  {name}", f"{use.cores:.1f} cores, {size(use.memory_bytes)}, measured"
    yield "time", _time(plan)
    yield "money", _money(plan.time, plan)


def _need_facts(need: Need, free: str) -> Iterator[tuple[str, str]]:
    verdict = "" if need.fits else ": does not fit"
    yield need.what, f"{size(need.needed_bytes)} at most, {size(need.free_bytes)} {free}{verdict}"
    for name, num_bytes in need.parts.items():
        yield f"  {name}", size(num_bytes)


def _time(plan: RunPlan) -> str:
    if not plan.has_speed:
        return "unknown: add --rate 500 (steps per second), --measure or --from RUN"
    if plan.time is None:
        return "no end: add --max-steps, or another limit"
    told, found = plan.time.projection, plan.time.projection.rows[0]
    span, speed = told.span, found.speed
    hours, low, high = (f"{told.hours(value):,}" for value in (span.hours, span.low, span.high))
    interval = "" if low == high else f" ({low}–{high})"
    early = ", or earlier" if _may_end_early(plan) else ""
    return (
        f"{hours} h{interval}, {told.days(span.hours):,} days, for {plan.time.ends_by}{early}, "
        f"at {rate(float(speed.rate))} steps/s ({speed.source})"
    )


def _may_end_early(plan: RunPlan) -> bool:
    """Tell whether a score, which nobody knows beforehand, may end the run."""
    limits = plan.job.limits
    return limits.target_return is not None or limits.target_eval_return is not None


def _money(time: TimePlan | None, plan: RunPlan) -> str:
    if plan.price is None:
        return "unknown: add --price-per-hour"
    if time is None:
        return "unknown without the time"
    told = time.projection
    span = told.span
    cost, low, high = (f"{told.cost(value):,}" for value in (span.hours, span.low, span.high))
    interval = "" if low == high else f" ({low}–{high})"
    return f"{cost}{interval} at {plan.price:,} an hour"


def _way_out(what: str) -> str:
    return "free some, or use another --log-dir" if what == "disk" else "free some first, no smaller setting suffices"

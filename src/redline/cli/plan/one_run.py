"""`redline plan run`: what one run will take of memory, disk, cores, time and money, on one page before it starts."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Annotated

import tyro

from redline.bench.measuring import MAX_BUSY_PERCENT
from redline.cli.bench import tell
from redline.cli.flags import TrainFlags
from redline.cli.main import DONE, FAILED
from redline.cli.output import give, is_plain, print_facts
from redline.cli.parsing import parse
from redline.cli.plan.asked import asked_training, measure_training, refuse_empty, training_defaults
from redline.cli.plan.disk import disk_plan, play_at_random, replay_disk_bytes
from redline.cli.plan.rates import read_number
from redline.envs.game_lists import GameLimit, known_name
from redline.errors import UserError, check_range, unknown_name
from redline.plan.disk import DiskPlan
from redline.plan.knobs import check_batch
from redline.plan.pinned import Pinned
from redline.plan.run import CoresPlan, Need, RunPlan, TimePlan, disk_need, footprint, plan_time, roles_of
from redline.plan.run_speed import read_run_speed, speeds_by_game
from redline.plan.time import Speed, exact
from redline.recipes import recipe_names
from redline.replay import available_bytes
from redline.runs.host import usable_cores
from redline.runtime.building import KEPT_CHECKPOINTS, UNLIMITED_STEPS
from redline.runtime.processes.process_pool import check_room
from redline.runtime.resolve import ResolvedJob, resolve_job
from redline.units import rate as rate_text
from redline.units import size

PROGRAM = "redline plan run"
USUAL_STEPS_PER_S = 500.0  # where nothing tells the speed: logs grow by the clock
ROUNDS = 5
FILE_FLAGS = ("--config", "--recipe")
FILE_NAMES = (".toml", ".json")


@dataclass(frozen=True)
class PlanRunFlags:
    """Plan one run: memory, disk, cores, time, money, and what does not fit (then the exit code is 1).

    redline plan run FILE [flags]: FILE is a recipe's name or a file for --config. Takes the flags of redline train.
    """

    train: Annotated[TrainFlags, tyro.conf.arg(name="")]
    """What is to be trained."""
    rate: str | None = None
    """How fast it trains, in steps per second."""
    measure: bool = False
    """Measure how fast it trains here, and the cores and memory of its processes."""
    from_: Annotated[tuple[str, ...], tyro.conf.arg(name="from", metavar="RUN…")] = ()
    """Runs that tell how fast it trains: directories, folders of runs (their newest), or last."""
    seconds: float = 3.0
    """Seconds to play at random, to measure recordings; with --measure also of each of five windows."""

    def __post_init__(self) -> None:
        check_range("seconds", self.seconds, 0.001, 3_600)


def run(args: Sequence[str]) -> int:
    """Resolve, measure what was asked for, print, and return 1 if something does not fit."""
    args = with_file(args)
    flags = parse(PlanRunFlags, args, default=PlanRunFlags(train=training_defaults(args)), prog=PROGRAM)
    refuse_empty(args, from_=flags.from_)
    asked = asked_training(flags.train, args)
    rate = given_rate(flags)
    found = read_speed(flags.from_, asked.job.env.id)
    check_batch(asked.job)
    settled = resolve_job(asked.job)
    if settled.job.topology == "async":
        check_room(actors=settled.job.actors, learner_threads=settled.job.learner.threads)
    pinned = None
    if flags.measure:
        cores = (usable_cores(),)
        pinned = measure_training(asked, counts=cores, rounds=ROUNDS, window_s=flags.seconds, progress=tell)
        found = measured_speed(pinned)
        if pinned.others_percent > MAX_BUSY_PERCENT:
            tell(f"others used {pinned.others_percent:.0f} % of the CPU meanwhile: a free machine is faster")
    if rate is not None:
        found = Speed(rate, "steps/s", "given", rate, rate)
    plan = plan_run(settled, flags, asked, speed=found, pinned=pinned)
    give(plan.to_json(), asked, lambda _, plain: show(plan, plain=plain))
    return DONE if plan.fits else FAILED


def with_file(args: Sequence[str]) -> list[str]:
    """Return the arguments with the FILE that stands before all flags as a flag of its own."""
    at = next((place for place, arg in enumerate(args) if arg not in ("--plain", "--json")), len(args))
    if at == len(args) or args[at].startswith("-"):
        return list(args)
    word, rest = args[at], [*args[:at], *args[at + 1 :]]
    if twice := next((arg for arg in rest if arg.partition("=")[0] in FILE_FLAGS), None):
        raise UserError(f"{word} and {twice} both name settings: keep one")
    if word in recipe_names():
        return [*rest, "--recipe", word]
    if Path(word).suffix in FILE_NAMES or Path(word).is_file():
        return [*rest, "--config", word]
    raise unknown_name("recipe or file of settings", word, recipe_names())


def given_rate(flags: PlanRunFlags) -> Decimal | None:
    """Return the rate that was typed, if one was; refuse several sources of a speed."""
    sources = {"--rate": flags.rate is not None, "--measure": flags.measure, "--from": bool(flags.from_)}
    given = [name for name, is_given in sources.items() if is_given]
    if len(given) > 1:
        raise UserError(f"{' and '.join(given)} both tell the speed: keep one")
    return None if flags.rate is None else read_number("rate", flags.rate)


def read_speed(names: Sequence[str], env_id: str) -> Speed | None:
    """Return the speed that runs tell, if any are named."""
    if not names:
        return None
    game = GameLimit(known_name(env_id))
    speeds, notes = speeds_by_game([game], [read_run_speed(name) for name in names])
    for note in notes:
        tell(note)
    return speeds[game.game]


def measured_speed(pinned: Pinned) -> Speed:
    """Return the speed that was measured with all cores."""
    speed = pinned.speed
    low, high = exact(speed.low_steps_per_s), exact(speed.high_steps_per_s)
    return Speed(exact(speed.steps_per_s), "steps/s", "measured", low, high)


def plan_run(
    settled: ResolvedJob,
    flags: PlanRunFlags,
    asked: TrainFlags,
    *,
    speed: Speed | None,
    pinned: Pinned | None,
) -> RunPlan:
    """Return all plans of a resolved run."""
    job, layout = settled.job, settled.layout
    disk = plan_disk(settled, asked, speed=speed, seconds=flags.seconds)
    if speed is not None and speed.episode_steps is None and disk.measured.is_measured:
        speed = replace(speed, episode_steps=exact(round(disk.measured.mean_length_steps, 1)))
    memory = footprint(
        job,
        settled.spec,
        layout,
        network_bytes=disk.checkpoints_bytes // KEPT_CHECKPOINTS,
        measured_bytes=None if pinned is None else pinned.processes_bytes,
    )
    frames_per_step = settled.spec.frames_per_step
    price = exact(job.price_per_hour) if job.price_per_hour else None
    time = None
    if speed is not None:
        time = plan_time(job, known_name(job.env.id), speed, frames_per_step=frames_per_step, price=price)
    return RunPlan(
        job=job,
        algorithm=asked.algo,
        steps=job.limits.total_steps(frames_per_step=frames_per_step),
        memory=memory.need(available_bytes()),
        disk=disk_need(disk, layout, replay_disk_bytes),
        disk_path=disk.path,
        cores=CoresPlan(usable_cores(), roles_of(job), {} if pinned is None else pinned.roles),
        time=time,
        has_speed=speed is not None,
        price=price,
        adjustments=tuple(settled.adjustments),
    )


def plan_disk(settled: ResolvedJob, asked: TrainFlags, *, speed: Speed | None, seconds: float) -> DiskPlan:
    """Play at random to measure recordings, and return the plan of the disk."""
    job = settled.job
    measured = play_at_random(job, seconds=seconds, plain=is_plain(asked))
    total = job.limits.total_steps(frames_per_step=settled.spec.frames_per_step)
    if total is None and job.limits.max_episodes is not None:
        total = round(job.limits.max_episodes * measured.mean_length_steps)
    steps = total or UNLIMITED_STEPS
    if speed is not None and job.limits.max_minutes is not None:
        steps = min(steps, max(1, round(job.limits.max_minutes * 60 * float(speed.rate))))
    steps_per_s = USUAL_STEPS_PER_S if speed is None else float(speed.rate)
    return disk_plan(settled, measured, algorithm=asked.algo, steps=steps, steps_per_s=steps_per_s)


# The page


def show(plan: RunPlan, *, plain: bool) -> None:
    """Print one run on one page."""
    job = plan.job
    limit = "without a limit of steps" if plan.steps is None else f"{plan.steps:,} steps"
    print(f"{plan.algorithm} on {job.env.id}, {limit}, {job.num_envs} envs, {job.topology}, seed {job.seed}")
    for adjustment in plan.adjustments:
        print(f"requested → effective: {adjustment}")
    print_facts([*_facts(plan)], plain=plain)
    for name, remedy in plan.cores.to_json()["too_many"].items():
        print(f"{name}: more threads than cores wait for each other: {remedy} is enough")
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
        f"at {rate_text(float(speed.rate))} steps/s ({speed.source})"
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

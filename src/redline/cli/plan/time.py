"""`redline plan time`: hours, days and money of training a list of games, before and after."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Annotated

import tyro

from redline.cli.output import give
from redline.cli.parsing import Json, Plain, parse
from redline.cli.plan.asked import refuse_empty
from redline.cli.plan.rates import MOST, UNITS, given_speeds, read_baseline, read_number, refuse_unused
from redline.cli.plan.time_table import assumptions, show_plan
from redline.envs.game_lists import TEN, GameLimit, parse_games, with_limit
from redline.errors import UserError, check_range
from redline.plan.run_speed import RunSpeed, read_run_speed, speeds_by_game
from redline.plan.time import USUAL_GROWTH, Bill, Interruptions, Projection, Speed, compare, exact, project
from redline.runtime.config import Job

SOURCES = "--rate 900 --unit episodes, --measure, or --from RUN"
USUAL_RESTART_S = 120.0
USUAL_SECONDS = 20.0


@dataclass(frozen=True)
class PlanTimeFlags:
    """Project hours, days and money of training a list of games, from a rate, a measurement or earlier runs."""

    games: str | None = None
    """ten (each with its episodes), or names with episodes: pong:3000,boxing:10000. Usual: ten, or those of --from."""
    episodes: int | None = None
    """Episodes of every game."""
    steps: int | None = None
    """Steps of every game, instead of episodes."""
    rate: str | None = None
    """How fast a game is trained, in --unit."""
    unit: str | None = None
    """Of --rate and of a number as --baseline: episodes (per hour), steps (per second; usual) or frames (the same)."""
    measure: bool = False
    """Measure the rate of each game by a short training on this machine."""
    algo: Annotated[str | None, tyro.conf.arg(aliases=("--model",))] = None
    """Algorithm to measure, by name; dqn if not given."""
    seconds: float | None = None
    """Seconds to measure each game for, after its warm-up; 20 if not given."""
    from_: Annotated[tuple[str, ...], tyro.conf.arg(name="from", metavar="RUN…")] = ()
    """Runs that tell the rate: directories, folders of runs (their newest), or last."""
    baseline: Annotated[tuple[str, ...], tyro.conf.arg(metavar="RATE|RUN…")] = ()
    """What to compare with: a rate in --unit, or runs."""
    episode_steps: float | None = None
    """Mean steps of an episode, where no run and no measurement tells, or instead of what they tell."""
    episode_growth: float | None = None
    """How much longer episodes may become with a better agent; `high` counts on it (1: not at all; usual: 2.14)."""
    price_per_hour: str | None = None
    """Price of an hour of the machine; $ stands for your currency."""
    concurrency: int = 1
    """Games that train at a time on the machine and share its price, each as fast as the rate says."""
    interruptions_per_hour: float = 0.0
    """How often a preemptible machine is taken away, per hour of training."""
    restart_s: float | None = None
    """Seconds until training goes on after that: saving, a new machine, the start; 120 if not given."""
    without_notice: bool = False
    """No SIGTERM comes first: half the time between two checkpoints is lost each time."""
    checkpoint_minutes: float | None = None
    """Minutes between two checkpoints; the run's, or those of redline train, if not given."""
    plain: Plain = False
    json: Json = False

    def __post_init__(self) -> None:
        if self.unit not in (None, *UNITS):
            raise UserError(f"--unit is {self.unit!r}: use {' or '.join(UNITS)}")
        for name, low, high in (
            ("episodes", 1, MOST),
            ("steps", 1, MOST),
            ("episode_steps", 1, MOST),
            ("seconds", 0.1, 3_600),
            ("episode_growth", 1, 1_000),
            ("concurrency", 1, 1_000),
            ("interruptions_per_hour", 0, 10_000),
            ("restart_s", 0, 86_400),
            ("checkpoint_minutes", 0.001, 100_000),
        ):
            if (value := getattr(self, name)) is not None:
                check_range(name.replace("_", "-"), value, low, high)


def run(args: Sequence[str]) -> int:
    """Find the rates, project, print."""
    flags = parse(PlanTimeFlags, args, prog="redline plan time")
    refuse_empty(args, from_=flags.from_, baseline=flags.baseline)
    price = None if flags.price_per_hour is None else read_number("price-per-hour", flags.price_per_hour, or_zero=True)
    rate = None if flags.rate is None else read_number("rate", flags.rate)
    old_rate, old_runs = read_baseline(flags.baseline)
    check_use(flags, has_number=rate is not None or old_rate is not None)
    runs = [read_run_speed(name) for name in flags.from_]
    games = asked_games(flags, runs)
    has_episodes = any(game.unit == "episodes" for game in games)
    refuse_unused(
        ("--episode-growth", flags.episode_growth, has_episodes, "a limit in episodes"),
        ("--episode-steps", flags.episode_steps, has_episodes or flags.unit == "episodes", "a limit in episodes"),
    )
    bill = Bill(
        price_per_hour=price,
        concurrency=flags.concurrency,
        interruptions=asked_interruptions(flags, runs),
        episode_growth=USUAL_GROWTH if flags.episode_growth is None else exact(flags.episode_growth),
    )

    def projected(speeds: Mapping[str, Speed]) -> Projection:
        length = None if flags.episode_steps is None else exact(flags.episode_steps)
        known = {name: replace(speed, episode_steps=length or speed.episode_steps) for name, speed in speeds.items()}
        return project(games, known, bill)

    notes: list[str] = []
    before = None
    if old_rate is not None or old_runs:
        old_speeds, notes = asked_speeds(games, flags, old_rate, [read_run_speed(name) for name in old_runs])
        before = projected(old_speeds)
    speeds, more = asked_speeds(games, flags, rate, runs)
    return give_plan(projected(speeds), before, [*notes, *more], flags)


def asked_speeds(
    games: Sequence[GameLimit], flags: PlanTimeFlags, rate: Decimal | None, runs: Sequence[RunSpeed]
) -> tuple[dict[str, Speed], list[str]]:
    """Return the speed of each game as given, by runs, or else by measuring, and what to know of it."""
    if rate is not None:
        return given_speeds(games, rate, flags.unit), []
    return speeds_by_game(games, runs) if runs else measured_speeds(games, flags)


def give_plan(after: Projection, before: Projection | None, notes: list[str], flags: PlanTimeFlags) -> int:
    """Print tables or JSON."""
    saving = None if before is None else compare(before, after)
    told = [] if before is None else assumptions(before)
    told = list(dict.fromkeys([*told, *assumptions(after), *notes]))
    facts = {
        **after.to_json(),
        "baseline": None if before is None else before.to_json(),
        "saved": None if saving is None else saving.to_json(),
        "assumptions": told,
    }
    return give(facts, flags, lambda _, plain: show_plan(after, before, saving, told, plain=plain))


def check_use(flags: PlanTimeFlags, *, has_number: bool) -> None:
    """Refuse no source of a rate, several of them, two kinds of limits, and flags that would do nothing."""
    if flags.episodes is not None and flags.steps is not None:
        raise UserError("--episodes and --steps both limit every game: keep one")
    sources = {"--rate": flags.rate is not None, "--measure": flags.measure, "--from": bool(flags.from_)}
    given = [name for name, is_given in sources.items() if is_given]
    if not given:
        raise UserError(f"plan time needs a rate: use {SOURCES}")
    if len(given) > 1:
        raise UserError(f"{' and '.join(given)} both tell the rate: keep one")
    has_interruptions = flags.interruptions_per_hour > 0
    refuse_unused(
        ("--unit", flags.unit, has_number, "--rate, or a number as --baseline"),
        ("--algo", flags.algo, flags.measure, "--measure"),
        ("--seconds", flags.seconds, flags.measure, "--measure"),
        ("--restart-s", flags.restart_s, has_interruptions, "--interruptions-per-hour"),
        ("--without-notice", flags.without_notice or None, has_interruptions, "--interruptions-per-hour"),
        ("--checkpoint-minutes", flags.checkpoint_minutes, flags.without_notice, "--without-notice"),
    )


def asked_games(flags: PlanTimeFlags, runs: Sequence[RunSpeed]) -> tuple[GameLimit, ...]:
    """Return the games with their limits; without --games, those of the runs, or ten."""
    if flags.games is None and runs:
        games = tuple({run.game: run.limit or GameLimit(run.game) for run in runs}.values())
    else:
        games = parse_games(TEN if flags.games is None else flags.games)
    if flags.episodes is not None:
        games = with_limit(games, flags.episodes, "episodes")
    if flags.steps is not None:
        games = with_limit(games, flags.steps, "steps")
    if endless := next((game.game for game in games if game.limit is None), None):
        raise UserError(
            f"{endless} has no limit: write {endless}:3000 for 3,000 episodes, or use --episodes or --steps"
        )
    return games


def asked_interruptions(flags: PlanTimeFlags, runs: Sequence[RunSpeed]) -> Interruptions | None:
    """Return how often the machine is taken away, and what that costs."""
    if flags.interruptions_per_hour == 0:
        return None
    of_runs = [run.checkpoint_minutes for run in runs if run.checkpoint_minutes is not None]
    return Interruptions(
        per_hour=flags.interruptions_per_hour,
        restart_s=USUAL_RESTART_S if flags.restart_s is None else flags.restart_s,
        checkpoint_minutes=flags.checkpoint_minutes or max(of_runs, default=Job.checkpoint_minutes),
        has_notice=not flags.without_notice,
    )


def measured_speeds(games: Sequence[GameLimit], flags: PlanTimeFlags) -> tuple[dict[str, Speed], list[str]]:
    """Train each game for a moment; return the speeds, and what to know of them."""
    from redline.algorithms.catalog import canonical_name
    from redline.bench.measuring import MAX_BUSY_PERCENT
    from redline.cli.bench import measure
    from redline.cli.flags import default_job
    from redline.plan.trial_speed import measure_speed

    algo, seconds = canonical_name(flags.algo or "dqn"), flags.seconds or USUAL_SECONDS
    jobs = [default_job(algo, game.game) for game in games]
    trials = measure(
        lambda tell: {job.env.id: measure_speed(job, algorithm=algo, seconds=seconds, progress=tell) for job in jobs}
    )
    worst = max(trial.others_percent for trial in trials.values())
    notes = [f"{algo} with its usual settings, one run alone on this machine"]
    if worst > MAX_BUSY_PERCENT:
        notes.append(f"others used up to {worst:.0f} % of the CPU while it was measured: a free machine is faster")
    return {name: trial.speed for name, trial in trials.items()}, notes

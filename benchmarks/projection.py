"""Do runs know how long they will take? Their readings at 10 % and 50 % of the steps, against the time they took.

Trains DQN and PPO on CartPole, Catch and Pong, for as many steps as a short trial says will take --seconds. A run takes
from its start event to its last checkpoint. Each is a row in benchmarks/projection.jsonl, unless others kept the
machine busy: a script that was stopped goes on where it was, unless Redline has changed since.
"""

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean

from battery import Training, train, train_all
from recording import RECORDS, Measurement, finish, make_parser, say
from redline.bench.measuring import MAX_BUSY_PERCENT
from redline.jsonl import Row
from redline.report.run_files import RunFiles, load_run
from redline.report.run_summary import summarise

NAME = "projection"
REQUIRED: Mapping[float, float] = {0.1: 0.1, 0.5: 0.05}  # share of the steps → largest error of the whole time
LEAST_RUNS = 6  # for a verdict
ROWS = RECORDS.parent / "projection.jsonl"
ENVS = {"cartpole": "CartPole-v1", "catch": "redline/Catch-v0", "pong": "pong"}
ALGORITHMS: Mapping[str, tuple[str, ...]] = {"dqn": ("--warmup-steps", "1000"), "ppo": ()}
TRIAL_SHARE = 0.15  # of the seconds of a run, for the trial before it


@dataclass(frozen=True)
class Projection:
    """What a reading said of the rest of its run, and what came of it."""

    share: float  # of the steps
    projected_s: float | None  # of the whole run; None where the reading had no estimate
    error: float | None  # ÷ the time the run took, − 1
    is_within: bool | None  # whether the time left was in the interval; None without one


@dataclass(frozen=True)
class Judged:
    """A run, and its projections."""

    algorithm: str | None
    env: str | None
    seed: int | None
    commit: str | None
    steps: int
    took_s: float
    others_cpu_cores_used: float | None
    is_quiet: bool
    final_return: float | None
    projections: tuple[Projection, ...]


def judge_rows(metrics: Sequence[Row], *, begun_unix_s: float, ended_unix_s: float, share: float) -> Projection:
    """Return the projection of the first reading at or after a share of the steps."""
    steps = metrics[-1]["steps"]
    row = next(row for row in metrics if row["steps"] >= share * steps)
    left_s, low_s, high_s = (row.get(name) for name in ("remaining_s", "remaining_low_s", "remaining_high_s"))
    took_s, really_left_s = ended_unix_s - begun_unix_s, ended_unix_s - row["unix_s"]
    projected_s = None if left_s is None else row["unix_s"] - begun_unix_s + left_s
    return Projection(
        share,
        projected_s,
        error=None if projected_s is None else projected_s / took_s - 1.0,
        is_within=None if low_s is None or high_s is None else low_s <= really_left_s <= high_s,
    )


def span_of(events: Sequence[Row]) -> tuple[float, float]:
    """Return when a run began and ended by the wall clock; ValueError unless one invocation reached its limit."""
    names = [row["event"] for row in events]
    if "resume" in names or "start" not in names:
        raise ValueError("it was resumed, or has no start: its time is not that of one invocation")
    stop = next((row for row in events if row["event"] == "stop"), None)
    if stop is None or not str(stop["reason"]).endswith(" reached"):
        raise ValueError("it did not reach its limit")
    ends = [row["unix_s"] for row in events if row["event"] in ("stop", "checkpoint")]
    return events[names.index("start")]["unix_s"], max(ends)


def judge(run: RunFiles) -> Judged:
    """Return how well a run knew its time."""
    begun_unix_s, ended_unix_s = span_of(run.events)
    if not run.metrics:
        raise ValueError("it has no readings")
    summary = summarise(run)
    others, cores = summary.others_cpu_cores_used, summary.usable_cores
    shares = [
        judge_rows(run.metrics, begun_unix_s=begun_unix_s, ended_unix_s=ended_unix_s, share=share) for share in REQUIRED
    ]
    return Judged(
        algorithm=summary.algorithm,
        env=summary.env,
        seed=summary.seed,
        commit=None if run.run is None else run.run.get("commit"),
        steps=int(run.metrics[-1]["steps"]),
        took_s=ended_unix_s - begun_unix_s,
        others_cpu_cores_used=others,
        is_quiet=others is not None and cores is not None and 100 * others / cores <= MAX_BUSY_PERCENT,
        final_return=summary.final_return,
        projections=tuple(shares),
    )


def describe(run: Judged) -> str:
    """Return a run as a line."""
    told = [
        f"at {one.share:.0%} no estimate"
        if one.projected_s is None or one.error is None
        else f"at {one.share:.0%} {one.projected_s:.1f} s ({one.error:+.1%}{_within(one)})"
        for one in run.projections
    ]
    noise = "" if run.is_quiet else ", the machine was busy"
    return f"{run.algorithm} on {run.env}, seed {run.seed}: took {run.took_s:.1f} s, {', '.join(told)}{noise}"


def _within(projection: Projection) -> str:
    return {True: ", within its interval", False: ", outside its interval", None: ""}[projection.is_within]


def measurement(runs: Sequence[Judged]) -> Measurement:
    """Return what the runs show."""
    found = [one for run in runs for one in run.projections]
    worst = {
        share: max((abs(one.error) for one in found if one.share == share and one.error is not None), default=None)
        for share in REQUIRED
    }
    is_good = all(one.error is not None and abs(one.error) <= REQUIRED[one.share] for one in found)
    intervals = [one.is_within for one in found if one.is_within is not None]
    is_judged = len(runs) >= LEAST_RUNS and all(run.is_quiet for run in runs)
    told = [f"{error:.1%} at {share:.0%} of the steps" for share, error in worst.items() if error is not None]
    returns = [f"{run.algorithm} on {run.env} {run.final_return:.1f}" for run in runs if run.final_return is not None]
    return Measurement(
        name=NAME,
        title=f"Projected against real time of {len(runs)} runs, largest error",
        headline=", ".join(told) or "no run had an estimate",
        learning=f"mean return of the last 100 episodes: {', '.join(returns) or 'none ended'}",
        passed=is_good if is_judged else None,
        config={"largest_errors": {f"{share:g}": error for share, error in REQUIRED.items()}},
        repeats=[asdict(run) for run in runs],
        summary={
            "largest_error": {f"{share:g}": error for share, error in worst.items()},
            "within_interval": fmean(intervals) if intervals else None,
            "intervals": len(intervals),
            "machine_was_quiet": all(run.is_quiet for run in runs),
        },
    )


def trainings(envs: Sequence[str], algorithms: Sequence[str], *, seconds: float) -> list[Training]:
    """Return what is trained; the number of steps is found by a trial."""
    return [
        Training(f"projection, {seconds:g} s", name, 1, ("--env", ENVS[env], *ALGORITHMS[name]))
        for env in envs
        for name in algorithms
    ]


def train_and_judge(training: Training, folder: Path, *, options: Namespace) -> Row:
    """Train for about so many seconds, and return how well the run knew its time."""

    def run(part: str, *limit: str) -> Row:
        place = folder / part
        place.mkdir()
        return train(replace(training, flags=(*training.flags, *limit)), place)

    trial = run("trial", "--max-minutes", str(options.seconds * TRIAL_SHARE / 60))
    steps = round(trial["learning_steps_per_s"] * options.seconds)
    judged = judge(load_run(Path(run("whole", "--max-steps", str(steps))["run"])))
    say(describe(judged))
    if not (judged.is_quiet or options.allow_busy):
        raise RuntimeError("others kept the machine busy: the run does not count")
    return {"judged": asdict(judged)}


def as_judged(row: Row) -> Judged:
    """Return a run from its row."""
    return Judged(**{**row, "projections": tuple(Projection(**one) for one in row["projections"])})


def main(argv: Sequence[str] | None = None) -> int:
    """Train, tell how well they knew their time, and record it."""
    options = parse(argv)
    wanted = trainings(options.envs, options.algorithms, seconds=options.seconds)
    judge_one = partial(train_and_judge, options=options)
    rows = train_all(wanted, judge_one, rows_file=options.rows, any_commit=False)
    if not (judged := [as_judged(row["judged"]) for row in rows if "judged" in row]):
        raise SystemExit("projection: no run can be judged: wait until the machine is free, or use --allow-busy")
    return finish(measurement(judged), as_json=options.json, keep=not options.no_record)


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    parser.add_argument("--envs", nargs="+", choices=tuple(ENVS), default=list(ENVS))
    parser.add_argument("--algorithms", nargs="+", choices=tuple(ALGORITHMS), default=list(ALGORITHMS))
    parser.add_argument("--seconds", type=float, default=150.0, help="about so long trains each run")
    parser.add_argument("--allow-busy", action="store_true", help="count runs that others disturbed")
    parser.add_argument("--rows", type=Path, default=ROWS, metavar="FILE", help="JSON Lines of finished runs")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

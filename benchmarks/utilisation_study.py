"""What does utilisation tell about learning? Every algorithm for the same steps, and one over batch sizes and threads.

Each run is a `redline train` of its own, one after another, watched by its own monitor. `catch` and `pong` train all
algorithms; `sweep` trains DQN with the same samples per step in batches of several sizes, on one and on two threads.
"""

import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

import psutil

from battery import Training, add_battery_flags, as_flags, train, train_all
from learning_tasks import REPLAY, TASKS
from recording import Measurement, at_least, finish, make_parser, say
from redline.jsonl import Row
from redline.report.relation import relate
from redline.report.run_files import load_runs
from redline.report.run_series import Axis, Series, learning_curve
from redline.report.run_summary import RunSummary, summarise

THREADS = 2
CURVE_POINTS = 40
AXES: tuple[Axis, ...] = ("steps", "minutes", "cpu_s")
ENVS_ON_ONE: dict[str, object] = {"--actor.threads": 1}  # what is compared is the learner's threads
BATCH_SIZES = (16, 32, 64, 128)


@dataclass(frozen=True)
class Study:
    """What is trained, and what is kept the same."""

    title: str
    steps: int
    seeds: tuple[int, ...]
    note: str

    @property
    def record(self) -> str:
        """Name of its records."""
        return f"utilisation-{self.title}"


STUDIES: Mapping[str, Study] = {
    "catch": Study("catch", 12_000, (1, 2, 3), "settings of the learning task on Catch, the same steps for all"),
    "pong": Study("pong", 4_000, (1,), "defaults but a warm-up of 2,000 steps: too short to learn"),
    "sweep": Study("sweep", 8_000, (1, 2, 3), "DQN on Catch, 8 samples per step whatever the batch size"),
}


def trainings(name: str, study: Study, algorithms: Sequence[str]) -> list[Training]:
    """Return the runs of a study; seeds are the outer loop, so that a slow hour does not hit one setting alone."""
    return [
        Training(study.record, algorithm, seed, as_flags({**settings, "--max-steps": study.steps}))
        for seed in study.seeds
        for algorithm, settings in _variants(name, algorithms)
    ]


def _variants(name: str, algorithms: Sequence[str]) -> list[tuple[str, dict[str, object]]]:
    both = {"--learner.threads": THREADS, "--actor.threads": THREADS}
    catch = TASKS["catch"]
    if name == "catch":
        return [(algorithm, catch.settings_of(algorithm) | both) for algorithm in algorithms]
    if name == "pong":
        warmup: dict[str, object] = {"--warmup-steps": 2_000}
        return [(item, {"--env": "pong", **both, **(warmup if item in REPLAY else {})}) for item in algorithms]
    return [
        ("dqn", catch.settings_of("dqn") | {"--batch-size": batch_size, "--learner.threads": threads} | ENVS_ON_ONE)
        for threads in (1, 2)
        for batch_size in BATCH_SIZES
    ]


def sparse(curve: Series) -> Series:
    """Return a curve of so few points, means of neighbours, that a record stays small."""
    points = min(CURVE_POINTS, len(curve.x))
    cuts = [place * len(curve.x) // max(points, 1) for place in range(points + 1)]
    pieces = [slice(begin, end) for begin, end in pairwise(cuts)]
    return Series([fmean(curve.x[piece]) for piece in pieces], [fmean(curve.y[piece]) for piece in pieces])


def measure(training: Training, folder: Path) -> Row:
    """Train once and return the run's summary, with its learning curve."""
    busy_percent = psutil.cpu_percent(interval=1.0)
    (run,) = load_runs([Path(train(training, folder)["run"])])
    summary = summarise(run)
    curves = {axis: learning_curve(run, axis, "actor") for axis in AXES}
    say(
        f"{training.algorithm}, batch {summary.batch_size}, {summary.learner_threads} threads: "
        f"{summary.cpu_cores_used} cores, {summary.steps_per_s} steps/s, final return {summary.final_return}"
    )
    return {
        "summary": {**asdict(summary), "label": training.algorithm},
        "curves": {axis: asdict(sparse(curve)) for axis, curve in curves.items()},
        "problems": list(run.problems),
        "busy_percent_before": busy_percent,
    }


def measurement(rows: Sequence[Row], study: Study) -> Measurement:
    """Return what the rows show."""
    finished = [row for row in rows if "error" not in row]
    summaries = [RunSummary(**row["summary"]) for row in finished]
    used = sorted((item.cpu_cores_used, item.algorithm) for item in summaries if item.cpu_cores_used is not None)
    relation: dict[str, Any] = asdict(relate(summaries))
    busiest = max((row["busy_percent_before"] for row in finished), default=None)
    told = [item.others_cpu_cores_used for item in summaries if item.others_cpu_cores_used is not None]
    others = max(told, default=None)
    return Measurement(
        name=study.record,
        title=f"utilisation and learning: {study.title}, {study.steps:,} steps each",
        headline=f"{len(finished)} of {len(rows)} runs; cores used {used[0][0]:.2f} ({used[0][1]}) to "
        f"{used[-1][0]:.2f} ({used[-1][1]})"
        if used
        else "no run was measured",
        learning=f"{study.note}; others used {others:.2f} cores at most" if others is not None else study.note,
        passed=len(finished) == len(rows),
        config={"study": asdict(study), "threads": THREADS, "batch_sizes": BATCH_SIZES},
        repeats=rows,
        summary={"relation": relation, "most_busy_percent_before": busiest, "others_cpu_cores_used": others},
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Train, watch, record."""
    options = parse(argv)
    study = STUDIES[options.study]
    if options.steps is not None:
        study = replace(study, title=f"{study.title}-changed", steps=options.steps)
    rows = train_all(trainings(options.study, study, options.algorithms), measure, rows_file=options.rows)
    return finish(measurement(rows, study), as_json=options.json, keep=not options.no_record)


def parse(argv: Sequence[str] | None) -> Namespace:
    """Read the flags."""
    parser = make_parser(__doc__)
    add_battery_flags(parser)
    parser.add_argument("--study", choices=tuple(STUDIES), default="catch", help="what to train")
    parser.add_argument("--steps", type=at_least(1), help="steps of each run, if not the study's own")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())

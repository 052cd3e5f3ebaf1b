"""Draws the pictures of README.md and docs/ from the newest records: pictures are never drawn by hand."""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from learning_tasks import REPLAY
from recipe_tables import TRAINERS
from recording import RECORDS, say
from redline.report.charts import Chart, Line, LineChart, Spread, SpreadChart
from redline.report.png import save_png
from redline.report.statistics import mean_interval
from tables import DOCS, newest_records

Run = Mapping[str, Any]  # a row of a record


SPREADS = {
    "cpu_cores_used": ("Cores used", "of 2, while learning"),
    "steps_per_s": ("Steps per second", "steps/s while learning"),
    "cpu_s_per_1000_steps": ("CPU time for 1,000 steps", "CPU seconds"),
    "final_return": ("Return at the end", "mean of the last fifth of the episodes"),
}
SWEEP = {
    "cpu_cores_used": ("Cores used", "of 2, while learning"),
    "steps_per_s": ("Steps per second", "steps/s while learning"),
    "updates_per_s": ("Updates per second", "updates/s"),
    "final_return": ("Return at the end", "mean of the last fifth of the episodes; a dot for each run"),
}


def charts_of_all(name: str, runs: Sequence[Run], measures: Sequence[str]) -> list[Chart]:
    """Return what each algorithm used and reached, the busiest first."""
    groups = grouped(runs, lambda summary: summary["algorithm"])
    order = sorted(groups, key=lambda algorithm: -_mean(groups[algorithm], "cpu_cores_used"))
    charts: list[Chart] = []
    for measure in measures:
        title, unit = SPREADS[measure]
        rows = [_spread(algorithm, groups[algorithm], measure) for algorithm in order]
        charts.append(SpreadChart(f"{name}-{measure}".replace("_", "-"), title, unit, tuple(filter(None, rows))))
    return charts


def chart_of_use_and_return(name: str, runs: Sequence[Run]) -> Chart:
    """Return a dot for each run: how much it used, and what it reached."""
    families = {"with a replay memory": True, "on-policy": False}
    lines = []
    for colour, (label, is_replay) in enumerate(families.items()):
        found = [run["summary"] for run in runs if (run["algorithm"] in REPLAY) is is_replay]
        told = [item for item in found if None not in (item["cpu_cores_used"], item["final_return"])]
        x, y = [item["cpu_cores_used"] for item in told], [item["final_return"] for item in told]
        lines.append(Line(label, x, y, colour, is_points=True))
    return LineChart(
        f"{name}-use-and-return", "Return at the end and use", "one dot for each run", "cores used", tuple(lines)
    )


def chart_of_learning(name: str, runs: Sequence[Run], axis: str, words: str) -> Chart:
    """Return the learning curve of each algorithm's first seed."""
    first = [run for run in runs if run["seed"] == min(item["seed"] for item in runs)]
    lines = [
        Line(run["algorithm"], run["curves"][axis]["x"], run["curves"][axis]["y"], place % 8, place // 8)
        for place, run in enumerate(first)
    ]
    title = f"Return against {words}, seed {first[0]['seed']}"
    return LineChart(f"{name}-return-{axis.replace('_', '-')}", title, "mean of 20 episodes", words, tuple(lines))


def charts_of_sweep(runs: Sequence[Run]) -> list[Chart]:
    """Return how the batch size and the threads change what is used and reached."""
    charts: list[Chart] = []
    for measure, (title, unit) in SWEEP.items():
        lines = []
        for threads in (1, 2):
            summaries = [run["summary"] for run in runs if run["summary"]["learner_threads"] == threads]
            by_size = grouped([{"summary": item} for item in summaries], lambda item: item["batch_size"])
            sizes = sorted(by_size)
            means = [_mean(by_size[size], measure) for size in sizes]
            words = "1 thread" if threads == 1 else f"{threads} threads"
            lines.append(Line(words, sizes, means, threads - 1))
            x, y = [item["batch_size"] for item in summaries], [item[measure] for item in summaries]
            lines.append(Line(words, x, y, threads - 1, is_points=True, in_legend=False))
        name = f"sweep-{measure}".replace("_", "-")
        charts.append(LineChart(name, title, unit, "batch size", tuple(lines), bottom=None))
    return charts


def chart_by_minutes(runs: Sequence[Run]) -> Chart:
    """Return the return against minutes of every run on Pong; the runs of one trainer share a colour."""
    trainers = list(dict.fromkeys(run["algorithm"] for run in runs))
    lines = []
    for run in runs:
        colour, points = trainers.index(run["algorithm"]), run["curve"]
        is_first = run is next(other for other in runs if other["algorithm"] == run["algorithm"])
        lines.append(
            Line(
                TRAINERS.get(run["algorithm"], "Redline, recipe pong"),
                [point["minutes"] for point in points],
                [point["mean_return"] for point in points],
                colour,
                in_legend=is_first,
            )
        )
    return LineChart(
        "pong-by-minutes", "Pong on two cores", "mean return of the last ten games", "minutes", tuple(lines)
    )


def chart_of_ladder(rungs: Sequence[Run]) -> Chart:
    """Return the steps per second of every rung, with the range that holds 90 % of the rounds."""
    rates = {rung["name"]: rung["steps_per_s"] for rung in rungs if rung["steps_per_s"] is not None}
    rows = [
        Spread(name, (rate["median"],), rate["median"], rate["low"], rate["high"], colour=0)
        for name, rate in rates.items()
    ]
    return SpreadChart("ladder", "From the textbook loop to Redline", "steps/s of DQN on Pong", tuple(rows))


def grouped(runs: Sequence[Run], key: Callable[[Run], Any]) -> dict[Any, list[Run]]:
    """Return the summaries of each group."""
    groups: dict[Any, list[Run]] = {}
    for run in runs:
        groups.setdefault(key(run["summary"]), []).append(run["summary"])
    return groups


def _spread(label: str, summaries: Sequence[Run], measure: str) -> Spread | None:
    values = [item[measure] for item in summaries if item[measure] is not None]
    if not values:
        return None
    low, high = mean_interval(values) or (None, None)
    return Spread(label, tuple(values), fmean(values), low, high, colour=0 if label in REPLAY else 1)


def _mean(summaries: Sequence[Run], measure: str) -> float:
    values = [item[measure] for item in summaries if item[measure] is not None]
    return fmean(values) if values else 0.0


def main(argv: Sequence[str] | None = None) -> int:
    """Draw what is recorded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=Path, default=RECORDS)
    parser.add_argument("--out", type=Path, default=DOCS / "pictures")
    options = parser.parse_args(argv)
    options.out.mkdir(parents=True, exist_ok=True)
    for _, record in newest_records(options.records):
        runs = [row for row in record["repeats"] if "error" not in row]
        charts: list[Chart] = []
        if record["name"] == "utilisation-catch":
            charts = charts_of_all("catch", runs, ("cpu_cores_used", "final_return", "cpu_s_per_1000_steps"))
            charts.append(chart_of_use_and_return("catch", runs))
            charts.append(chart_of_learning("catch", runs, "steps", "steps"))
            charts.append(chart_of_learning("catch", runs, "cpu_s", "CPU seconds"))
        elif record["name"] == "utilisation-pong":
            charts = charts_of_all("pong", runs, ("cpu_cores_used", "steps_per_s"))
        elif record["name"] == "utilisation-sweep":
            charts = charts_of_sweep(runs)
        elif record["name"] == "side-by-side-pong":
            charts = [chart_by_minutes(runs)]
        elif record["name"] == "ladder":
            charts = [chart_of_ladder(runs)]
        for chart in charts:
            save_png(chart, options.out / f"{chart.name}.png")
            say(f"drawn: {chart.name}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())

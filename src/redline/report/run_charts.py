"""Which charts show a run: learning, speed, and where its time went."""

from __future__ import annotations

from collections.abc import Mapping

from redline.report.charts import Bar, Line, LineChart, ShareChart, over_time
from redline.report.phase_split import PhaseSplit
from redline.report.row_values import number
from redline.report.run_files import RunFiles
from redline.report.run_series import Axis, learning_curve, metric_series, speed_series

AXES: Mapping[Axis, str] = {"steps": "steps", "minutes": "minutes", "cpu_s": "CPU seconds", "gpu_s": "GPU seconds"}
TITLES: Mapping[Axis, str] = {"steps": "steps", "minutes": "time", "cpu_s": "CPU time", "gpu_s": "GPU time"}
REST = "the rest of the process"
MAX_BARS = 80
# name in metrics.jsonl → title, unit
DIAGNOSTICS: Mapping[str, tuple[str, str]] = {
    "loss": ("Loss", "mean since the reading before"),
    "gradient_norm": ("Gradient norm", "before clipping, one update in 257"),
    "mean_q": ("Value of the best action", "mean over an update's states"),
    "largest_q": ("Largest value", "over an update's states"),
    "td_error": ("TD error", "mean size"),
    "policy_entropy_nats": ("Entropy of the policy", "nats"),
    "approximate_kl_nats": ("Approximate KL", "nats, from the policy that acted"),
    "clip_fraction": ("Clip fraction", "share of an update's rows"),
    "explained_variance": ("Explained variance", "of the returns by the values; 1 is perfect"),
    "learning_rate": ("Learning rate", ""),
    "epsilon": ("ε", "share of random actions"),
    "mean_length_100_steps": ("Episode length", "steps, mean of 100 episodes"),
}
IDLE = {"rest": "nothing to do"}


def learning_charts(run: RunFiles) -> list[LineChart]:
    """Return the learning curve against every axis that the run has."""
    charts = []
    for axis, words in AXES.items():
        played = learning_curve(run, axis)
        greedy = learning_curve(run, axis, "greedy")
        lines = [Line("while training, mean of the last 20", played.x, played.y)] if played.x else []
        if greedy.x:
            lines.append(Line("greedy evaluations", greedy.x, greedy.y, colour=1, is_points=True))
        if lines:
            title = "Return" if axis == "steps" else f"Return against {TITLES[axis]}"
            unit = "unclipped" if len(lines) > 1 else "mean of the last 20 episodes, unclipped"
            chart = LineChart(f"return-{axis.replace('_', '-')}", title, unit, words, tuple(lines))
            charts.append(over_time(chart) if axis == "minutes" else chart)
    return charts


def speed_charts(run: RunFiles) -> list[LineChart]:
    """Return steps and updates per second."""
    words = {"steps_per_s": ("Steps", "steps/s"), "updates_per_s": ("Updates", "updates/s")}
    return [
        over_time(
            LineChart(
                name.replace("_", "-"),
                f"{words[name][0]} per second",
                f"{words[name][1]}, over the last 10 s",
                "minutes",
                (Line(words[name][1], series.x, series.y, colour=place),),
                bottom=0.0,
                is_sampled=True,
            )
        )
        for place, (name, series) in enumerate(speed_series(run).items())
        if name in words
    ]


def diagnostic_charts(run: RunFiles) -> list[LineChart]:
    """Return what tells how learning goes, against steps."""
    series = metric_series(run, DIAGNOSTICS, lambda row: number(row, "steps"))
    return [
        LineChart(name.replace("_", "-"), *DIAGNOSTICS[name], "steps", (Line(DIAGNOSTICS[name][1], curve.x, curve.y),))
        for name, curve in series.items()
        if any(curve.y)  # a loss of a run that has not learnt yet, an ε of a policy
    ]


def phase_charts(split: PhaseSplit) -> list[ShareChart]:
    """Return where the time of the run went, and that of each process."""
    charts = []
    total_s = sum(split.phases_s.values())
    if total_s > 0:
        shares = tuple((phase, seconds / total_s) for phase, seconds in split.phases_s.items())
        charts.append(
            ShareChart("phases", "Phases of the run", "share of the wall clock", (Bar("run", shares),), rest="rest")
        )
    waits = {what: IDLE.get(what, f"waits for {what}") for process in split.processes for what in process.waiting}
    bars = tuple(
        Bar(
            process.role,
            (
                *process.busy.items(),
                *((waits[what], part) for what, part in process.waiting.items()),
                (REST, process.unaccounted),
            ),
        )
        for process in split.processes[:MAX_BARS]
    )
    if bars:
        title, unit, pale = (
            "What each process did",
            "share of training time; pale: it waited",
            frozenset(waits.values()),
        )
        charts.append(ShareChart("processes-split", title, unit, bars, rest=REST, pale=pale))
    return charts

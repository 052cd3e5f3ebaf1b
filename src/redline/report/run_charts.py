"""The charts of a run: learning, speed, where its time went, and every series of hardware.jsonl."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from redline.report.charts import Bar, Line, LineChart, ShareChart, thinned_line
from redline.report.parts import size_unit
from redline.report.rows import THROTTLED, number
from redline.report.run_files import RunFiles
from redline.report.run_log import PhaseSplit, ProcessShares
from redline.report.run_series import Axis, Series, hardware_series, learning_curve, metric_series, speed_series

AXES: Mapping[Axis, str] = {"steps": "steps", "minutes": "minutes", "cpu_s": "CPU seconds", "gpu_s": "GPU seconds"}
TITLES: Mapping[Axis, str] = {"steps": "steps", "minutes": "time", "cpu_s": "CPU time", "gpu_s": "GPU time"}
REST = "unaccounted"
MAX_BARS = 80
# name in metrics.jsonl → title, unit
DIAGNOSTICS: Mapping[str, tuple[str, str]] = {
    "loss": ("Loss", "mean since the last reading"),
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
# name in metrics.jsonl → what a process did or waited for
WORK = {"draw": "sample batch", "keep": "store", "read": "read messages"}
WAITS = {"rest": "idle", "gather": "wait for batch"}
THROTTLE_POINTS = 24  # each the share of samples within it
MAX_LINES = 16  # the most frequent reasons of all GPUs
NEVER = "no reason seen"
MANY = 8  # more series are drawn faintly, under their mean
MAX_OTHERS = 24  # charts of unknown series
CLOCKS = frozenset({"unix_s", "elapsed_s"})  # drawn as the axis


@dataclass(frozen=True)
class HardwareChart:
    """One chart of hardware: patterns of its series, and the label of each."""

    name: str
    title: str
    unit: str
    series: Mapping[str, str]  # pattern → label; {} is replaced by what * matches
    scale: float = 1.0
    bottom: float | None = 0.0
    top: float | None = None


def _of_gpus(
    name: str, title: str, unit: str, field: str, *, bottom: float | None = 0.0, top: float | None = None
) -> HardwareChart:
    return HardwareChart(name, title, unit, {f"gpus.*.{field}": "GPU {}"}, bottom=bottom, top=top)


HARDWARE: Mapping[str, tuple[HardwareChart, ...]] = {
    "Processor": (
        HardwareChart(
            "cores",
            "CPU cores used",
            "cores",
            {"cpu_cores_used": "this run", "machine_cpu_cores_used": "whole machine"},
        ),
        HardwareChart("core-busy", "Each core", "% busy, by any process", {"core_busy.*": "core {}"}, 100.0, top=100.0),
        HardwareChart("role-cores", "CPU cores by role", "cores", {"roles.*.cpu_cores_used": "{}"}),
        HardwareChart("load", "Load average", "processes, over a minute", {"load_average_1m": "load"}),
        HardwareChart("cpu-seconds", "CPU time", "CPU seconds since the recording began", {"cpu_s": "this run"}),
    ),
    "Memory": (
        HardwareChart(
            "memory",
            "Memory of the run",
            "bytes",
            {"rss_bytes": "resident", "pss_bytes": "PSS: shared pages once", "shared_bytes": "shared or file-backed"},
        ),
        HardwareChart("role-memory", "Memory by role", "bytes", {"roles.*.rss_bytes": "{}"}),
        HardwareChart("memory-available", "Memory available", "bytes", {"memory_available_bytes": "without swapping"}),
        HardwareChart(
            "shm", "Shared memory files", "bytes", {"shm_used_bytes": "used by all", "shm_free_bytes": "free"}
        ),
    ),
    "Disk": (
        HardwareChart(
            "io", "Storage I/O of the run", "bytes/s", {"read_bytes_per_s": "read", "write_bytes_per_s": "written"}
        ),
        HardwareChart(
            "device-io",
            "I/O of the device",
            "bytes/s",
            {"disk_read_bytes_per_s": "read by all", "disk_write_bytes_per_s": "written by all"},
        ),
        HardwareChart("disk-free", "Disk space free", "bytes", {"disk_free_bytes": "free"}),
    ),
    "GPUs": (
        _of_gpus("gpu-use", "GPU utilisation", "%", "utilisation_percent", top=100.0),
        _of_gpus("gpu-memory", "GPU memory used", "bytes", "memory_used_bytes"),
        _of_gpus("gpu-power", "GPU power", "W", "power_w"),
        _of_gpus("gpu-temperature", "GPU temperature", "°C", "temperature_c", bottom=None),
        _of_gpus("gpu-controller", "GPU memory controller", "% busy", "memory_controller_percent", top=100.0),
        _of_gpus("gpu-clock", "GPU clock", "MHz", "clock_sm_mhz"),
        _of_gpus("gpu-memory-clock", "GPU memory clock", "MHz", "clock_memory_mhz"),
        _of_gpus("gpu-fan", "GPU fan", "%", "fan_percent", top=100.0),
        _of_gpus("gpu-memory-total", "GPU memory, total", "bytes", "memory_total_bytes"),
    ),
    "Processes and the monitor": (
        HardwareChart("processes", "Processes and threads", "number", {"processes": "processes", "threads": "threads"}),
        HardwareChart("role-processes", "Processes by role", "number", {"roles.*.processes": "{}"}),
        HardwareChart("monitor", "CPU time of the monitor", "CPU seconds", {"monitor_cpu_s": "monitor"}),
    ),
}


def curve_charts(run: RunFiles, axes: tuple[Axis, ...]) -> list[LineChart]:
    """Return the learning curve against each axis that the run has."""
    charts = []
    for axis in axes:
        played = learning_curve(run, axis)
        greedy = learning_curve(run, axis, "greedy")
        lines = [Line("while training, mean of the last 20", played.x, played.y)] if played.x else []
        if greedy.x:
            lines.append(Line("greedy evaluations", greedy.x, greedy.y, colour=1, is_points=True))
        if lines:
            title = "Return" if axis == "steps" else f"Return against {TITLES[axis]}"
            unit = "unclipped" if len(lines) > 1 else "mean of the last 20 episodes, unclipped"
            charts.append(LineChart(f"return-{axis.replace('_', '-')}", title, unit, AXES[axis], tuple(lines)))
    return charts


def speed_charts(run: RunFiles) -> list[LineChart]:
    """Return steps and updates per second."""
    charts = []
    for place, (name, series) in enumerate(speed_series(run).items()):
        what = name.removesuffix("_per_s")
        line = Line(f"{what}/s", series.x, series.y, colour=place)
        title, unit = f"{what.capitalize()} per second", f"{what}/s, over the last 10 s"
        charts.append(LineChart(f"{what}-per-s", title, unit, "minutes", (line,), bottom=0.0, is_sampled=True))
    return charts


def diagnostic_charts(run: RunFiles) -> list[LineChart]:
    """Return losses, values and the like against steps."""
    series = metric_series(run, DIAGNOSTICS, lambda row: number(row, "steps"))
    return [
        LineChart(name.replace("_", "-"), *DIAGNOSTICS[name], "steps", (Line(DIAGNOSTICS[name][1], curve.x, curve.y),))
        for name, curve in series.items()
        if any(curve.y)  # not the loss of a run without updates
    ]


def phase_charts(split: PhaseSplit) -> list[ShareChart]:
    """Return where the time of the run and of each process went."""
    charts = []
    total_s = sum(split.phases_s.values())
    if total_s > 0:
        shares = tuple((phase, seconds / total_s) for phase, seconds in split.phases_s.items())
        charts.append(
            ShareChart("phases", "Phases of the run", "% of the wall clock", (Bar("run", shares),), rest="rest")
        )
    if (chart := process_chart(split.processes)) is not None:
        charts.append(chart)
    return charts


def process_chart(processes: Sequence[ProcessShares], *, unit: str = "% of training time") -> ShareChart | None:
    """Return what each process did and waited for; None where no process says."""
    waits = {what: WAITS.get(what, f"wait for {what}") for process in processes for what in process.waiting}
    bars = tuple(
        Bar(
            process.role,
            (
                *((WORK.get(what, what), part) for what, part in process.busy.items()),
                *((waits[what], part) for what, part in process.waiting.items()),
                (REST, process.unaccounted),
            ),
        )
        for process in processes[:MAX_BARS]
    )
    title, pale = "What each process did", frozenset(waits.values())
    return ShareChart("processes-split", title, f"{unit}; pale: waiting", bars, rest=REST, pale=pale) if bars else None


def hardware_charts(run: RunFiles) -> dict[str, list[LineChart]]:
    """Return the charts of all hardware series by subject, without empty ones."""
    series = hardware_series(run)
    shown = set(CLOCKS)
    subjects: dict[str, list[LineChart]] = {}
    for subject, wanted in HARDWARE.items():
        for chart in wanted:
            lines = _matching(chart, series)
            shown |= {name for name, _ in lines}
            if lines:
                subjects.setdefault(subject, []).append(_chart(chart, [line for _, line in lines]))
    if (throttling := throttling_chart(run)) is not None:
        subjects.setdefault("GPUs", []).append(throttling)
    others = [name for name in series if name not in shown]
    for place, name in enumerate(others[:MAX_OTHERS]):
        single = HardwareChart(f"other-{place}", name, "as recorded", {name: name}, bottom=None)
        line = Line(name, series[name].x, series[name].y)
        title = "Other series" if len(others) <= MAX_OTHERS else f"Other series, {MAX_OTHERS} of {len(others):,}"
        subjects.setdefault(title, []).append(_chart(single, [line]))
    return subjects


def _matching(chart: HardwareChart, series: Mapping[str, Series]) -> list[tuple[str, Line]]:
    """Return the series of a chart, with their names."""
    found: list[tuple[str, Line]] = []
    for name, text in series_of(chart, series):
        y = [value * chart.scale for value in series[name].y]
        found.append((name, Line(text, series[name].x, y, colour=len(found), dash=len(found) // MANY)))
    return found


def series_of(chart: HardwareChart, names: Iterable[str]) -> list[tuple[str, str]]:
    """Return the names of the series on a chart, each with its label."""
    found: list[tuple[str, str]] = []
    known = list(names)
    for pattern, label in chart.series.items():
        expression = re.compile(re.escape(pattern).replace(r"\*", "(.+)"), re.DOTALL)
        for name in known:
            if match := expression.fullmatch(name):
                found.append((name, label.replace("{}", match[1]) if match.groups() else label))
    return found


def _chart(chart: HardwareChart, lines: list[Line]) -> LineChart:
    unit = chart.unit
    if unit.startswith("bytes"):
        divisor, words = size_unit(max((abs(value) for line in lines for value in line.y), default=0.0))
        unit = unit.replace("bytes", words)
        lines = [replace(line, y=[value / divisor for value in line.y]) for line in lines]
    if len(lines) > MANY:
        lines = _with_mean(lines)
    elif len(lines) == 1 and lines[0].label != chart.title:
        unit = f"{unit} · {lines[0].label}"
    return LineChart(chart.name, chart.title, unit, "minutes", tuple(lines), chart.bottom, chart.top, is_sampled=True)


def _with_mean(lines: list[Line]) -> list[Line]:
    """Return many series in one faint colour, and their mean."""
    sums: dict[float, list[float]] = {}
    for line in lines:
        for x, y in zip(line.x, line.y, strict=True):
            sums.setdefault(x, []).append(y)
    places = sorted(sums)
    mean = Line("mean", places, [sum(sums[x]) / len(sums[x]) for x in places], colour=1)
    faint = [replace(line, colour=0, dash=0, is_faint=True, in_legend=False) for line in lines[1:]]
    first = Line(f"each of {len(lines)}", lines[0].x, lines[0].y, is_faint=True)
    return [mean, first, *faint]


def throttling_chart(run: RunFiles) -> LineChart | None:
    """Return the share of samples in which each reason held; None where no sample says."""
    names = sorted({name for row in run.hardware for name in row if name.startswith(THROTTLED)})
    found: list[Line] = []
    for gpu in (name for name in names if name.count(".") == 1):
        rows = [row for row in run.hardware if gpu in row]
        minutes = [run.clock.minutes(row["unix_s"]) for row in rows]
        for reason in [name for name in names if name.startswith(f"{gpu}.")] or [NEVER]:
            held = [100.0 * (reason in row) for row in rows]
            label = f"GPU {gpu.removeprefix(THROTTLED)}: {reason.removeprefix(f'{gpu}.')}"
            found.append(thinned_line(Line(label, minutes, held), THROTTLE_POINTS, has_gaps=False))
    if not found:
        return None
    found = sorted(found, key=lambda line: -fmean(line.y))[:MAX_LINES]
    lines = tuple(replace(line, colour=place, dash=place // MANY) for place, line in enumerate(found))
    unit = "% of samples with this reason" + (f" · {lines[0].label}" if len(lines) == 1 else "")
    title = "Reasons of GPU throttling"
    return LineChart("gpu-throttling", title, unit, "minutes", lines, 0.0, 100.0, is_sampled=True)

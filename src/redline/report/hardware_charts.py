"""Which charts show every series of hardware.jsonl, by subject."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from redline.report.amounts import size_unit
from redline.report.charts import Line, LineChart, means_of_neighbours, over_time
from redline.report.gpu_throttling import throttling_chart
from redline.report.run_files import RunFiles
from redline.report.run_series import MAX_POINTS, Series, hardware_series

MANY = 8  # series beyond this are drawn faintly, under their mean
MAX_OTHERS = 24  # charts of series that we do not know
CLOCKS = frozenset({"unix_s", "elapsed_s"})  # the axis itself


@dataclass(frozen=True)
class HardwareChart:
    """One chart of hardware: which series it holds, by patterns, and what each is called in it."""

    name: str
    title: str
    unit: str
    series: tuple[tuple[str, str], ...]  # pattern → label; {} stands for what the * of the pattern is
    scale: float = 1.0
    bottom: float | None = 0.0
    top: float | None = None


HARDWARE: Mapping[str, tuple[HardwareChart, ...]] = {
    "Processor": (
        HardwareChart(
            "cores",
            "CPU cores used",
            "cores",
            (("cpu_cores_used", "this run"), ("machine_cpu_cores_used", "whole machine")),
        ),
        HardwareChart("core-busy", "Each core", "% busy, by anybody", (("core_busy.*", "core {}"),), 100.0, 0.0, 100.0),
        HardwareChart("role-cores", "CPU cores by role", "cores", (("roles.*.cpu_cores_used", "{}"),)),
        HardwareChart("load", "Load average", "processes, over a minute", (("load_average_1m", "load"),)),
        HardwareChart("cpu-seconds", "CPU time", "CPU seconds since the recording began", (("cpu_s", "this run"),)),
    ),
    "Memory": (
        HardwareChart(
            "memory",
            "Memory of the run",
            "bytes",
            (("rss_bytes", "resident"), ("pss_bytes", "shared pages once"), ("shared_bytes", "shared or of files")),
        ),
        HardwareChart("role-memory", "Memory by role", "bytes", (("roles.*.rss_bytes", "{}"),)),
        HardwareChart(
            "memory-available", "Memory available", "bytes", (("memory_available_bytes", "without swapping"),)
        ),
        HardwareChart(
            "shm", "Shared memory files", "bytes", (("shm_used_bytes", "used by anybody"), ("shm_free_bytes", "free"))
        ),
    ),
    "Disk": (
        HardwareChart(
            "io", "Storage I/O of the run", "bytes/s", (("read_bytes_per_s", "read"), ("write_bytes_per_s", "written"))
        ),
        HardwareChart(
            "device-io",
            "I/O of the device",
            "bytes/s",
            (("disk_read_bytes_per_s", "read by anybody"), ("disk_write_bytes_per_s", "written by anybody")),
        ),
        HardwareChart("disk-free", "Disk space free", "bytes", (("disk_free_bytes", "free"),)),
    ),
    "GPUs": (
        HardwareChart(
            "gpu-use", "GPU utilisation", "%", (("gpus.*.utilisation_percent", "GPU {}"),), bottom=0.0, top=100.0
        ),
        HardwareChart("gpu-memory", "GPU memory used", "bytes", (("gpus.*.memory_used_bytes", "GPU {}"),)),
        HardwareChart("gpu-power", "GPU power", "W", (("gpus.*.power_w", "GPU {}"),)),
        HardwareChart("gpu-temperature", "GPU temperature", "°C", (("gpus.*.temperature_c", "GPU {}"),), bottom=None),
        HardwareChart(
            "gpu-controller",
            "GPU memory controller",
            "% busy",
            (("gpus.*.memory_controller_percent", "GPU {}"),),
            bottom=0.0,
            top=100.0,
        ),
        HardwareChart("gpu-clock", "GPU clock", "MHz", (("gpus.*.clock_sm_mhz", "GPU {}"),)),
        HardwareChart("gpu-memory-clock", "GPU memory clock", "MHz", (("gpus.*.clock_memory_mhz", "GPU {}"),)),
        HardwareChart("gpu-fan", "GPU fan", "%", (("gpus.*.fan_percent", "GPU {}"),), bottom=0.0, top=100.0),
        HardwareChart("gpu-memory-total", "GPU memory in all", "bytes", (("gpus.*.memory_total_bytes", "GPU {}"),)),
    ),
    "Processes, and the monitor itself": (
        HardwareChart(
            "processes", "Processes and threads", "number", (("processes", "processes"), ("threads", "threads"))
        ),
        HardwareChart("role-processes", "Processes by role", "number", (("roles.*.processes", "{}"),)),
        HardwareChart("monitor", "CPU time of the monitor", "CPU seconds", (("monitor_cpu_s", "monitor"),)),
    ),
}


def hardware_charts(run: RunFiles) -> dict[str, list[LineChart]]:
    """Return the charts of every hardware series, by subject; those without values are left out."""
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
        single = HardwareChart(f"other-{place}", name, "as recorded", ((name, name),), bottom=None)
        line = Line(name, series[name].x, series[name].y)
        title = "Other series" if len(others) <= MAX_OTHERS else f"Other series, {MAX_OTHERS} of {len(others):,}"
        subjects.setdefault(title, []).append(_chart(single, [line]))
    return subjects


def _matching(chart: HardwareChart, series: Mapping[str, Series]) -> list[tuple[str, Line]]:
    """Return the series that belong to a chart, with their names."""
    found: list[tuple[str, Line]] = []
    for pattern, label in chart.series:
        expression = re.compile(re.escape(pattern).replace(r"\*", "(.+)"), re.DOTALL)
        for name, values in series.items():
            if match := expression.fullmatch(name):
                text = label.replace("{}", match[1]) if match.groups() else label
                y = [value * chart.scale for value in values.y]
                found.append((name, Line(text, values.x, y, colour=len(found), dash=len(found) // MANY)))
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
    drawn = LineChart(chart.name, chart.title, unit, "minutes", tuple(lines), chart.bottom, chart.top, is_sampled=True)
    return over_time(means_of_neighbours(drawn) if any(len(line.x) >= MAX_POINTS for line in lines) else drawn)


def _with_mean(lines: list[Line]) -> list[Line]:
    """Return many series in one faint colour, under their mean."""
    sums: dict[float, list[float]] = {}
    for line in lines:
        for x, y in zip(line.x, line.y, strict=True):
            sums.setdefault(x, []).append(y)
    places = sorted(sums)
    mean = Line("mean", places, [sum(sums[x]) / len(sums[x]) for x in places], colour=1)
    faint = [replace(line, colour=0, dash=0, is_faint=True, in_legend=False) for line in lines[1:]]
    first = Line(f"each of {len(lines)}", lines[0].x, lines[0].y, is_faint=True)
    return [mean, first, *faint]

"""For what reasons GPUs ran slower than they could, over time."""

from __future__ import annotations

from redline.report.charts import Line, LineChart, over_time
from redline.report.row_values import members, number
from redline.report.run_clock import run_clock
from redline.report.run_files import RunFiles

SPANS = 24  # of equal time; each that has samples gives one point
MAX_LINES = 16  # reasons of all GPUs; the most frequent
NEVER = "no reason seen"


def throttling_chart(run: RunFiles) -> LineChart | None:
    """Return in what share of the samples each reason held; None where no sample tells."""
    clock = run_clock(run)
    told: dict[int, list[tuple[float, frozenset[str]]]] = {}  # GPU → minutes and reasons of each sample
    for row in run.hardware if clock is not None else []:
        for place, gpu in enumerate(members(row, "gpus")):
            reasons = gpu.get("throttle_reasons")
            if isinstance(reasons, list) and clock is not None:
                index = number(gpu, "index")
                samples = told.setdefault(place if index is None else int(index), [])
                samples.append((clock.minutes(row["unix_s"]), frozenset(str(reason) for reason in reasons)))
    moments = [minutes for samples in told.values() for minutes, _ in samples]
    first, last = min(moments, default=0.0), max(moments, default=0.0)
    found: list[tuple[float, str, list[float], list[float]]] = []
    for index, samples in sorted(told.items()):
        seen = sorted({reason for _, reasons in samples for reason in reasons}) or [NEVER]
        for reason in seen:
            x, y = _shares(samples, reason, first, (last - first) / SPANS or 1.0)
            found.append((sum(y), f"GPU {index}: {reason}", x, y))
    found = sorted(found, key=lambda line: -line[0])[:MAX_LINES]
    if not found:
        return None
    lines = tuple(Line(label, x, y, colour=place, dash=place // 8) for place, (_, label, x, y) in enumerate(found))
    unit = "% of the samples in which the reason held"
    unit += f" · {found[0][1]}" if len(found) == 1 else ""
    chart = LineChart(
        "gpu-throttling", "Reasons of GPU throttling", unit, "minutes", lines, 0.0, 100.0, is_sampled=True
    )
    return over_time(chart)


def _shares(
    samples: list[tuple[float, frozenset[str]]], reason: str, first: float, width: float
) -> tuple[list[float], list[float]]:
    """Return the middle of each span of time, and the percentage of its samples in which the reason held."""
    spans: dict[int, list[bool]] = {}
    for minutes, reasons in samples:
        spans.setdefault(min(int((minutes - first) / width), SPANS - 1), []).append(reason in reasons)
    places = sorted(spans)
    middles = [first + (place + 0.5) * width for place in places]
    return middles, [100.0 * sum(spans[place]) / len(spans[place]) for place in places]

"""Samples of hardware.jsonl as numbers: flat names, and means over a span of time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from redline.records import Row, measured

HARDWARE = "hardware.jsonl"
COUNTERS = frozenset({"unix_s", "elapsed_s", "interval_s", "cpu_s", "monitor_cpu_s"})  # a mean of them says nothing
NO_SERIES = frozenset({"schema", "watched"})
LABELS = frozenset({"index", "processes"})  # of a GPU: not measured


def flat(row: Row) -> dict[str, float]:
    """Return all numbers of a sample by dotted names, such as `core_busy.1`, `roles.learner.rss_bytes`."""
    return {
        name: value
        for key, content in row.items()
        if key not in NO_SERIES
        for name, value in _numbers(key, content, depth=0)
    }


def _numbers(name: str, value: object, *, depth: int) -> Iterator[tuple[str, float]]:
    if (number := measured(value)) is not None:
        yield name, float(number)
    elif isinstance(value, dict) and depth < 2:
        is_gpu = name.startswith("gpus.")
        for key, item in value.items():
            if not (is_gpu and key in LABELS):
                yield from _numbers(f"{name}.{key}", item, depth=depth + 1)
    elif isinstance(value, list) and depth == 0:
        for place, item in enumerate(value):
            index = item.get("index", place) if isinstance(item, dict) else place
            yield from _numbers(f"{name}.{index}", item, depth=depth + 1)


def means(rows: Iterable[Row], *, begin_unix_s: float, end_unix_s: float) -> dict[str, float]:
    """Return the mean of each number over a span; a sample counts by how much of its interval lies in it."""
    sums: dict[str, float] = {}
    weights: dict[str, float] = {}
    for row in rows:
        numbers = flat(row)
        moment, interval_s = numbers.get("unix_s"), numbers.get("interval_s")
        if moment is None or interval_s is None:
            continue
        overlap_s = min(moment, end_unix_s) - max(moment - interval_s, begin_unix_s)
        if overlap_s <= 0:
            continue
        for name, value in numbers.items():
            if name not in COUNTERS:
                sums[name] = sums.get(name, 0.0) + overlap_s * value
                weights[name] = weights.get(name, 0.0) + overlap_s
    return {name: total / weights[name] for name, total in sums.items()}

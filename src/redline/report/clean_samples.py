"""Samples of hardware.jsonl without values that cannot be right, and each moment in one of them only."""

from __future__ import annotations

from redline.monitor.hardware import FIELDS
from redline.records import Row
from redline.report.row_values import as_number

LEFT_OUT = frozenset({"schema", "watched"})  # not shown, and most of a row's bytes
MAX_DEPTH = 3  # gpus, one of them, a list of its own
SLACK_S = 0.05  # clocks are read one after the other
SAME_RECORDING_S = 0.5  # by which the start that two samples of one recording tell may differ


def tidy(row: Row) -> tuple[Row, int]:
    """Return a sample without values that cannot be right, and how many these were."""
    wrong = 0

    def keep(value: object, name: str, depth: int) -> object:
        nonlocal wrong
        if isinstance(value, list) and depth < MAX_DEPTH:
            return [keep(item, f"{name}.*", depth + 1) for item in value]
        if isinstance(value, dict) and depth < MAX_DEPTH:
            inner = {key: keep(item, f"{name}.{key if depth else '*'}", depth + 1) for key, item in value.items()}
            return {key: item for key, item in inner.items() if item is not None}
        if isinstance(value, str) and name not in FIELDS:
            return value
        plain = as_number(value)
        if plain is None or (plain < 0 and not name.endswith("temperature_c")):
            wrong += name in FIELDS
            return None
        return value

    inner = {key: keep(value, key, 0) for key, value in row.items() if key not in LEFT_OUT}
    return {key: value for key, value in inner.items() if value is not None}, wrong


def disjoint(rows: list[Row]) -> tuple[list[Row], list[str]]:
    """Cut each interval where the sample before ended, so that no time counts twice; rows are in order."""
    kept: list[Row] = []
    overlap_s = 0.0
    for row in rows:
        free_s = row["unix_s"] - kept[-1]["unix_s"] if kept else row["interval_s"]
        if free_s < row["interval_s"] - SLACK_S:
            overlap_s += row["interval_s"] - free_s
        if free_s > 0:
            kept.append({**row, "interval_s": min(row["interval_s"], free_s)})
    if overlap_s == 0:
        return kept, []
    return kept, [
        f"hardware.jsonl: samples overlap by {overlap_s:,.1f} s, as if two monitors had written it or the clock had "
        "been set back; that time counts once in means, and may count twice in CPU seconds."
    ]


def recordings(rows: list[Row]) -> list[list[Row]]:
    """Return the rows of each recording; all of one tell the same start, `unix_s` − `elapsed_s`."""
    starts = sorted((row["unix_s"] - (as_number(row.get("elapsed_s")) or 0.0), place) for place, row in enumerate(rows))
    if not all("elapsed_s" in row for row in rows):
        return [rows] if rows else []
    found: list[list[int]] = []
    last_s = -float("inf")
    for start_s, place in starts:
        if start_s - last_s > SAME_RECORDING_S:
            found.append([])
        found[-1].append(place)
        last_s = start_s
    return [[rows[place] for place in sorted(places)] for places in found]

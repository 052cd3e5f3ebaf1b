"""Samples of a recording of any length in bounded memory: neighbours become one where there are very many."""

from __future__ import annotations

from pathlib import Path

from redline.records import Row, Scan, iterate_lines
from redline.report.clean_samples import SAME_RECORDING_S
from redline.report.row_values import as_number

MAX_SAMPLES = 20_000  # five hours at one a second; more than any chart can show
LAST_COUNTS = ("unix_s", "elapsed_s", "cpu_s", "monitor_cpu_s")
MAX_DEPTH = 3


def scan_samples(path: Path, *, max_samples: int = MAX_SAMPLES) -> tuple[Scan, int]:
    """Read all samples, or means of neighbours; return them and how many there were."""
    rows: list[Row] = []
    unreadable_lines = count = 0
    is_torn = False
    limit = 2 * max_samples
    for line, row in iterate_lines(path):
        is_whole = line.endswith(b"\n")
        if row is not None:
            count += 1
            rows.append({key: value for key, value in row.items() if key != "watched"})  # most of its bytes
            if len(rows) >= limit:
                rows = _halved(rows)
                limit = 2 * max(max_samples, len(rows))  # where few could be merged, trying at each row takes for ever
        elif is_whole:
            unreadable_lines += 1
        is_torn = row is None and not is_whole
    return Scan(rows=rows, unreadable_lines=unreadable_lines, is_torn=is_torn), count


def _halved(rows: list[Row]) -> list[Row]:
    halved = []
    place = 0
    while place < len(rows):
        pair = rows[place : place + 2]
        are_one = len(pair) == 2 and _are_neighbours(*pair)
        halved.append(_merged(*pair) if are_one else pair[0])
        place += 2 if are_one else 1
    return halved


def _are_neighbours(before: Row, after: Row) -> bool:
    """Tell whether two samples follow each other in one recording."""
    if any(as_number(row.get(key)) is None for row in (before, after) for key in ("unix_s", "interval_s", "elapsed_s")):
        return False
    starts_s = [row["unix_s"] - row["elapsed_s"] for row in (before, after)]
    gap_s = after["unix_s"] - after["interval_s"] - before["unix_s"]
    is_same = abs(starts_s[0] - starts_s[1]) < SAME_RECORDING_S and before.get("schema") == after.get("schema")
    return is_same and before["interval_s"] > 0 and abs(gap_s) < after["interval_s"] / 2.0


def _merged(before: Row, after: Row) -> Row:
    weights = (float(before["interval_s"]), float(after["interval_s"]))
    counts = {key: after[key] for key in LAST_COUNTS if key in after}
    blended = _blend({**before, **counts}, {**after}, weights, depth=0)
    return {**blended, "interval_s": sum(weights)} if isinstance(blended, dict) else after


def _blend(before: object, after: object, weights: tuple[float, float], *, depth: int) -> object:
    """Return the mean of numbers, also inside objects and lists; of what only one has, that."""
    if depth > MAX_DEPTH:
        return after
    if isinstance(before, dict) and isinstance(after, dict):
        if before.get("index") != after.get("index"):  # another GPU
            return after
        both = {key: _blend(before[key], after[key], weights, depth=depth + 1) for key in before if key in after}
        return {**before, **after, **both}
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [_blend(*pair, weights, depth=depth + 1) for pair in zip(before, after, strict=True)]
    old, new = as_number(before), as_number(after)
    if old is None or new is None:
        return before if after is None else after
    return after if old == new else (old * weights[0] + new * weights[1]) / sum(weights)

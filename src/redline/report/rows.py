"""Rows of a run's files, whatever they hold: usable values, unusable rows left out, and sentences on what was.

Anybody may have written the files, and a run may have been killed at any byte. Every reader of rows goes through here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from redline.jsonl import SCHEMA, Row, Scan, iterate_lines, measured, scan_records, tamed
from redline.monitor.hardware import FIELDS

UNIX_S = (1e9, 1e11)  # a clock that was never set lies outside
MAX_TEXT_CHARACTERS = 500
SAMPLE_DEPTH = 3  # gpus, one of them, a list of its own
LEFT_OUT = frozenset({"schema", "watched"})  # not shown, and most of a sample's bytes
MAX_SAMPLES = 20_000  # five hours at one a second; more than any chart can show
LAST_COUNTS = ("unix_s", "elapsed_s", "cpu_s", "monitor_cpu_s")
CLOCK_SLACK_S = 0.05  # clocks are read one after the other
ORDER_SLACK_S = 1.0  # rows of several processes may be written in another order than they happened
SAME_RECORDING_S = 0.5  # by which the start that two samples of one recording tell may differ

NEEDED: Mapping[str, tuple[str, ...]] = {
    "metrics": ("unix_s", "time_s", "steps"),
    "episodes": ("unix_s", "return"),
    "events": ("event",),
    "hardware": ("unix_s", "interval_s"),
}
# numbers, or null where there is nothing to tell
OPTIONAL: Mapping[str, tuple[str, ...]] = {
    "metrics": ("updates", "samples", "samples_per_step", "steps_per_s", "updates_per_s", "cpu_percent", "rss_bytes"),
    "episodes": ("steps", "time_s", "length_steps", "begun_unix_s", "lane", "evaluation"),
    "events": ("unix_s", "steps", "time_s", "duration_s", "stalled_s"),
}


def as_number(value: object) -> float | None:
    """Return a finite number, None for anything else."""
    found = measured(value)
    return None if found is None else float(found)


def number(row: Mapping[str, Any], key: str) -> float | None:
    """Return a field that is a number."""
    return as_number(row.get(key))


def numbers(rows: list[Row], key: str) -> list[float]:
    """Return a field of all rows in which it is a number."""
    return [value for row in rows if (value := as_number(row.get(key))) is not None]


def moment(row: Mapping[str, Any]) -> float | None:
    """Return when a row was written, None where its clock can't be right."""
    return as_moment(row.get("unix_s"))


def as_moment(value: object) -> float | None:
    """Return a time of the wall clock, None where it can't be one."""
    unix_s = as_number(value)
    return unix_s if unix_s is not None and UNIX_S[0] <= unix_s <= UNIX_S[1] else None


def text(row: Mapping[str, Any], key: str) -> str | None:
    """Return a field that is a text, on one line."""
    value = row.get(key)
    return one_line(value) if isinstance(value, str) else None


def role_of(episode: Mapping[str, Any]) -> str:
    """Return who played an episode; foreign code may not tell, and then it was played while training."""
    return text(episode, "role") or "actor"


def one_line(value: str) -> str:
    """Return a text without line breaks and control characters, and not endless."""
    short = value[: MAX_TEXT_CHARACTERS + 1]
    plain = "".join(character if character.isprintable() else " " for character in short).strip()
    return f"{plain[:MAX_TEXT_CHARACTERS]}…" if len(short) > MAX_TEXT_CHARACTERS else plain


def members(row: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the objects of a field that is a list of them."""
    value = row.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def part(row: Mapping[str, Any] | None, key: str) -> Mapping[str, Any]:
    """Return a field that is an object, {} for anything else."""
    value = None if row is None else row.get(key)
    return value if isinstance(value, dict) else {}


def setting(run: Mapping[str, Any] | None, name: str) -> object:
    """Return a setting of run.json by its dotted name, None where it has none."""
    value: object = part(run, "config")
    for key in name.split("."):
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


@dataclass(frozen=True)
class Cleaned:
    """Rows in the order of time, and what is wrong with their file."""

    rows: list[Row]
    problems: list[str]
    is_damaged: bool = False  # whether there was more in the file than these rows tell


def read_rows(folder: Path, kind: str) -> Cleaned | None:
    """Read `<kind>.jsonl`; None where there is none."""
    path = folder / f"{kind}.jsonl"
    try:
        if not path.exists():
            return None
        if not path.is_file():  # a pipe would block
            return Cleaned([], [f"{path.name} is not a file and was not read."], is_damaged=True)
        scan, count = scan_samples(path) if kind == "hardware" else (scan_records(path), None)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        return Cleaned([], [f"{path.name} cannot be read: {why}."], is_damaged=True)
    problems = []
    if count is not None and count > len(scan.rows):
        problems.append(
            f"{path.name}: {count:,} samples were averaged to {len(scan.rows):,}, "
            "so peaks are a little lower than they were."
        )
    if scan.unreadable_lines:
        problems.append(f"{path.name}: {_skipped(scan.unreadable_lines, 'unreadable line')}.")
    if scan.is_torn:
        problems.append(f"{path.name}: the last line is cut off: the run was killed or is still writing.")
    if not scan.rows:
        problems.append(f"{path.name} holds no rows.")
    cleaned = clean(scan.rows, kind)
    is_damaged = scan.unreadable_lines > 0 or scan.is_torn or cleaned.is_damaged
    return Cleaned(cleaned.rows, problems + cleaned.problems, is_damaged)


def clean(rows: list[Row], kind: str) -> Cleaned:
    """Leave out rows and values that cannot be right, and bring the rest in the order of time."""
    name = f"{kind}.jsonl"
    ours = [row for row in rows if row.get("schema", SCHEMA) == SCHEMA]
    found = [_without_impossible(row) if kind == "hardware" else _without_text(row, OPTIONAL[kind]) for row in ours]
    kept = [row for row, _ in found if _is_usable(row, kind)]
    problems = []
    if foreign := len(rows) - len(ours):
        problems.append(f"{name}: {_skipped(foreign, 'line', ' of another version of Redline')}.")
    if lost := len(ours) - len(kept):
        problems.append(f"{name}: {_skipped(lost, 'line', f' without a usable {_any_of(NEEDED[kind])}')}.")
    if wrong := sum(count for _, count in found):
        problems.append(f"{name}: {_skipped(wrong, 'invalid value')}.")
    if kind == "events":  # a log: its order is that of the file
        return Cleaned(kept, problems, len(kept) < len(rows))
    ordered, told = _in_order(kept, name)
    if kind == "hardware":
        ordered, overlaps = _disjoint(ordered)
        told += overlaps
    return Cleaned(ordered, problems + told, len(kept) < len(rows))


def _skipped(count: int, what: str, which: str = "") -> str:
    return f"1 {what}{which} was skipped" if count == 1 else f"{count:,} {what}s{which} were skipped"


def _any_of(names: tuple[str, ...]) -> str:
    return " or ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def _is_usable(row: Row, kind: str) -> bool:
    if kind == "events":
        return isinstance(row.get("event"), str)
    if moment(row) is None or any(number(row, key) is None for key in NEEDED[kind]):
        return False
    return kind != "hardware" or bool(row["interval_s"] > 0)


def _without_text(row: Row, names: tuple[str, ...]) -> tuple[Row, int]:
    """Return a row without what is no number where a number belongs, and how many such there were."""
    plain = tamed(row)
    wrong = [key for key in names if plain.get(key) is not None and as_number(plain[key]) is None]
    for key in wrong:
        del plain[key]
    return plain, len(wrong)


def _in_order(rows: list[Row], name: str) -> tuple[list[Row], list[str]]:
    """Sort rows by training time where all tell it, which no clock can turn back, else by the wall clock."""
    key = "time_s" if rows and all(number(row, "time_s") is not None for row in rows) else "unix_s"
    problems = []
    if _largest_step_back(rows, key) > ORDER_SLACK_S:
        problems.append(f"{name}: lines were out of order and have been sorted.")
    ordered = sorted(rows, key=lambda row: float(row[key]))
    single = [row for place, row in enumerate(ordered) if place == 0 or row != ordered[place - 1]]
    if twice := len(ordered) - len(single):
        problems.append(f"{name}: {_skipped(twice, 'duplicate line')}.")
    back_s = _largest_step_back(single, "unix_s")
    if back_s > ORDER_SLACK_S:
        problems.append(
            f"{name}: the wall clock went back by {back_s:,.0f} s during the run; "
            "times that are found by it may be off by as much."
        )
    return single, problems


def _largest_step_back(rows: list[Row], key: str) -> float:
    return max((before[key] - after[key] for before, after in pairwise(rows)), default=0.0)


def _without_impossible(row: Row) -> tuple[Row, int]:
    """Return a sample without values that cannot be right, and how many these were."""
    wrong = 0

    def keep(value: object, name: str, depth: int) -> object:
        nonlocal wrong
        if isinstance(value, list) and depth < SAMPLE_DEPTH:
            return [keep(item, f"{name}.*", depth + 1) for item in value]
        if isinstance(value, dict) and depth < SAMPLE_DEPTH:
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


def _disjoint(rows: list[Row]) -> tuple[list[Row], list[str]]:
    """Cut each interval where the sample before ended, so that no time counts twice; rows are in order."""
    kept: list[Row] = []
    overlap_s = 0.0
    for row in rows:
        free_s = row["unix_s"] - kept[-1]["unix_s"] if kept else row["interval_s"]
        if free_s < row["interval_s"] - CLOCK_SLACK_S:
            overlap_s += row["interval_s"] - free_s
        if free_s > 0:
            kept.append({**row, "interval_s": min(row["interval_s"], free_s)})
    if overlap_s == 0:
        return kept, []
    return kept, [
        f"hardware.jsonl: samples overlap by {overlap_s:,.1f} s (two monitors, or a clock that was set back); "
        "that time counts once in means, and may count twice in CPU seconds."
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
    if depth > SAMPLE_DEPTH:
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

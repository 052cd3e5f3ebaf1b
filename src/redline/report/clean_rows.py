"""Rows of a run's records that a report can count on, and sentences on those that it leaves out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from redline.records import SCHEMA, Row, scan_records
from redline.report.clean_samples import disjoint, tidy
from redline.report.long_recording import scan_samples
from redline.report.row_values import as_number, moment, number, without_depth

SLACK_S = 1.0  # rows of several processes may be written in another order than they happened

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
            return Cleaned([], [f"{path.name} is no file, so it is not read."], is_damaged=True)
        scan, count = scan_samples(path) if kind == "hardware" else (scan_records(path), None)
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        return Cleaned([], [f"{path.name} cannot be read: {why}."], is_damaged=True)
    problems = []
    if count is not None and count > len(scan.rows):
        problems.append(
            f"{path.name}: {count:,} samples are many, so neighbours were averaged to {len(scan.rows):,}; "
            "peaks are a little lower than they were."
        )
    if scan.unreadable_lines:
        problems.append(f"{path.name}: {_lines(scan.unreadable_lines)} unreadable and left out.")
    if scan.is_torn:
        problems.append(f"{path.name}: the last line is cut off; the run was killed, or is still being written.")
    if not scan.rows:
        problems.append(f"{path.name} holds no rows.")
    cleaned = clean(scan.rows, kind)
    is_damaged = scan.unreadable_lines > 0 or scan.is_torn or cleaned.is_damaged
    return Cleaned(cleaned.rows, problems + cleaned.problems, is_damaged)


def clean(rows: list[Row], kind: str) -> Cleaned:
    """Leave out rows and values that cannot be right, and bring the rest in the order of time."""
    name = f"{kind}.jsonl"
    ours = [row for row in rows if row.get("schema", SCHEMA) == SCHEMA]
    found = [tidy(row) if kind == "hardware" else _without_text(row, OPTIONAL[kind]) for row in ours]
    kept = [row for row, _ in found if _is_usable(row, kind)]
    problems = []
    if foreign := len(rows) - len(ours):
        problems.append(f"{name}: {_lines(foreign)} of another version of Redline and left out.")
    if lost := len(ours) - len(kept):
        problems.append(f"{name}: {_lines(lost)} without a usable {_any_of(NEEDED[kind])} and left out.")
    if wrong := sum(count for _, count in found):
        values = "1 value is no number" if wrong == 1 else f"{wrong:,} values are no numbers"
        problems.append(f"{name}: {values} that could be right and left out.")
    if kind == "events":  # a log: its order is that of the file
        return Cleaned(kept, problems, len(kept) < len(rows))
    ordered, told = _in_order(kept, name)
    if kind == "hardware":
        ordered, overlaps = disjoint(ordered)
        told += overlaps
    return Cleaned(ordered, problems + told, len(kept) < len(rows))


def _lines(count: int) -> str:
    return "1 line is" if count == 1 else f"{count:,} lines are"


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
    plain: Row = {key: without_depth(value, depth=1) for key, value in row.items()}
    wrong = [key for key in names if plain.get(key) is not None and as_number(plain[key]) is None]
    for key in wrong:
        del plain[key]
    return plain, len(wrong)


def _in_order(rows: list[Row], name: str) -> tuple[list[Row], list[str]]:
    """Sort rows by training time where all tell it, which no clock can turn back, else by the wall clock."""
    key = "time_s" if rows and all(number(row, "time_s") is not None for row in rows) else "unix_s"
    problems = []
    if _largest_step_back(rows, key) > SLACK_S:
        problems.append(f"{name}: the lines are not in the order of time, so they were sorted.")
    ordered = sorted(rows, key=lambda row: float(row[key]))
    single = [row for place, row in enumerate(ordered) if place == 0 or row != ordered[place - 1]]
    if twice := len(ordered) - len(single):
        what = "1 line stands there twice and counts" if twice == 1 else f"{twice:,} lines stand there twice and count"
        problems.append(f"{name}: {what} once.")
    back_s = _largest_step_back(single, "unix_s")
    if back_s > SLACK_S:
        problems.append(
            f"{name}: the wall clock went back by {back_s:,.0f} s in the middle of the run; "
            "what is found by the wall clock may be off by as much."
        )
    return single, problems


def _largest_step_back(rows: list[Row], key: str) -> float:
    return max((before[key] - after[key] for before, after in pairwise(rows)), default=0.0)

"""Reads the rows of a run's files: keeps what is usable, leaves out the rest, and says what it left out.

Anybody may have written the files, and a run may have been killed at any byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from sys import intern
from typing import Any

from redline.files import reason_of
from redline.jsonl import LARGEST, SCHEMA, Row, iterate_lines, measured, plain_text, tamed
from redline.monitor.hardware import COUNTERS, FIELDS, NO_SERIES, leaves

UNIX_S = (1e9, 1e11)  # a clock that was never set is outside
MAX_TEXT_CHARACTERS = 500
MAX_SAMPLES = 20_000  # five hours at one a second; more than any chart can show
CLOCK_SLACK_S = 0.05  # clocks are read one after the other
ORDER_SLACK_S = 1.0  # several processes may write rows out of order
SAME_RECORDING_S = 0.5  # most by which the starts of two samples of one recording differ
THROTTLED = "throttled."  # prefix of throttle reasons: `throttled.0.sw_power_cap`

NEEDED: Mapping[str, tuple[str, ...]] = {
    "metrics": ("unix_s", "time_s", "steps"),
    "episodes": ("unix_s", "return"),
    "events": ("event",),
    "hardware": ("unix_s", "interval_s"),
}
# numbers or null
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


def numbers(rows: Iterable[Row], key: str) -> list[float]:
    """Return a field of all rows in which it is a number."""
    return [value for row in rows if (value := as_number(row.get(key))) is not None]


def moment(row: Mapping[str, Any], key: str = "unix_s") -> float | None:
    """Return a time of the wall clock; None where it can't be one."""
    unix_s = number(row, key)
    return unix_s if unix_s is not None and UNIX_S[0] <= unix_s <= UNIX_S[1] else None


def text(row: Mapping[str, Any], key: str) -> str | None:
    """Return a field that is a text, on one line."""
    value = row.get(key)
    return one_line(value) if isinstance(value, str) else None


def role_of(episode: Mapping[str, Any]) -> str:
    """Return the role that played an episode: the actor if none is given."""
    return text(episode, "role") or "actor"


def one_line(value: str) -> str:
    """Return a text as one line of limited length, without control characters."""
    return plain_text(value, MAX_TEXT_CHARACTERS).strip()


def members(row: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the objects in a field that is a list."""
    value = row.get(key)
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def part(row: Mapping[str, Any] | None, key: str) -> Mapping[str, Any]:
    """Return a field that is an object, {} for anything else."""
    value = None if row is None else row.get(key)
    return value if isinstance(value, dict) else {}


def setting(run: Mapping[str, Any] | None, name: str) -> object:
    """Return a setting of run.json by its dotted name, None where it has none."""
    *outer, last = name.split(".")
    found = part(run, "config")
    for key in outer:
        found = part(found, key)
    return found.get(last)


@dataclass(frozen=True)
class RowFile:
    """The usable rows of a file in the order of time, and what is wrong with it.

    A sample of hardware.jsonl is flat: its numbers by dotted names, such as `gpus.0.power_w`.
    """

    rows: list[Row]
    problems: list[str]
    is_damaged: bool = False  # whether the file held more than these rows


def read_rows(folder: Path, kind: str, *, watch: Callable[[Row], None] = lambda row: None) -> RowFile | None:
    """Read `<kind>.jsonl`; None if there is no such file. `watch` gets each row as it was written."""
    path = folder / f"{kind}.jsonl"
    try:
        if not path.exists():
            return None
        if not path.is_file():  # a pipe would block
            return RowFile([], [f"{path.name} is not a file and was not read."], is_damaged=True)
        return collect(iterate_lines(path), kind, watch=watch)
    except OSError as error:
        return RowFile([], [f"{path.name} cannot be read: {reason_of(error)}."], is_damaged=True)


def collect(
    lines: Iterable[tuple[bytes, Row | None]],
    kind: str,
    *,
    max_samples: int = MAX_SAMPLES,
    watch: Callable[[Row], None] = lambda row: None,
) -> RowFile:
    """Keep the usable rows of a file's lines; very many samples are averaged in pairs."""
    rows: list[Row] = []
    unreadable = foreign = unusable = wrong = parsed = 0
    is_torn = False
    limit = 2 * max_samples
    for line, row in lines:
        is_torn = row is None and not line.endswith(b"\n")
        unreadable += row is None and not is_torn
        if row is None:
            continue
        parsed += 1
        if row.get("schema", SCHEMA) != SCHEMA:
            foreign += 1
            continue
        watch(row)
        plain, dropped = flat_sample(row) if kind == "hardware" else _without_text(row, OPTIONAL[kind])
        wrong += dropped
        if not _is_usable(plain, kind):
            unusable += 1
            continue
        rows.append(plain)
        if kind == "hardware" and len(rows) >= limit:
            rows = _halved(rows)
            limit = 2 * max(max_samples, len(rows))  # if few could be merged, trying again at each row takes forever
    told = [
        _skipped(unreadable, "unreadable line"),
        _skipped(foreign, "line", " of another version of Redline"),
        _skipped(unusable, "line", f" without a usable {' or '.join(NEEDED[kind])}"),
        _skipped(wrong, "invalid value"),
    ]
    if is_torn:
        told.append("the last line is cut off: the run was killed or is still writing")
    if not parsed:
        told.append("there are no rows")
    if len(rows) < parsed - foreign - unusable:
        told.append(f"{parsed:,} samples were averaged to {len(rows):,}, so peaks are a little lower than they were")
    is_damaged = is_torn or unreadable + foreign + unusable > 0
    if kind != "events":  # a log: its order is that of the file
        rows = _in_order(rows, told)
    if kind == "hardware":
        rows = _disjoint(rows, told)
    return RowFile(rows, [f"{kind}.jsonl: {sentence}." for sentence in told if sentence], is_damaged)


def usable_numbers(row: Row, kind: str) -> dict[str, float] | None:
    """Return the numbers of a row by name; None if the row is of another version or lacks what its file needs."""
    if row.get("schema", SCHEMA) != SCHEMA:
        return None
    if kind == "hardware":
        found = flat_sample(row)[0]
    else:
        found = {key: value for key, value in row.items() if type(value) in (int, float) and -LARGEST < value < LARGEST}
    return found if _is_usable(found, kind) else None


def _skipped(count: int, what: str, which: str = "") -> str:
    if not count:
        return ""
    return f"1 {what}{which} was skipped" if count == 1 else f"{count:,} {what}s{which} were skipped"


def _is_usable(row: Row, kind: str) -> bool:
    if kind == "events":
        return isinstance(row.get("event"), str)
    if moment(row) is None or any(number(row, key) is None for key in NEEDED[kind]):
        return False
    return kind != "hardware" or bool(row["interval_s"] > 0)


def _without_text(row: Row, names: tuple[str, ...]) -> tuple[Row, int]:
    """Return a row without fields that should be numbers and are not, and how many there were."""
    plain = tamed(row)
    wrong = [key for key in names if plain.get(key) is not None and as_number(plain[key]) is None]
    for key in wrong:
        del plain[key]
    return plain, len(wrong)


def flat_sample(row: Row) -> tuple[Row, int]:
    """Return the numbers of a sample by dotted names, and how many values of known fields are invalid."""
    found: Row = {}
    wrong = 0
    others: Row = {}
    for key, value in row.items():  # most are plain numbers, and a day has many rows
        if type(value) is float and 0.0 <= value < LARGEST and key not in NO_SERIES:
            found[intern(key)] = value
        else:
            others[key] = value
    for name, field, value in leaves(others):
        if type(value) is float and 0.0 <= value < LARGEST:
            found[intern(name)] = value
            continue
        plain = as_number(value)
        if field == "gpus.*.throttle_reasons" and isinstance(value, list):
            gpu = f"{THROTTLED}{name.split('.')[1]}"
            found |= {gpu: float(len(value))} | {f"{gpu}.{reason}": 1.0 for reason in value}
        elif plain is not None and (plain >= 0 or name.endswith("temperature_c")):
            found[intern(name)] = plain  # one string for all samples
        else:
            wrong += field in FIELDS
    return found, wrong


def _in_order(rows: list[Row], told: list[str]) -> list[Row]:
    """Sort rows by training time if all have it, since no clock can turn it back; else by the wall clock."""
    key = "time_s" if rows and all(number(row, "time_s") is not None for row in rows) else "unix_s"
    if _largest_step_back(rows, key) > ORDER_SLACK_S:
        told.append("lines were out of order and have been sorted")
    ordered = sorted(rows, key=lambda row: float(row[key]))
    single = [row for place, row in enumerate(ordered) if place == 0 or row != ordered[place - 1]]
    told.append(_skipped(len(ordered) - len(single), "duplicate line"))
    back_s = _largest_step_back(single, "unix_s")
    if back_s > ORDER_SLACK_S:
        told.append(
            f"the wall clock went back by {back_s:,.0f} s during the run; "
            "times that are found by it may be off by as much"
        )
    return single


def _largest_step_back(rows: list[Row], key: str) -> float:
    return max((before[key] - after[key] for before, after in pairwise(rows)), default=0.0)


def _disjoint(rows: list[Row], told: list[str]) -> list[Row]:
    """Cut each interval at the end of the one before, so that no time counts twice; rows are in order."""
    kept: list[Row] = []
    overlap_s = 0.0
    for row in rows:
        free_s = row["unix_s"] - kept[-1]["unix_s"] if kept else row["interval_s"]
        if free_s < row["interval_s"] - CLOCK_SLACK_S:
            overlap_s += row["interval_s"] - free_s
        if free_s > 0:
            kept.append({**row, "interval_s": min(row["interval_s"], free_s)})
    if overlap_s:
        told.append(
            f"samples overlap by {overlap_s:,.1f} s (two monitors, or a clock that was set back); "
            "that time counts once in means, and may count twice in CPU seconds"
        )
    return kept


def _halved(rows: list[Row]) -> list[Row]:
    """Merge pairs of consecutive samples of one recording."""
    halved: list[Row] = []
    is_merged = True
    for row in rows:
        if is_merged or not _are_neighbours(halved[-1], row):
            halved.append(row)
            is_merged = False
        else:
            halved[-1] = _merged(halved[-1], row)
            is_merged = True
    return halved


def _are_neighbours(before: Row, after: Row) -> bool:
    if "elapsed_s" not in before or "elapsed_s" not in after:
        return False
    starts_s = [row["unix_s"] - row["elapsed_s"] for row in (before, after)]
    gap_s = after["unix_s"] - after["interval_s"] - before["unix_s"]
    return bool(abs(starts_s[0] - starts_s[1]) < SAME_RECORDING_S and abs(gap_s) < after["interval_s"] / 2.0)


def _merged(before: Row, after: Row) -> Row:
    """Return the interval-weighted means of two samples; for counters and fields of only one, the last value."""
    old_s, new_s = before["interval_s"], after["interval_s"]
    total_s = old_s + new_s
    both = before.keys() & after.keys() - COUNTERS
    means = {name: (before[name] * old_s + after[name] * new_s) / total_s for name in both}
    return {**before, **after, **means, "interval_s": total_s}

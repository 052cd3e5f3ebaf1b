"""The tables of a run: its settings, what of them was changed, and what happened."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from redline.report.rows import members, moment, number, one_line, part
from redline.report.run_clock import run_clock
from redline.report.run_files import RunFiles

# how an adjustment is written down: `setting: requested → effective (why)`
ADJUSTMENT = re.compile(r"(?P<setting>[^:]*): (?P<requested>.*?) → (?P<effective>.*?)(?: \((?P<why>.*)\))?", re.DOTALL)
MAX_ADJUSTMENT_CHARACTERS = 2_000
NO_DETAILS = frozenset({"schema", "event", "unix_s", "time_s", "steps"})


@dataclass(frozen=True)
class Change:
    """A setting that is in force otherwise than asked for, or than before a resume."""

    when: str  # "start", "resume at 8,000 steps", "at 8,000 steps"
    setting: str  # as on the command line; empty where the text tells no more than that something was changed
    requested: str
    effective: str
    why: str


@dataclass(frozen=True)
class SettingsTable:
    """Every setting in force, by its dotted name, and the changes in the order of time."""

    settings: list[tuple[str, str]]
    changes: list[Change]


@dataclass(frozen=True)
class EventLine:
    """One row of events.jsonl, for reading."""

    minutes: float | None  # since the start of the run, pauses left out
    unix_s: float | None
    steps: int | None
    event: str
    details: str  # the other fields, as text


def settings_table(run: RunFiles) -> SettingsTable:
    """Return the settings of run.json, and what was requested → effective."""
    facts = run.run or {}
    # with the steps at which each was made: a resume can come before or after an adjustment on the way
    changes = [(0.0, parse_adjustment(item, "start")) for item in _texts(facts, "adjustments")]
    for resume in members(facts, "resumes"):
        when, steps = f"resume{_at(resume)}", number(resume, "steps") or 0.0
        changes += [(steps, _asked_for(name, value, when)) for name, value in part(resume, "changes").items()]
        changes += [(steps, parse_adjustment(item, when)) for item in _texts(resume, "adjustments")]
    changes += [
        (number(row, "steps") or 0.0, parse_adjustment(row["message"], _at(row).strip()))
        for row in run.events
        if row["event"] == "adjustment" and isinstance(row.get("message"), str)
    ]
    in_order = [change for _, change in sorted(changes, key=lambda item: item[0])]
    return SettingsTable(list(_flatten(part(facts, "config"))), in_order)


def event_table(run: RunFiles) -> list[EventLine]:
    """Return all events in the order in which they were written."""
    clock = run_clock(run)
    return [_event_line(row, None if clock is None else clock.minutes) for row in run.events]


def parse_adjustment(adjustment: str, when: str) -> Change:
    """Return an adjustment by its parts; one that is written otherwise is all reason."""
    found = ADJUSTMENT.fullmatch(adjustment[:MAX_ADJUSTMENT_CHARACTERS])
    if found is None:
        return Change(when, "", "", "", one_line(adjustment))
    parts = {name: one_line(value or "") for name, value in found.groupdict().items()}
    return Change(when, **{**parts, "setting": _as_flag(parts["setting"])})


def _event_line(row: Mapping[str, Any], minutes_at: Callable[[float], float] | None) -> EventLine:
    unix_s, steps = moment(row), number(row, "steps")
    details = [f"{key} {_shown(value)}" for key, value in row.items() if key not in NO_DETAILS and value is not None]
    return EventLine(
        minutes=None if unix_s is None or minutes_at is None else minutes_at(unix_s),
        unix_s=unix_s,
        steps=None if steps is None else int(steps),
        event=one_line(str(row["event"])),
        details=" · ".join(details),
    )


def _asked_for(name: str, value: object, when: str) -> Change:
    before, arrow, after = one_line(str(value)).partition(" → ")
    if not arrow:
        return Change(when, _as_flag(name), before, before, "asked for by the resume")
    return Change(when, _as_flag(name), after, after, f"asked for by the resume; {before} before")


def _as_flag(name: str) -> str:
    """Return the name of a setting as it is written on the command line."""
    return one_line(name).replace("_", "-")


def _at(row: Mapping[str, Any]) -> str:
    steps = number(row, "steps")
    return "" if steps is None else f" at {steps:,.0f} steps"


def _texts(row: Mapping[str, Any], key: str) -> list[str]:
    value = row.get(key)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _flatten(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in settings.items():
        if isinstance(value, dict) and value:
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield _as_flag(f"{prefix}{key}"), _shown(value)


def _shown(value: object) -> str:
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return one_line(f"{value:,}") if abs(value) < 10**30 else "a huge number"
    return one_line(json.dumps(value, ensure_ascii=False, default=str))

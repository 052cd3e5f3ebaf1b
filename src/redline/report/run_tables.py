"""The tables of a run: its settings, what of them was changed, and what happened."""

from __future__ import annotations

from dataclasses import dataclass

from redline.report.run_files import RunFiles


@dataclass(frozen=True)
class Change:
    """A setting that is in force otherwise than asked for, or than before a resume."""

    when: str  # "start", "resume at 8,000 steps", "at 8,000 steps"
    setting: str
    requested: str
    effective: str
    why: str  # empty where it was asked for by a resume


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
    raise NotImplementedError


def event_table(run: RunFiles) -> list[EventLine]:
    """Return all events in the order of time."""
    raise NotImplementedError

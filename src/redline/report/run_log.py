"""A run's settings and their changes, its events, and where its time went."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from redline.jsonl import Row
from redline.report.rows import as_number, members, moment, number, one_line, part, setting, text
from redline.report.run_files import RunFiles
from redline.runs.run_json import flat_settings

# `setting: requested → effective (why)`
ADJUSTMENT = re.compile(r"(?P<setting>[^:]*): (?P<requested>.*?) → (?P<effective>.*?)(?: \((?P<why>.*)\))?", re.DOTALL)
MAX_ADJUSTMENT_CHARACTERS = 2_000
NO_DETAILS = frozenset({"schema", "event", "unix_s", "time_s", "steps"})
MAX_ROLES = 200  # of a hostile file
MAX_PHASES = 200  # of a process
SHARES_OVER_S = 10.0  # span of the shares in a row of metrics.jsonl


class Change(NamedTuple):
    """A setting whose effective value differs from the requested one, or from that before a resume."""

    when: str  # "start", "resume at 8,000 steps", "at 8,000 steps"
    setting: str  # as on the command line; empty where the text names none
    requested: str
    effective: str
    why: str


class EventLine(NamedTuple):
    """One row of events.jsonl as a page shows it."""

    minutes: float | None  # since the start of the run, pauses left out
    steps: float | None
    event: str
    details: str  # the other fields, as text


def settings_of(run: RunFiles) -> list[tuple[str, str]]:
    """Return every effective setting by its name on the command line."""
    return [(_as_flag(name), _shown(value)) for name, value in flat_settings(part(run.run, "config"))]


def changes_of(run: RunFiles) -> list[Change]:
    """Return all changes requested → effective, in order of time."""
    facts = run.run or {}
    # each with its steps: adjustments can be made before and after a resume
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
    return [change for _, change in sorted(changes, key=lambda item: item[0])]


def event_table(run: RunFiles) -> list[EventLine]:
    """Return all events in the order of the file."""
    return [event_line(row, run.clock.minutes) for row in run.events]


def event_line(row: Row, minutes_of: Callable[[float], float]) -> EventLine:
    """Return an event as a line of a table."""
    unix_s = moment(row)
    told = {key: value for key, value in row.items() if key not in NO_DETAILS and value is not None}
    details = [f"{one_line(key)} {_shown(value)}" for key, value in told.items()]
    minutes = None if unix_s is None else minutes_of(unix_s)
    return EventLine(minutes, number(row, "steps"), one_line(row["event"]), " · ".join(details))


def parse_adjustment(adjustment: str, when: str) -> Change:
    """Return the parts of an adjustment; any other text becomes the reason."""
    found = ADJUSTMENT.fullmatch(adjustment[:MAX_ADJUSTMENT_CHARACTERS])
    if found is None:
        return Change(when, "", "", "", one_line(adjustment))
    parts = {name: one_line(value or "") for name, value in found.groupdict().items()}
    return Change(when, **{**parts, "setting": _as_flag(parts["setting"])})


def _asked_for(name: str, value: object, when: str) -> Change:
    before, arrow, after = one_line(str(value)).partition(" → ")
    if not arrow:
        return Change(when, _as_flag(name), before, before, "set by the resume")
    return Change(when, _as_flag(name), after, after, f"set by the resume, {before} before")


def _as_flag(name: str) -> str:
    """Return the name of a setting as it is written on the command line."""
    return one_line(name).replace("_", "-")


def _at(row: Mapping[str, Any]) -> str:
    steps = number(row, "steps")
    return "" if steps is None else f" at {steps:,.0f} steps"


def _texts(row: Mapping[str, Any], key: str) -> list[str]:
    value = row.get(key)
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _shown(value: object) -> str:
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return one_line(json.dumps(value, ensure_ascii=False, default=str))


@dataclass(frozen=True)
class ProcessShares:
    """How one process spent its time, as shares that add up to 1."""

    role: str
    busy: dict[str, float]  # by what it did; {} where unknown
    waiting: dict[str, float]  # by what it waited for
    unaccounted: float  # the rest of the process
    seconds: float  # of training that the shares cover


@dataclass(frozen=True)
class PhaseSplit:
    """Seconds of wall clock by phase, pauses left out, and what ran beside training."""

    phases_s: dict[str, float]  # warm-up, learning, evaluation, checkpoint, rest; {} where unknown
    beside_s: dict[str, float]  # evaluations in a process of their own
    processes: list[ProcessShares]


def phase_split(run: RunFiles) -> PhaseSplit:
    """Return where the time went; empty parts where the run's files do not say.

    `rest` is starting, ending, and training that a resume undid.
    """
    evaluation_s = sum(max(number(row, "duration_s") or 0.0, 0.0) for row in run.events if row["event"] == "evaluation")
    is_beside = setting(run.run, "topology") == "async"
    beside_s = {"evaluation": evaluation_s} if is_beside and evaluation_s else {}
    restarts_s = [
        at_s for row in run.events if row["event"] == "resume" and (at_s := number(row, "time_s")) is not None
    ]
    phases_s = _phases(run, 0.0 if is_beside else evaluation_s)
    return PhaseSplit(phases_s, beside_s, process_shares(run.metrics, restarts_s))


def warmup_seconds(run: RunFiles) -> float:
    """Return the training time of the random warm-up before the first update."""
    rows = [row for row in run.metrics if (number(row, "warmup_steps_per_s") or 0.0) > 0]
    warmup_steps = as_number(setting(run.run, "warmup_steps"))
    if not rows or not warmup_steps:
        return 0.0
    last = rows[-1]
    if not number(last, "updates"):
        return float(last["time_s"])
    return min(warmup_steps / float(last["warmup_steps_per_s"]), float(last["time_s"]))


def _phases(run: RunFiles, evaluation_s: float) -> dict[str, float]:
    if not run.metrics:
        return {}
    training_s = float(run.metrics[-1]["time_s"])
    warmup_s = warmup_seconds(run)
    within_s, stalled_s = _stalls(run.events)
    phases_s = {
        "warm-up": warmup_s,
        "learning": max(training_s - warmup_s - within_s, 0.0),
        "evaluation": evaluation_s,
        "checkpoint": stalled_s,
        "rest": run.clock.total_s - training_s - evaluation_s - (stalled_s - within_s),
    }
    return {name: seconds for name, seconds in phases_s.items() if seconds > 0}


def _stalls(events: Sequence[Row]) -> tuple[float, float]:
    """Return for how long checkpoints stalled the run: during training, and in total."""
    within_s = total_s = 0.0
    is_training = False
    for row in events:
        if row["event"] == "process":
            is_training = True  # the checkpoint of the start is written before
        elif row["event"] in ("start", "resume", "stop", "error"):
            is_training = False
        elif row["event"] == "checkpoint":
            stalled_s = max(number(row, "stalled_s") or 0.0, 0.0)
            total_s += stalled_s
            within_s += stalled_s if is_training and number(row, "time_s") else 0.0
    return within_s, total_s


def process_shares(metrics: Sequence[Row], restarts_s: Sequence[float] = ()) -> list[ProcessShares]:
    """Return the shares of each process over the run, from rows that cover different seconds of training."""
    totals = ShareTotals()
    for row, weight_s in _apart(metrics, restarts_s):
        totals.add(row, weight_s)
    return totals.shares()


class ShareTotals:
    """Adds up how the processes of a run spent their time, row by row."""

    def __init__(self) -> None:
        self._sums: dict[str, dict[tuple[str, str], float]] = {}  # role → seconds of each kind and what
        self._seconds: dict[str, float] = defaultdict(float)

    def add(self, row: Row, weight_s: float) -> None:
        """Add a row of metrics.jsonl that stands for so many seconds of training."""
        for process in members(row, "roles")[:MAX_ROLES]:
            role = text(process, "role") or "unnamed"
            if role not in self._sums and len(self._sums) >= MAX_ROLES:
                continue
            self._seconds[role] += weight_s
            totals = self._sums.setdefault(role, defaultdict(float))
            for kind in ("busy", "waiting"):
                for what, value in part(process, kind).items():
                    if (share := as_number(value)) is not None and len(totals) < MAX_PHASES:
                        totals[kind, one_line(what)] += weight_s * min(max(share, 0.0), 1.0)

    def shares(self) -> list[ProcessShares]:
        """Return the shares of each process."""
        return [_process(role, totals, self._seconds[role]) for role, totals in self._sums.items()]


def _apart(metrics: Sequence[Row], restarts_s: Sequence[float]) -> list[tuple[Row, float]]:
    """Return rows whose last 10 s do not overlap, each with the seconds it covers.

    Shares begin anew with the processes, at the start and at each resume.
    """
    found: list[tuple[Row, float]] = []
    free_s = float("inf")
    for row in reversed(metrics):
        end_s = float(row["time_s"])
        begun_s = max((at_s for at_s in (0.0, *restarts_s) if at_s < end_s), default=end_s)
        begin_s = max(end_s - SHARES_OVER_S, begun_s)
        if begin_s < end_s <= free_s and members(row, "roles"):
            found.append((row, end_s - begin_s))
            free_s = begin_s
    return found[::-1]


def _process(role: str, totals: Mapping[tuple[str, str], float], over_s: float) -> ProcessShares:
    told = sum(totals.values()) / over_s
    scale = 1.0 / max(told, 1.0) / over_s  # shares of one reading can add up to slightly more than 1
    busy, waiting = (
        {what: total * scale for (kind, what), total in totals.items() if kind == wanted}
        for wanted in ("busy", "waiting")
    )
    return ProcessShares(role, busy, waiting, max(1.0 - told, 0.0), over_s)

"""What the supervisors of a fleet wrote down: the turns of its slots, how many ran side by side, and incidents."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from redline.files import reason_of
from redline.fleet.health import HEALTH_JSONL, INCIDENT, OVER, ROW, read_incident
from redline.fleet.slots import SLOTS_JSONL
from redline.jsonl import Row, iterate_lines, tamed
from redline.report.rows import moment, number, part, text

LONGEST_GAP_S = 120.0  # between two samples of one supervisor


@dataclass(frozen=True)
class Logbook:
    """What happened to a fleet, in the order in which it was written down."""

    turns: tuple[Row, ...]  # a slot has a new state
    packing: tuple[str, ...]  # why so many ran side by side, each decision once
    incidents: tuple[Row, ...]  # as `read_incident` has them, and when those that last were over
    supervisor_share: float | None  # of a core
    supervisor_rss_bytes: float | None  # at most
    problems: tuple[str, ...]  # files that can't be read


def read_logbook(folder: Path) -> Logbook:
    """Read what is there; what can't be read is left out and told."""
    problems: list[str] = []
    turns: list[Row] = []
    packing: list[str] = []
    for row in _rows(folder / SLOTS_JSONL, problems):
        if why := text(part(row, "packing"), "why"):
            packing.append(why)
        elif text(row, "slot") and text(row, "state"):
            turns.append(row)
    incidents: list[Row] = []
    lasting: dict[tuple[str, str, float | None], Row] = {}
    costs: list[tuple[float, float, float]] = []  # of the supervisor: time, CPU seconds, memory
    for row in _rows(folder / HEALTH_JSONL, problems):
        cost = moment(row), number(row, "supervisor_cpu_s"), number(row, "supervisor_rss_bytes")
        key = str(row.get("about") or row.get("kind")), str(row.get("slot")), number(row, "attempt")
        if row.get(ROW) == INCIDENT:
            lasts = row.get("lasts") is True
            incidents.append({**read_incident(row), "lasts": lasts, "over_unix_s": None})
            if lasts:
                lasting[key] = incidents[-1]
        elif row.get(ROW) == OVER:
            lasting.pop(key, {}).update(over_unix_s=moment(row))
        elif cost[0] is not None and cost[1] is not None:
            costs.append((cost[0], cost[1], cost[2] or 0.0))
    return Logbook(
        turns=tuple(turns),
        packing=tuple(dict.fromkeys(packing)),
        incidents=tuple(incidents),
        supervisor_share=_share(costs),
        supervisor_rss_bytes=max((rss for _, _, rss in costs), default=None),
        problems=tuple(problems),
    )


def _share(costs: list[tuple[float, float, float]]) -> float | None:
    """Return CPU seconds per second; a supervisor that was started again counts from zero, and pauses don't count."""
    passed_s = used_s = 0.0
    for (before_s, old_s, _), (after_s, new_s, _) in pairwise(costs):
        if 0 < after_s - before_s < LONGEST_GAP_S and new_s >= old_s:
            passed_s, used_s = passed_s + after_s - before_s, used_s + new_s - old_s
    return used_s / passed_s if passed_s else None


def _rows(path: Path, problems: list[str]) -> Iterator[Row]:
    """Yield the rows of a file that may be long; samples of weeks would not fit into memory."""
    unreadable = 0
    try:
        for line, row in iterate_lines(path):
            if row is not None:
                yield tamed(row)
            unreadable += row is None and line.endswith(b"\n")
    except FileNotFoundError:
        return
    except OSError as error:
        problems.append(f"{path.name} can't be read: {reason_of(error)}")
    if unreadable:
        problems.append(f"{path.name}: lines left out because they can't be read: {unreadable:,}")

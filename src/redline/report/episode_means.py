"""Every episode with the means of the hardware while it was played."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from redline.monitor.hardware import COUNTERS, flat
from redline.records import Row
from redline.report.row_values import as_moment, moment, number, role_of
from redline.report.run_clock import run_clock
from redline.report.run_files import RunFiles
from redline.report.spending import Doubles

EPISODES_AT_ONCE = 4_096  # bounds the memory that many episodes take
LEAST_S = 1e-6  # what the wall clock, as a double, can tell apart

Span = tuple[float, float]


def joined_rows(run: RunFiles) -> Iterator[Row]:
    """Yield each row of episodes.jsonl with `begun_unix_s` and `hardware`: means by flat name, {} where none was read.

    An episode shorter than a sample has the values of that sample. Means that were written with the episode stay where
    hardware.jsonl has none for it.
    """
    integrals = Integrals(run.hardware)
    spans = episode_spans(run)
    for start in range(0, len(spans), EPISODES_AT_ONCE):
        rows, over = run.episodes[start : start + EPISODES_AT_ONCE], spans[start : start + EPISODES_AT_ONCE]
        for row, (begun_unix_s, _), means in zip(rows, over, integrals.means(over), strict=True):
            written = row.get("hardware")
            kept = written if isinstance(written, dict) else {}
            yield {**row, "begun_unix_s": begun_unix_s, "hardware": means or kept}


def episode_spans(run: RunFiles) -> list[Span]:
    """Return when each episode began and ended, by the wall clock.

    It began when it says so; a greedy one with its evaluation, because its rows are all written at the end; any other
    when the one before in its lane ended, or the run was started or resumed.
    """
    clock = run_clock(run)
    evaluations = _evaluation_spans(run.events)
    begins = sorted(
        unix_s for row in run.events if row["event"] in ("start", "resume") and (unix_s := moment(row)) is not None
    )
    ended: dict[tuple[str, float | None], float] = {}
    spans = []
    for row in run.episodes:
        end_s = float(row["unix_s"])
        lane = (role_of(row), number(row, "lane"))
        begin_s = ended.get(lane, end_s if clock is None else clock.begin_unix_s)
        before = np.searchsorted(begins, end_s)
        if before:
            begin_s = max(begin_s, begins[before - 1])
        told_s = as_moment(row.get("begun_unix_s"))
        evaluation = _nearest(evaluations.get(number(row, "evaluation"), []), end_s)
        if told_s is not None:
            begin_s = told_s
        elif lane[0] == "greedy" and evaluation is not None:
            begin_s = evaluation
        spans.append((min(begin_s, end_s), end_s))
        ended[lane] = end_s
    return spans


class Integrals:
    """The integral of each number of hardware.jsonl over time, from which a mean over any span is two look-ups away."""

    def __init__(self, hardware: Sequence[Row]) -> None:
        """Take samples whose intervals are disjoint and in order."""
        self._origin_s = hardware[0]["unix_s"] if hardware else 0.0
        edges: dict[str, list[float]] = {}
        values: dict[str, list[float]] = {}
        for row in hardware:
            end_s = row["unix_s"] - self._origin_s
            for name, value in flat(row).items():
                if name not in COUNTERS:
                    edges.setdefault(name, []).extend((end_s - row["interval_s"], end_s))
                    values.setdefault(name, []).append(value)
        # name → edges of the samples that hold it [2n], seconds covered [2n] and integral [2n] up to each edge
        self._by_name = {name: _sum_up(edges[name], values[name]) for name in values}

    def means(self, spans: Sequence[Span]) -> list[dict[str, float]]:
        """Return the means over each span, by the share of it that each sample covers; {} where none does."""
        times_s = np.asarray(spans, dtype=np.float64).reshape(-1, 2) - self._origin_s  # [N, begin and end]
        found: list[dict[str, float]] = [{} for _ in spans]
        for name, (edges, covered, integral) in self._by_name.items():
            covered_s = np.diff(np.interp(times_s, edges, covered))[:, 0]  # [N]
            totals = np.diff(np.interp(times_s, edges, integral))[:, 0]  # [N]
            for place in np.flatnonzero(covered_s > LEAST_S):
                found[place][name] = float(totals[place] / covered_s[place])
        return found


def _sum_up(edges: Sequence[float], values: Sequence[float]) -> tuple[Doubles, Doubles, Doubles]:
    at = np.asarray(edges, dtype=np.float64)
    widths = np.diff(at)[::2]  # [n]
    grown = np.zeros((2, 2 * len(widths)))
    grown[:, 1::2] = widths, widths * np.asarray(values)
    covered, integral = np.cumsum(grown, axis=1)
    return at, covered, integral


def _evaluation_spans(events: Sequence[Row]) -> Mapping[float | None, list[Span]]:
    """Return when the evaluations of each number began and ended; a resume may have played one again."""
    found: dict[float | None, list[Span]] = {}
    for row in events:
        end_s, duration_s, told = moment(row), number(row, "duration_s"), number(row, "number")
        if row["event"] == "evaluation" and end_s is not None and duration_s is not None and told is not None:
            found.setdefault(told, []).append((end_s - max(duration_s, 0.0), end_s))
    return found


def _nearest(spans: Sequence[Span], end_s: float) -> float | None:
    """Return the beginning of the evaluation whose end is nearest."""
    return min(spans, key=lambda span: abs(span[1] - end_s))[0] if spans else None

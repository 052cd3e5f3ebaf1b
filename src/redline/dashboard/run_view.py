"""One run as its page shows it: figures, charts, events, settings, and the rows behind the charts."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from redline.dashboard.encoding import mark_of
from redline.dashboard.index import Shown
from redline.jsonl import Row, measured, plain_text, tamed
from redline.report.charts import ShareChart
from redline.report.growing_run import GrowingRun, Kind, Metrics
from redline.report.hardware_use import Processes
from redline.report.parts import amount, share, size, span
from redline.report.rows import as_number, number, part, text
from redline.report.run_charts import DIAGNOSTICS, HARDWARE, MANY, HardwareChart, process_chart, series_of
from redline.report.run_files import RunFiles
from redline.report.run_log import changes_of, event_line, settings_of
from redline.runs.directory import RECORDINGS
from redline.units import money

MAX_EVENTS = 200  # on the page, the newest
MAX_OTHERS = 24
WHILE_RUNNING = ("time left", "cost to come")
FRESH_S = 0.2  # a run that was just read is not read again
SPEEDS = {
    "steps_per_s": ("Steps per second", "steps/s, over the last 10 s"),
    "updates_per_s": ("Updates per second", "updates/s, over the last 10 s"),
    "samples_per_step": ("Replay ratio", "samples trained per step, since the warm-up"),
}

Json = dict[str, Any]


class RunView:
    """A run that somebody looks at."""

    def __init__(self, shown: Shown) -> None:
        self.shown = shown
        self.growing = GrowingRun(shown.path)
        self.used_s = time.monotonic()
        self._read_s: dict[Collection[Kind], float] = {}
        self._marked: dict[str, tuple[object, str, Json]] = {}

    def read(self, *, budget_s: float, kinds: Collection[Kind]) -> bool:
        """Read on; return whether everything that is there was read."""
        created = measured(self.shown.run_json.get("created_unix_s"))
        done = self.growing.read(budget_s=budget_s, created_unix_s=created, kinds=kinds)
        if done:
            self._read_s[kinds] = time.monotonic()
        return done

    def was_read(self, kinds: Collection[Kind]) -> bool:
        """Whether it was read to its end a moment ago."""
        return time.monotonic() - self._read_s.get(kinds, -FRESH_S) < FRESH_S

    def marked(self, name: str, content: Callable[[], Json]) -> tuple[str, Json]:
        """Return a part of the page and a mark that changes with it; it is made anew only if it may have changed."""
        growing, shown = self.growing, self.shown
        basis = (
            *((file.tail.read_bytes, file.tail.beginnings) for file in (growing.metrics, growing.events)),
            *(len(growing.hardware.columns.names), len(growing.hardware) > 0, growing.clock),
            *(shown.stamp[:1], shown.followed.status),
        )
        known = self._marked.get(name)
        if known is None or known[0] != basis:
            made = content()
            mark = mark_of(made)
            known = self._marked[name] = (basis, mark, made | {"mark": mark})
        return known[1], known[2]

    def live(self) -> Json:
        """Return what changes while the run goes on."""
        growing, status = self.growing, self.shown.followed.status
        row = tamed(growing.metrics.newest)
        return {
            "state": status.state,
            "how": plain_text(status.how),
            "heard_unix_s": measured(status.unix_s),
            "tiles": tiles_of(row, growing, is_running=status.state == "running"),
            "progress": measured(row.get("progress")),
            **self._recordings(),
            "shares": [
                chart
                for chart in (
                    _shares(process_chart(growing.metrics.recent_shares(), unit="% of the last minute"), "recent"),
                    _shares(process_chart(growing.metrics.shares(), unit="% of training time so far"), "whole"),
                )
                if chart is not None
            ],
            "events": self._events(),
        }

    def about(self) -> Json:
        """Return what stays: names, settings, and which charts there are."""
        shown, run = self.shown, self.shown.run_json
        files = RunFiles(shown.path, "", run, [], [], list(self.growing.events.newest), [], (), Processes())
        config = part(run, "config")
        return {
            "id": shown.id,
            "title": " on ".join(filter(None, (shown.facts.get("algorithm"), shown.facts.get("game"))))
            or shown.path.name,
            "name": shown.facts.get("name"),
            "kind": shown.facts.get("kind"),
            "problem": None if config or not shown.followed.is_run else "run.json is missing or can't be read.",
            "facts": _facts(run),
            "settings": settings_of(files),
            "changes": changes_of(files),
            "charts": self._charts(),
        }

    def _recordings(self) -> Json:
        """Return whether episodes can be played again, and if not, why."""
        recordings = self.shown.path / RECORDINGS
        is_there = recordings.is_file() and not recordings.is_symlink() and not recordings.parent.is_symlink()
        why = "" if is_there else "No episode of this run is recorded."
        return {"recorded": is_there, "why_not_recorded": why}

    def _events(self) -> list[tuple[str, str, str, str]]:
        minutes_of = self.growing.clock.minutes
        lines = [event_line(row, minutes_of) for row in list(self.growing.events.newest)[: -MAX_EVENTS - 1 : -1]]
        return [
            (span(None if line.minutes is None else line.minutes * 60), amount(line.steps), line.event, line.details)
            for line in lines
        ]

    def _charts(self) -> list[Json]:
        """Return the charts of metrics.jsonl and hardware.jsonl; the page knows that of the returns."""
        metrics, hardware = self.growing.metrics, self.growing.hardware
        charts = [
            _chart(name, title, unit, kind="metrics", group=group, series=[(name, title)])
            for group, known in (("learning", DIAGNOSTICS), ("speed", SPEEDS))
            for name, (title, unit) in known.items()
            if _has_values(metrics, name)
        ]
        for chart in charts:
            chart["bottom"] = 0.0 if chart["group"] == "speed" else None
            if chart["name"] == "steps-per-s" and (limit := _measured_speed(self.shown.run_json)) is not None:
                chart["limit"] = {"value": limit, "label": "measured before the start (--auto)"}
        names = hardware.columns.names
        known = {name for wanted in HARDWARE.values() for one in wanted for name, _ in series_of(one, names)}
        for subject, wanted in HARDWARE.items():
            for one in wanted:
                if series := series_of(one, names):
                    charts.append(_hardware_chart(one, subject, series))
        others = [name for name in names if name not in known and not name.startswith("throttled.")]
        others = [name for name in others if name not in ("unix_s", "elapsed_s", "interval_s")]
        for name in others[:MAX_OTHERS]:
            charts.append(
                _chart(
                    name, plain_text(name), "as recorded", kind="hardware", group="Other series", series=[(name, name)]
                )
            )
        return charts


def tiles_of(row: Row, growing: GrowingRun, *, is_running: bool) -> list[tuple[str, str, str]]:
    """Return the figures on top of the page: name, value and note; unknown ones are left out."""
    remaining = _interval(row, span, "remaining_low_s", "remaining_high_s")
    to_come = _interval(row, money, "cost_remaining_low", "cost_remaining_high")
    cores, memory = number(row, "cpu_percent"), number(row, "rss_bytes")
    episodes = number(row, "episodes")
    known = [
        ("return", amount(number(row, "mean_return_100")), "mean of the last 100 episodes"),
        ("newest evaluation", amount(number(row, "greedy_return")), _at_step(row)),
        ("best episode", amount(number(row, "best_return")), "" if episodes is None else f"of {episodes:,.0f}"),
        ("steps", amount(number(row, "steps")), f"in {span(number(row, 'time_s'))} of training"),
        ("steps per second", amount(number(row, "steps_per_s")), "over the last 10 s"),
        ("updates per second", amount(number(row, "updates_per_s")), "over the last 10 s"),
        ("progress", share(number(row, "progress")), "of the nearest limit"),
        ("time left", span(number(row, "remaining_s")), remaining),
        ("cost so far", _money(number(row, "cost")), _money(number(row, "price_per_hour"), "{} per hour")),
        ("cost to come", _money(number(row, "cost_remaining")), to_come),
        ("CPU cores used", amount(None if cores is None else cores / 100.0), "all processes of the run"),
        ("memory", size(memory), "resident, all processes"),
    ]
    found = [tile for tile in known if tile[1] not in ("–", "") and (is_running or tile[0] not in WHILE_RUNNING)]
    if not found and len(growing.hardware):
        sample = growing.hardware.newest
        found = [
            ("CPU cores used", amount(as_number(sample.get("cpu_cores_used"))), "newest sample"),
            ("memory", size(as_number(sample.get("rss_bytes"))), "resident, newest sample"),
        ]
    return found


def _interval(row: Row, write: Callable[[float], str], low_name: str, high_name: str) -> str:
    low, high = number(row, low_name), number(row, high_name)
    return "" if low is None or high is None else f"{write(low)} … {write(high)}, 90 % interval"


def _money(value: float | None, words: str = "{}") -> str:
    return "" if value is None else words.format(money(value))


def _at_step(row: Row) -> str:
    at = number(row, "greedy_at_steps")
    return "" if at is None else f"weights of step {at:,.0f}"


def _shares(chart: ShareChart | None, name: str) -> Json | None:
    if chart is None:
        return None
    return {
        "name": name,
        "title": chart.title,
        "unit": chart.unit,
        "inks": [(part_name, colour, is_pale) for part_name, (colour, is_pale) in chart.inks().items()],
        "bars": [(bar.label, [(what, round(value, 4)) for what, value in bar.shares]) for bar in chart.bars],
    }


def _facts(run: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the command, the machine and what else a run says of itself."""
    host = part(run, "host")
    cores = as_number(host.get("usable_cores"))
    machine = [text(host, "cpu_model"), None if cores is None else f"{cores:.0f} cores"]
    told = {
        "command": text(run, "command"),
        "machine": ", ".join(filter(None, machine)),
        "device": text(run, "device"),
        "protocol": text(run, "protocol"),
        "commit": (text(run, "commit") or "")[:40],
    }
    return [(name, value) for name, value in told.items() if value]


def _has_values(metrics: Metrics, name: str) -> bool:
    if name not in metrics.columns:
        return False
    values = metrics.columns.values(name)
    return bool((values == values).any() and values[values == values].any())  # noqa: PLR0124 - not NaN, not all 0


def _measured_speed(run: Mapping[str, Any]) -> float | None:
    """Return the speed that `--auto` measured for the settings that it chose."""
    auto = part(run, "auto")
    candidates = auto.get("candidates")
    for candidate in candidates if isinstance(candidates, list) else ():
        if isinstance(candidate, dict) and candidate.get("name") == auto.get("chosen"):
            return as_number(candidate.get("steps_per_s"))
    return None


def _hardware_chart(chart: HardwareChart, subject: str, series: Sequence[tuple[str, str]]) -> Json:
    found = _chart(chart.name, chart.title, chart.unit, kind="hardware", group=subject, series=series)
    return found | {"scale": chart.scale, "bottom": chart.bottom, "top": chart.top}


def _chart(name: str, title: str, unit: str, *, kind: str, group: str, series: Sequence[tuple[str, str]]) -> Json:
    return {
        "name": name.replace("_", "-"),
        "title": title,
        "unit": unit,
        "kind": kind,
        "group": group,
        "series": [(column, plain_text(label)) for column, label in series],
        "is_faint": len(series) > MANY,
    }

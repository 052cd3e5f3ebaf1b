"""Several runs in one chart: a line for each group of equal settings, and a band over its seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from redline.dashboard.run_view import RunView
from redline.report.bands import Curve, CurveGroup, learning_chart
from redline.report.charts import page_data
from redline.report.growing_run import Place
from redline.report.rows import part
from redline.report.run_files import label_runs
from redline.report.run_series import Series

MAX_COMPARED = 24
MAX_POINTS = 500  # of a run
UNKNOWN = "unknown game"
# settings in which runs of one group may differ: they say when, where and on what a run trains, not how it learns
OWN = frozenset(
    {
        *("seed", "log_dir", "max_steps", "max_minutes", "max_frames", "max_episodes", "price_per_hour"),
        *("threads", "device", "monitor", "record", "record_values", "evaluator", "evaluate_every_steps"),
    }
)
UNIT = "mean of the last 100 episodes, unclipped"


def compare(views: Sequence[RunView], place: Place) -> dict[str, Any]:
    """Return a chart for each game, and a row for each run."""
    runs = [_without_own(view.shown.run_json) for view in views]
    keys = [
        json.dumps([run.get("algorithm"), part(run, "config")], sort_keys=True, default=str) if run else view.shown.id
        for run, view in zip(runs, views, strict=True)
    ]
    first = {key: at for at, key in reversed(list(enumerate(keys)))}
    groups = sorted(first, key=lambda key: first[key])
    labels = dict(
        zip(groups, label_runs([(views[first[key]].shown.path.name, runs[first[key]]) for key in groups]), strict=True)
    )
    games: dict[str, dict[str, list[Curve]]] = {}
    for key, view in zip(keys, views, strict=True):
        game = view.shown.facts.get("game") or UNKNOWN
        games.setdefault(game, {}).setdefault(key, []).append((view.shown.facts["name"], curve_of(view, place)))
    charts = []
    for game, found in games.items():
        curves = [CurveGroup(labels[key], groups.index(key), members) for key, members in found.items()]
        chart = learning_chart(place, curves, title=game, unit=UNIT)
        if chart is not None:
            charts.append({"title": chart.title, "unit": chart.unit, "chart": page_data(chart)})
    return {
        "charts": charts,
        "runs": [view.shown.facts | {"group": labels[key]} for key, view in zip(keys, views, strict=True)],
    }


def curve_of(view: RunView, place: Place) -> Series:
    """Return the mean return of a run at some hundred places of an axis."""
    episodes = view.growing.episodes
    x, y = view.growing.places(episodes, place), episodes.means()
    known = np.flatnonzero(np.isfinite(x) & np.isfinite(y))
    if len(known) > MAX_POINTS:
        known = known[np.linspace(0, len(known) - 1, MAX_POINTS).round().astype(np.int64)]
    return Series(x[known].tolist(), y[known].tolist())


def _without_own(run: Mapping[str, Any]) -> dict[str, Any]:
    """Return run.json without the settings in which runs of one group may differ."""
    return {**run, "config": _pruned(part(run, "config"))} if run else {}


def _pruned(settings: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in settings.items() if name not in OWN}
    return {name: _pruned(value) if isinstance(value, dict) else value for name, value in kept.items()}

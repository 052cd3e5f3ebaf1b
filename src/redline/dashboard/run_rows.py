"""The rows of a run as a page draws them: thinned to its pixels at first, then only what is new."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from redline.report.charts import GAP_STEPS
from redline.report.columns import Numbers, Thinned, extremes, shortened, thin
from redline.report.growing_run import Episodes, GrowingRun, Hardware, Kind, Metrics, Place
from redline.report.rows import THROTTLED
from redline.report.run_charts import CLOCKS, DIAGNOSTICS

X_DIGITS, Y_DIGITS = 9, 5
GAP_PIXELS = 3.0  # a shorter gap is not seen
METRICS = (*DIAGNOSTICS, "steps_per_s", "updates_per_s", "samples_per_step", "mean_return_100")
NO_SERIES = CLOCKS | {"interval_s"}
BOOT = secrets.token_hex(4)  # marks of an earlier server say nothing

Window = tuple[float, float]  # of an axis
Answer = dict[str, Any]


def new_rows(
    run: GrowingRun, kind: Kind, place: Place, *, mark: str, pixels: int, window: Window | None
) -> Answer | None:
    """Return what a page that has read up to `mark` lacks of a file; None if nothing.

    `whole` says that it replaces what the page has.
    """
    file = run.files[kind]
    tag = _tag(run, kind, place)
    now = f"{file.tail.read_bytes}-{tag}"
    if mark == now:
        return None
    begin = _begin(file.rows_at, mark, tag)
    if begin is not None and len(file) - begin > pixels:
        begin = None  # so far behind that a new drawing is shorter
    if not isinstance(file, Metrics | Episodes | Hardware):
        return {"mark": now}
    x = run.places(file, place, begin or 0)
    chosen = np.isfinite(x)
    if window is not None:
        chosen &= (x >= window[0]) & (x <= window[1])
    answer: Answer = {"mark": now, "whole": begin is None}
    if isinstance(file, Episodes):
        answer |= _episodes(file, x, np.flatnonzero(chosen), begin or 0, pixels)
        answer["evaluations"] = _evaluations(run, file, place)
        return answer
    places = x[chosen]
    series = ((name, values[chosen]) for name, values in _series(file, begin or 0))
    if begin is None and len(places) > 2 * pixels:
        gaps = _gaps(places, pixels) if place == "minutes" else np.empty(0)
        places, thinned = thin(places, series, pixels=pixels)
        for part in Thinned._fields:
            answer[part] = {name: _short(getattr(values, part)) for name, values in thinned.items()}
    else:
        gaps = _gaps(places, pixels) if begin is None and place == "minutes" else np.empty(0)
        answer["mean"] = {name: _short(values) for name, values in series}
    return answer | {"x": shortened(places, X_DIGITS).tolist(), "gaps": shortened(gaps, X_DIGITS).tolist()}


def _tag(run: GrowingRun, kind: Kind, place: Place) -> str:
    known = f"{BOOT} {place} {run.generation(kind, place)}"
    return hashlib.blake2b(known.encode(), digest_size=6).hexdigest()


def _begin(rows_at: Any, mark: str, tag: str) -> int | None:
    offset, _, told = mark.partition("-")
    if told != tag or not offset.isascii() or not offset.isdigit() or len(offset) > 18:
        return None
    found: int | None = rows_at(int(offset))
    return found


def _series(file: Metrics | Hardware, begin: int) -> Iterator[tuple[str, Numbers]]:
    names = METRICS if isinstance(file, Metrics) else file.columns.names
    for name in names:
        if name in file.columns and name not in NO_SERIES and not name.startswith(THROTTLED):
            yield name, file.columns.values(name, begin)


def _episodes(file: Episodes, x: Numbers, chosen: np.ndarray[Any, Any], begin: int, pixels: int) -> Answer:
    """Return episodes that were really played: the best and the worst of each pixel column."""
    returns, means = file.columns.values("return", begin), file.means(begin)
    if len(chosen) > 2 * pixels:
        chosen = chosen[extremes(x[chosen], returns[chosen], pixels=pixels)]
    columns: Mapping[str, Numbers] = {"return": returns, "mean": means}
    return {
        "x": shortened(x[chosen], X_DIGITS).tolist(),
        "mean": {name: _short(values[chosen]) for name, values in columns.items()},
        "numbers": file.columns.values("number", begin)[chosen].astype(np.int64).tolist(),
    }


def _evaluations(run: GrowingRun, file: Episodes, place: Place) -> Answer:
    """Return the mean of each evaluation at the steps of its weights, or at its end."""
    if not file.evaluations:
        return {"x": [], "mean": []}
    table = np.asarray(list(file.evaluations.values()))  # [N, unix_s, steps, sum, episodes]
    unix_s, steps = table[:, 0], table[:, 1]
    at = steps if place == "steps" else run.minutes(unix_s) if place == "minutes" else run.interpolated(unix_s, place)
    means = table[:, 2] / table[:, 3]
    known = np.flatnonzero(np.isfinite(at))
    known = known[np.argsort(at[known], kind="stable")]
    return {"x": shortened(at[known], X_DIGITS).tolist(), "mean": shortened(means[known], Y_DIGITS).tolist()}


def _gaps(x: Numbers, pixels: int) -> Numbers:
    """Return the middle of each stretch without values that is long enough to be seen: the lines break there."""
    if len(x) < 3:
        return np.empty(0)
    steps = np.diff(x)
    least = max(GAP_STEPS * float(np.median(steps)), GAP_PIXELS * (x[-1] - x[0]) / pixels)
    after = np.flatnonzero(steps > least)
    middles: Numbers = (x[after] + x[after + 1]) / 2.0
    return middles


def _short(values: Numbers) -> list[float]:
    found: list[float] = shortened(values, Y_DIGITS).tolist()
    return found

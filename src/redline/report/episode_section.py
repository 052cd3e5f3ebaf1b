"""The part of a page that puts each episode beside what the hardware did while it was played."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping

from redline.records import Row
from redline.report.amounts import DASH, amount, size
from redline.report.charts import Line, LineChart
from redline.report.episode_means import joined_rows
from redline.report.html_parts import Content, Gallery, Html, folded, section, table
from redline.report.shown_run import ShownRun

MAX_EPISODES = 100  # in the table
MAX_DOTS = 300
EPISODE_MEANS: Mapping[str, tuple[str, Callable[[float | None], str]]] = {
    "cpu_cores_used": ("cores used", amount),
    "machine_cpu_cores_used": ("cores, machine", amount),
    "rss_bytes": ("resident memory", size),
    "load_average_1m": ("load", amount),
    "write_bytes_per_s": ("written per s", size),
    "gpus.0.utilisation_percent": ("GPU 0 %", amount),
    "gpus.0.power_w": ("GPU 0 W", amount),
    "gpus.1.utilisation_percent": ("GPU 1 %", amount),
    "gpus.1.power_w": ("GPU 1 W", amount),
}


def episode_section(run: ShownRun, gallery: Gallery, *, level: int) -> Html:
    """Return a part with every episode as a dot, and a table of the newest."""
    identity, title = f"{run.key}-episodes", "Episodes and the hardware meanwhile"
    count = len(run.files.episodes)
    if not count:
        return section(title, Html("<p>No episode is on record.</p>"), identity=identity, level=level)
    stride = -(-count // MAX_DOTS)
    newest: deque[Row] = deque(maxlen=MAX_EPISODES)
    dotted: list[Row] = []
    for place, row in enumerate(joined_rows(run.files)):  # a hundred thousand would not fit into memory
        newest.append(row)
        if place % stride == 0:
            dotted.append(row)
    parts: list[Content] = []
    if dots := _dots(dotted, stride):
        parts.append(gallery.grid(dots, owner=run.files.label))
    columns = [name for name in EPISODE_MEANS if any(name in _means(row) for row in newest)]
    shown = [_episode_cells(row, columns) for row in reversed(newest)]
    head = ("steps", "played by", "return", "length", *(EPISODE_MEANS[name][0] for name in columns))
    numeric = [place for place in range(len(head)) if place != 1]
    words = f"The newest {len(shown):,} of {count:,} episodes" if count > len(shown) else f"{count:,} episodes"
    parts.append(folded(words, table("Episodes", head, shown, numeric=numeric, css="card long"), css="fold"))
    lead = (
        "Means of the samples while each episode was played. redline report --episodes FILE.jsonl writes all of them."
    )
    return section(title, *parts, identity=identity, lead=lead, level=level)


def _means(row: Row) -> Mapping[str, float]:
    found = row.get("hardware")
    return found if isinstance(found, dict) else {}


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _episode_cells(row: Row, columns: list[str]) -> list[str]:
    means = _means(row)
    begin = [amount(_number(row.get("steps"))), str(row.get("role", DASH))]
    begin += [amount(_number(row.get("return"))), amount(_number(row.get("length_steps")))]
    return begin + [EPISODE_MEANS[name][1](_number(means.get(name))) for name in columns]


def _dots(rows: list[Row], stride: int) -> list[LineChart]:
    """Return each episode as a dot: what it used, and what it earned."""
    charts: list[LineChart] = []
    for name, words in (
        ("cpu_cores_used", "CPU cores used"),
        ("gpus.0.utilisation_percent", "utilisation of GPU 0, %"),
    ):
        pairs = [(_number(_means(row).get(name)), _number(row.get("return"))) for row in rows]
        known = [(x, y) for x, y in pairs if x is not None and y is not None]
        if len(known) > 1:
            line = Line("episode", [x for x, _ in known], [y for _, y in known], is_points=True)
            unit = "return of each episode, unclipped" + (f" (every {stride}th)" if stride > 1 else "")
            charts.append(LineChart(f"episodes-{len(charts)}", f"Return and {words}", unit, words, (line,)))
    return charts

"""What a search looks like: a live table in a terminal, lines anywhere else."""

import time
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from redline.cli.displays import Lines, LivePanel, framed
from redline.tune.watching import SearchView, TrialView, describe_value
from redline.units import duration

LINE_INTERVAL_S = 30.0
MOST_ROWS = 16
STYLES = {"running": "bold", "failed": "red", "pruned": "dim", "interrupted": "dim", "waiting": "dim"}


class TuneDisplay:
    """Shows a search on a panel or as lines."""

    def __init__(self, display: LivePanel | Lines, title: str) -> None:
        self._display = display
        self._title = title
        self._next_s = time.monotonic() + LINE_INTERVAL_S

    @property
    def is_closed(self) -> bool:
        """Whether nobody reads any more."""
        return self._display.is_closed

    def note(self, text: str) -> None:
        """Print a line."""
        self._display.note(text)

    def show(self, view: SearchView) -> None:
        """Redraw the panel, or print a line if the last one is old enough."""
        if isinstance(self._display, LivePanel):
            self._display.draw(render_search(self._title, view))
        elif time.monotonic() >= self._next_s:
            self._next_s = time.monotonic() + LINE_INTERVAL_S
            self._display.note(render_line(view))


def render_search(title: str, view: SearchView) -> RenderableType:
    """Draw a search as a table of its trials."""
    head = Table.grid(padding=(0, 2), expand=True)
    head.add_column(ratio=1)
    head.add_column(justify="right")
    head.add_row(ProgressBar(total=1.0, completed=view.share), f"{view.share:.0%} · {view.phase}{_left(view)}")
    keys = list(dict.fromkeys(key for trial in view.trials for key in trial.settings))
    rows = Table(box=None, header_style="bold red", padding=(0, 1, 0, 0), pad_edge=False)
    rows.add_column("", justify="right", no_wrap=True)
    for name in ("state", *short_names(keys), "value"):
        rows.add_column(Text(name))
    for trial in shown(view):
        is_best = trial.number == view.best
        cells = [describe_value(trial.settings[key]) if key in trial.settings else "–" for key in keys]
        style = "bold green" if is_best else STYLES.get(trial.state, "")
        words = [str(trial.number), "best" if is_best else trial.state, *cells, trial.told]
        rows.add_row(*(Text(word) for word in words), style=style)
    return framed(title, Group(head, rows))


def short_names(keys: Sequence[str]) -> list[str]:
    """Return the last part of each setting's name where it tells them apart, for columns are narrow."""
    last = [key.rpartition(".")[2] for key in keys]
    return [name if last.count(name) == 1 else key for key, name in zip(keys, last, strict=True)]


def shown(view: SearchView) -> Sequence[TrialView]:
    """Return the trials that a screen has room for: the best, those under way, and the newest."""
    if len(view.trials) <= MOST_ROWS:
        return view.trials
    first = [trial for trial in view.trials if trial.number == view.best or trial.state == "running"]
    rest = [trial for trial in view.trials if trial not in first]
    room = max(0, MOST_ROWS - len(first))
    kept = [*first, *(rest[-room:] if room else [])]
    return sorted(kept, key=lambda trial: trial.number)


def render_line(view: SearchView) -> str:
    """Write how a search stands as a line."""
    running = "; ".join(f"{trial.number}: {trial.told}" for trial in view.trials if trial.state == "running")
    best = next((f"best {trial.number}: {trial.told}" for trial in view.trials if trial.number == view.best), "")
    parts = (f"{view.share:.0%}", f"{view.phase}{_left(view)}", best, running)
    return " | ".join(part for part in parts if part)


def _left(view: SearchView) -> str:
    return "" if view.left_s is None else f", at most {duration(view.left_s)} left"

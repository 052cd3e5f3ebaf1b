"""What a supervisor prints: a live table in a terminal, lines elsewhere."""

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from redline.cli.displays import Lines, LivePanel, framed, render_progress
from redline.fleet.slots import STATES, SlotStatus
from redline.units import duration, number

LINE_INTERVAL_S = 30.0
REFRESH_PER_S = 1.0
MOST_ROWS = 20
STYLES = {"running": "bold", "given up": "red", "waiting": "dim", "stopped": "yellow", "done": "green"}


class FleetDisplay:
    """Shows a fleet on a panel or as lines."""

    def __init__(self, display: LivePanel | Lines, title: str) -> None:
        self._display = display
        self._title = title

    def note(self, text: str) -> None:
        """Print a line."""
        self._display.note(text)

    def close(self) -> None:
        """Leave the panel as it is."""
        self._display.finish()

    def show(self, statuses: Sequence[SlotStatus], packing: str, left_s: float | None) -> None:
        """Redraw the panel, or print a line if the last one is old enough."""
        if isinstance(self._display, LivePanel):
            self._display.draw(render_fleet(self._title, statuses, packing, left_s))
        else:
            self._display.show_line(render_line(statuses, left_s), LINE_INTERVAL_S)


def render_fleet(title: str, statuses: Sequence[SlotStatus], packing: str, left_s: float | None) -> RenderableType:
    """Draw a fleet as a table: what runs first, then what ended, then what waits."""
    share = sum(status.state in ("done", "given up") for status in statuses) / max(1, len(statuses))
    head = render_progress(share, f"{counts_of(statuses)}{_left(left_s)}")
    table = Table(box=None, header_style="bold red", padding=(0, 1, 0, 0), pad_edge=False)
    for name, is_number in (("slot", 0), ("state", 0), ("steps", 1), ("mean-100", 1), ("", 0)):
        table.add_column(name, justify="right" if is_number else "left", no_wrap=bool(is_number))
    order = ("running", "given up", "stopped", "done", "waiting")
    rows = sorted(statuses, key=lambda status: order.index(status.state))
    for status in rows[:MOST_ROWS]:
        state = status.state if status.attempt < 2 else f"{status.state} · attempt {status.attempt}"
        steps = f"{status.steps:,}" if status.attempt else "–"
        cells = (status.slot.name, state, steps, number(status.mean_return_100), status.reason)
        table.add_row(*map(Text, cells), style=STYLES[status.state])
    if len(rows) > MOST_ROWS:
        table.add_row(Text(f"{len(rows) - MOST_ROWS} more", style="dim"))
    below = [Text(packing, style="dim")] if packing else []
    return framed(title, Group(head, table, *below))


def render_line(statuses: Sequence[SlotStatus], left_s: float | None) -> str:
    """Write the state of a fleet as a line."""
    running = "; ".join(
        f"{status.slot.name} {status.steps:,} steps, mean {number(status.mean_return_100, 1)}"
        for status in statuses
        if status.state == "running"
    )
    return " | ".join(filter(None, (f"{counts_of(statuses)}{_left(left_s)}", running)))


def counts_of(statuses: Sequence[SlotStatus]) -> str:
    """Return how many slots are in each state."""
    counts = {state: sum(status.state == state for status in statuses) for state in STATES}
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count)


def _left(left_s: float | None) -> str:
    return "" if left_s is None else f" · about {duration(left_s)} left"

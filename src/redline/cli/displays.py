"""What a run looks like: a live panel in a terminal, tidy lines anywhere else."""

import os
import sys
import time
from contextlib import AbstractContextManager
from typing import Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from redline.cli.wording import duration, number, rate, size
from redline.runtime.gauges import Gauges

LINE_INTERVAL_S = 5.0


class LivePanel(AbstractContextManager["LivePanel"]):
    """A panel that is redrawn in place; notes scroll by above it."""

    is_closed = False  # a terminal that goes away sends a signal

    def __init__(self, title: str) -> None:
        self._title = title
        self._console = Console()
        self._live = Live(console=self._console, refresh_per_second=4, transient=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        """Leave the panel as it is; what is noted from now on comes below it."""
        self._live.stop()

    def note(self, text: str) -> None:
        """Print a line above the panel."""
        self._console.print(Text(text, style="dim"), soft_wrap=True)

    def show(self, gauges: Gauges) -> None:
        """Redraw the panel."""
        self._live.update(render_panel(self._title, gauges))


class Lines(AbstractContextManager["Lines"]):
    """One line every few seconds."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._next_s = 0.0
        self.is_closed = False  # whoever read the lines is gone

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        """Write out every line."""
        self._stream.flush()

    def note(self, text: str) -> None:
        """Print a line."""
        try:
            print(text, file=self._stream, flush=True)
        except BrokenPipeError:
            self.is_closed = True
            # what Python still flushes at its end has to go somewhere
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def show(self, gauges: Gauges) -> None:
        """Print a line if the last one is old enough."""
        now_s = time.monotonic()
        if now_s >= self._next_s:
            self._next_s = now_s + LINE_INTERVAL_S
            self.note(render_line(gauges))


def render_panel(title: str, gauges: Gauges) -> RenderableType:
    """Draw one reading as a panel."""
    rows = Table.grid(padding=(0, 2))
    rows.add_column(style="bold")
    rows.add_column()
    for name, text in _rows(gauges):
        rows.add_row(name, text)
    head = Table.grid(padding=(0, 2), expand=True)
    head.add_column(ratio=1)
    head.add_column(justify="right")
    share = gauges.progress or 0.0
    left = "time left unknown" if gauges.remaining_s is None else f"at most {duration(gauges.remaining_s)} left"
    head.add_row(ProgressBar(total=1.0, completed=share), f"{share:.1%} · {left}")
    return Panel(Group(head, rows), title=title, border_style="red", title_align="left")


def render_line(gauges: Gauges) -> str:
    """Write one reading as a line."""
    left = "?" if gauges.remaining_s is None else duration(gauges.remaining_s)
    return (
        f"{duration(gauges.time_s):>10} | {gauges.steps:>10,} steps | {rate(gauges.steps_per_s):>5} steps/s | "
        f"{rate(gauges.updates_per_s):>5} updates/s | {number(gauges.samples_per_step)} samples/step | "
        f"{gauges.episodes:,} episodes | mean-100 {number(gauges.mean_return_100)} | "
        f"best {number(gauges.best_return, 1)} | {_randomness(gauges)} | loss {number(gauges.loss, 4)} | "
        f"{_replay(gauges)}CPU {gauges.cpu_percent:.0f} % | {size(gauges.rss_bytes)} | ≤ {left} left"
    )


def _rows(gauges: Gauges) -> list[tuple[str, str]]:
    return [
        (
            "done",
            f"{gauges.steps:,} steps · {gauges.frames:,} frames · {gauges.updates:,} updates · "
            f"{gauges.episodes:,} episodes · {duration(gauges.time_s)}",
        ),
        (
            "speed",
            f"{rate(gauges.steps_per_s)} steps/s · {rate(gauges.updates_per_s)} updates/s · "
            f"{rate(gauges.episodes_per_h)} episodes/h · {number(gauges.samples_per_step)} samples/step",
        ),
        (
            "learning",
            f"mean-100 {number(gauges.mean_return_100)} · best {number(gauges.best_return, 1)} · "
            f"{_randomness(gauges)} · loss {number(gauges.loss, 4)}",
        ),
        *_replay_row(gauges),
        ("machine", f"CPU {gauges.cpu_percent:.0f} % (100 is one core) · memory {size(gauges.rss_bytes)}"),
    ]


def _randomness(gauges: Gauges) -> str:
    if gauges.epsilon is not None:
        return f"ε {gauges.epsilon:.3f}"
    return f"entropy {number(gauges.policy_entropy_nats, 3)} nats"


def _replay(gauges: Gauges) -> str:
    if gauges.replay_transitions is None or gauges.replay_bytes is None:
        return ""
    fill = gauges.replay_transitions / (gauges.replay_capacity_transitions or 1)
    return f"replay {fill:.0%} {size(gauges.replay_bytes)} | "


def _replay_row(gauges: Gauges) -> list[tuple[str, str]]:
    held, capacity, taken = gauges.replay_transitions, gauges.replay_capacity_transitions, gauges.replay_bytes
    if held is None or capacity is None or taken is None:  # rollouts are forgotten once they are learnt from
        return []
    return [("replay", f"{held:,} of {capacity:,} transitions ({held / capacity:.0%}) · {size(taken)}")]

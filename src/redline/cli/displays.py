"""Displays of a run: a live panel in a terminal, lines anywhere else."""

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Self, TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from redline.cli.output import Printing, draw_facts, draw_table, is_plain
from redline.runtime.gauges import REST, Gauges, RoleGauges
from redline.units import duration, energy, money, number, rate, size

LINE_INTERVAL_S = 5.0
LEAST_SHARE_SHOWN = 0.02  # of the time
MOST_ROLES_SHOWN = 12
ROLE_COLUMNS = ("role", "pid", "CPU", "memory", "speed", "lag", "restarts", "waits for")
WAITING = "waiting"
WAITS = {"gather": "batch", REST: "idle"}  # plainer words for what a reading says

Fact = tuple[str, str]  # a name, and what there is to say


class LivePanel(AbstractContextManager["LivePanel"]):
    """A panel that is redrawn in place; notes scroll by above it."""

    is_closed = False  # a terminal that goes away sends a signal

    def __init__(self, title: str, refresh_per_second: float = 4.0) -> None:
        self._title = title
        self._console = Console()
        self._live = Live(console=self._console, refresh_per_second=refresh_per_second, transient=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        """Leave the panel as it is; later notes come below it."""
        self._live.stop()

    def note(self, text: str) -> None:
        self._console.print(Text(text, style="dim"), soft_wrap=True)

    def show(self, gauges: Gauges) -> None:
        self.draw(render_panel(self._title, gauges))

    def draw(self, panel: RenderableType) -> None:
        self._live.update(panel)


class Lines(AbstractContextManager["Lines"]):
    """One line every few seconds."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._shown, self._next_s = "", 0.0
        self.is_closed = False  # True once the reader of the lines is gone

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        self._stream.flush()

    def note(self, text: str) -> None:
        try:
            print(text, file=self._stream, flush=True)
        except BrokenPipeError:
            self.is_closed = True
            # Python flushes at exit: that has to go somewhere
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def show(self, gauges: Gauges) -> None:
        """Print a line if the last one is old enough."""
        self.show_line(render_line(gauges))

    def show_line(self, text: str, interval_s: float = LINE_INTERVAL_S, *, is_last: bool = False) -> None:
        """Print a line unless it repeats the last one; wait until that is old enough, except for the last of all."""
        now_s = time.monotonic()
        if text != self._shown and (is_last or now_s >= self._next_s):
            self._shown, self._next_s = text, now_s + interval_s
            self.note(text)


def open_display(title: str, flags: Printing, *, refresh_per_second: float = 4.0) -> LivePanel | Lines:
    """Return the live panel in a terminal, else lines; with --json they go to stderr."""
    if flags.json:
        return Lines(sys.stderr)
    return Lines() if is_plain(flags) else LivePanel(title, refresh_per_second)


def render_panel(title: str, gauges: Gauges, more: Sequence[Fact] = ()) -> RenderableType:
    """Draw one reading as a panel, with more facts below its own."""
    share, facts = gauges.progress or 0.0, gauge_facts(gauges)
    head = render_progress(share, f"{share:.1%} · {_limit(gauges)}")
    if len(gauges.roles) <= 1:
        return framed(title, Group(head, draw_facts([*facts, *more])))
    facts = [(name, text) for name, text in facts if name != WAITING]  # the table says it
    return framed(title, Group(head, draw_facts([*facts, *more]), render_roles(gauges.roles)))


def render_line(gauges: Gauges) -> str:
    return join_facts([*gauge_facts(gauges), ("", _limit(gauges))])


def join_facts(facts: Sequence[Fact]) -> str:
    return " | ".join(f"{name}: {text}" if name else text for name, text in facts)


def known(*parts: tuple[str, object]) -> list[str]:
    """Return the texts whose value is known, with the value in them."""
    return [text.format(value) for text, value in parts if value is not None]


def in_words(words: Callable[[float], str], value: float | None) -> str | None:
    """Return a value as people read it, None if it is not known."""
    return None if value is None else words(value)


def known_size(num_bytes: float | None) -> str | None:
    """Return bytes as people read them, None if they are not known."""
    return in_words(size, num_bytes)


def render_progress(share: float, text: str) -> RenderableType:
    """Draw a progress bar with a text at its right."""
    head = Table.grid(padding=(0, 2), expand=True)
    head.add_column(ratio=1)
    head.add_column(justify="right")
    head.add_row(ProgressBar(total=1.0, completed=share), text)
    return head


def framed(title: str, content: RenderableType) -> RenderableType:
    return Panel(content, title=Text(title), border_style="red", title_align="left")


def render_roles(roles: Sequence[RoleGauges]) -> RenderableType:
    """Draw one row for each process: what it takes, what it does, how old its weights are, and whom it waits for."""
    rows = [
        (
            role.role,
            number(role.pid, 0),
            "–" if role.cpu_percent is None else f"{role.cpu_percent:.0f} %",
            "–" if role.rss_bytes is None else size(role.rss_bytes, digits=1),
            _speed(role),
            "–" if role.weights_age_updates is None else rate(role.weights_age_updates),
            str(role.restarts),
            "\n".join(_waits(role)) or "–",
        )
        for role in roles[:MOST_ROLES_SHOWN]
    ]
    table = draw_table(ROLE_COLUMNS, rows, numeric=range(1, 7), gap=1)
    if len(roles) > MOST_ROLES_SHOWN:
        table.add_row(f"{len(roles) - MOST_ROLES_SHOWN} more")
    return table


def gauge_facts(gauges: Gauges) -> list[Fact]:
    """Return a name and a text for each side of a reading."""
    facts = {
        "done": [
            f"{gauges.steps:,} steps",
            f"{gauges.frames:,} frames",
            f"{gauges.updates:,} updates",
            f"{gauges.episodes:,} episodes",
            duration(gauges.time_s),
        ],
        "speed": [
            f"{rate(gauges.steps_per_s)} steps/s",
            f"{rate(gauges.updates_per_s)} updates/s",
            f"{rate(gauges.episodes_per_h)} episodes/h",
            describe_ratio(gauges),
        ],
        "warm-up": [] if gauges.warmup_steps_per_s is None else [f"{rate(gauges.warmup_steps_per_s)} steps/s"],
        "learning": [
            describe_mean(gauges),
            f"best {number(gauges.best_return, 1)}",
            f"entropy {number(gauges.policy_entropy_nats, 3)} nats"
            if gauges.epsilon is None
            else f"ε {gauges.epsilon:.3f}",
            f"loss {number(gauges.loss, 4)}",
        ],
        "eval": _greedy(gauges),
        "solved": _solved(gauges),
        "replay": _replay(gauges),
        "usage": [f"CPU {gauges.cpu_percent:.0f} % (100 is one core)", f"memory {size(gauges.rss_bytes)}"],
        "machine": known(
            ("load {:.1f}", gauges.load_average),
            ("memory free {}", known_size(gauges.memory_available_bytes)),
            ("disk free {}", known_size(gauges.disk_free_bytes)),
        ),
        "money": _money(gauges),
        "energy": known(("{:.0f} W", gauges.power_w), ("{} so far", in_words(energy, gauges.energy_j))),
        WAITING: _waits(gauges.roles[0]) if len(gauges.roles) == 1 else _who_waits(gauges),
    }
    return [(name, " · ".join(parts)) for name, parts in facts.items() if parts]


def describe_mean(gauges: Gauges) -> str:
    """Tell the mean return of the last 100 episodes, and of how many if there are fewer."""
    told = f"mean-100 {number(gauges.mean_return_100)}"
    return told if gauges.mean_return_100 is None or gauges.episodes >= 100 else f"{told} (n = {gauges.episodes})"


def describe_ratio(gauges: Gauges) -> str:
    """Tell how many samples were trained per step; without a replay memory that is no replay ratio."""
    name = "samples per step" if gauges.replay_transitions is None else "replay ratio"
    return f"{name} {number(gauges.samples_per_step)}"


def _limit(gauges: Gauges) -> str:
    """Tell when the first limit is reached, with the 90 % interval of that time."""
    if gauges.remaining_s is None:
        if gauges.progress is None:
            return "time left unknown"
        return "time left: known in a moment" if gauges.updates else "time left: known after the warm-up"
    ends_s = gauges.remaining_low_s, gauges.remaining_high_s
    return f"limit reached in {_with_interval(duration, gauges.remaining_s, ends_s)}"


def _money(gauges: Gauges) -> list[str]:
    """Tell what the run has cost, what the rest will cost, and what a million steps of learning cost."""
    left, ends = gauges.cost_remaining, (gauges.cost_remaining_low, gauges.cost_remaining_high)
    return known(
        ("{} so far", in_words(money, gauges.cost)),
        ("{} to come", None if left is None else _with_interval(money, left, ends)),
        ("{} per million steps", in_words(money, gauges.cost_per_million_steps)),
    )


def _with_interval(words: Callable[[float], str], value: float, ends: tuple[float | None, float | None]) -> str:
    """Write a value with its interval, unless both ends read like the value itself."""
    low, high = ends
    if low is None or high is None or words(low) == words(value) == words(high):
        return words(value)
    return f"{words(value)} ({words(low)} – {words(high)})"


def _greedy(gauges: Gauges) -> list[str]:
    if gauges.greedy_return is None or gauges.greedy_at_steps is None:
        return []
    return [f"{number(gauges.greedy_return)} at step {gauges.greedy_at_steps:,}"]


def _solved(gauges: Gauges) -> list[str]:
    """Tell when the target of the evaluations is reached, once the returns rise."""
    if gauges.target_eval_return is None or gauges.solved_in_s is None:
        return []
    if gauges.solved_in_s == 0.0:
        return ["perhaps with the next evaluation"]
    return [f"in about {duration(gauges.solved_in_s)} if the returns keep rising"]


def _replay(gauges: Gauges) -> list[str]:
    held, capacity, taken = gauges.replay_transitions, gauges.replay_capacity_transitions, gauges.replay_bytes
    if held is None or capacity is None or taken is None:  # rollouts are used once and dropped
        return []
    return [f"{held:,} of {capacity:,} transitions ({held / (capacity or 1):.0%})", size(taken)]


def _speed(role: RoleGauges) -> str:
    rates = ((role.steps_per_s, "steps/s"), (role.updates_per_s, "updates/s"))
    return "\n".join(f"{rate(value)} {unit}" for value, unit in rates if value is not None) or "–"


def _who_waits(gauges: Gauges) -> list[str]:
    """Tell which process waits for which; an idle one does not count."""
    busy = [replace(role, waiting={**role.waiting, REST: 0.0}) for role in gauges.roles]
    return [f"{role.role} waits for {', '.join(waits)}" for role in busy if (waits := _waits(role))]


def _waits(role: RoleGauges) -> list[str]:
    """Tell what a process waits for, longest first, without the shortest waits."""
    shares = sorted(role.waiting.items(), key=lambda item: -item[1])
    return [f"{WAITS.get(what, what)} {100 * share:.0f} %" for what, share in shares if share >= LEAST_SHARE_SHOWN]

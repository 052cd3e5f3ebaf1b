"""The panel and the lines show every gauge."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from redline.cli.displays import Lines, render_line, render_panel
from redline.cli.wording import duration, number, size
from redline.runtime.gauges import Gauges

GAUGES = Gauges(
    time_s=3_700.0,
    unix_s=0.0,
    steps=123_456,
    frames=493_824,
    updates=30_864,
    samples=987_648,
    episodes=321,
    steps_per_s=181.4,
    updates_per_s=45.3,
    episodes_per_h=612.0,
    samples_per_step=7.98,
    mean_return_100=-18.25,
    best_return=-12.0,
    epsilon=0.31,
    policy_entropy_nats=None,
    loss=0.01234,
    actor_weights_age_updates=0,
    replay_transitions=72_000,
    replay_capacity_transitions=100_000,
    replay_bytes=745_000_000,
    cpu_percent=187.0,
    rss_bytes=1_100_000_000,
    progress=0.25,
    remaining_s=11_100.0,
)

SHOWN = (
    *("123,456 steps", "181 steps/s", "45.3 updates/s", "7.98 samples/step", "mean-100 −18.25", "best −12.0"),
    *("ε 0.310", "loss 0.0123", "72%", "745.00 MB", "CPU 187 %", "1.10 GB", "3 h 05 min left"),
)


@pytest.mark.parametrize("text", [*SHOWN, "612 episodes/h", "25.0%", "72,000 of 100,000 transitions"])
def test_the_panel_shows(text: str) -> None:
    console = Console(file=io.StringIO(), width=120)
    console.print(render_panel("redline · dqn on pong · seed 1", GAUGES))
    assert text in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", SHOWN)
def test_a_line_shows(text: str) -> None:
    assert text in " ".join(render_line(GAUGES).split())


def test_what_is_not_known_yet_is_a_dash() -> None:
    early = replace(GAUGES, loss=None, mean_return_100=None, best_return=None, samples_per_step=None, remaining_s=None)
    assert "mean-100 – | best – | ε 0.310 | loss –" in render_line(early)


def test_a_policy_shows_its_entropy_in_place_of_epsilon_and_no_replay() -> None:
    rollouts = replace(
        GAUGES,
        epsilon=None,
        policy_entropy_nats=1.2345,
        replay_transitions=None,
        replay_capacity_transitions=None,
        replay_bytes=None,
    )
    console = Console(file=io.StringIO(), width=120)
    console.print(render_panel("redline · ppo on pong · seed 1", rollouts))
    for text in (console.file.getvalue(), render_line(rollouts)):  # type: ignore[attr-defined]
        assert "entropy 1.234 nats" in text
        assert "ε" not in text
        assert "replay" not in text


def test_lines_come_every_few_seconds_and_notes_at_once() -> None:
    stream = io.StringIO()
    with Lines(stream) as lines:
        lines.show(GAUGES)
        lines.show(GAUGES)
        lines.note("a fact")
    assert stream.getvalue().splitlines() == [render_line(GAUGES), "a fact"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(5, "5 s"), (65, "1 min 05 s"), (3_725, "1 h 02 min"), (200_000, "2 d 07 h")],
)
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_sizes_are_decimal_and_minus_is_a_minus() -> None:
    assert (size(999), size(1_500), size(2_340_000_000)) == ("999 B", "1.50 kB", "2.34 GB")
    assert number(-0.5, 1) == "−0.5"

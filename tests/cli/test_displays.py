"""The panel and the lines show every gauge."""

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console

from redline.cli.displays import Lines, render_line, render_panel
from redline.runtime.gauges import Gauges, RoleGauges
from redline.units import duration, money, number, size

GAUGES = Gauges(
    time_s=3_700.0,
    unix_s=0.0,
    steps=123_456,
    frames=493_824,
    updates=30_864,
    samples=987_648,
    episodes=321,
    steps_per_s=181.4,
    warmup_steps_per_s=2_345.6,
    updates_per_s=45.3,
    episodes_per_h=612.0,
    samples_per_step=7.98,
    mean_return_100=-18.25,
    best_return=-12.0,
    greedy_return=-14.2,
    greedy_at_steps=120_000,
    epsilon=0.31,
    policy_entropy_nats=None,
    loss=0.01234,
    actor_weights_age_updates=0.0,
    replay_transitions=72_000,
    replay_capacity_transitions=100_000,
    replay_bytes=745_000_000,
    cpu_percent=187.0,
    rss_bytes=1_100_000_000,
    load_average=2.13,
    memory_available_bytes=5_200_000_000,
    disk_free_bytes=123_000_000_000,
    progress=0.25,
    remaining_s=11_100.0,
    roles=(RoleGauges("inline", 4711, 187.0, 1_100_000_000, 181.4, 45.3, {"envs": 0.4, "gather": 0.01}, 0.0),),
)
SEVERAL = replace(
    GAUGES,
    roles=(
        RoleGauges("supervisor", 1_234_566, 1.2, 310_000_000, None, None, {}, None),
        RoleGauges("learner", 1_234_567, 101.0, 1_310_000_000, None, 453.3, {"actors": 0.35, "gather": 0.02}, 0.0),
        RoleGauges("actor-0", 1_234_568, 71.0, 309_000_000, 1905.2, None, {"envs": 0.11, "learner": 0.25}, 12.4),
        RoleGauges("actor-10", None, None, None, None, None, {}, None, restarts=12),
        RoleGauges("evaluator", 1_234_570, 0.0, 308_000_000, 34.2, None, {"rest": 0.95}, None),
    ),
)

SHOWN = (
    *("123,456 steps", "181 steps/s", "45.3 updates/s", "replay ratio 7.98", "mean-100 −18.25", "best −12.0"),
    *("ε 0.310", "loss 0.0123", "72%", "745.00 MB", "CPU 187 %", "1.10 GB", "limit reached in 3 h 05 min"),
    *("−14.20 at step 120,000", "load 2.1", "memory free 5.20 GB", "disk free 123.00 GB", "envs 40 %"),
)


def panel(gauges: Gauges, *, width: int) -> list[str]:
    """Return the lines of a panel."""
    console = Console(file=io.StringIO(), width=width)
    console.print(render_panel("redline · dqn on pong · seed 1", gauges))
    lines: list[str] = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    return lines


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize(
    "text", [*SHOWN, "612 episodes/h", "25.0%", "72,000 of 100,000 transitions", "warm-up   2,346 steps/s"]
)
def test_the_panel_shows(text: str, width: int) -> None:
    lines = panel(GAUGES, width=width)
    assert any(text in line for line in lines)  # nothing is broken in two
    assert {len(line) for line in lines} == {width}


@pytest.mark.parametrize("width", [80, 120])
def test_several_processes_have_a_row_each_that_says_whom_they_wait_for(width: int) -> None:
    lines = [" ".join(line.strip("│ ").split()) for line in panel(SEVERAL, width=width)]
    at = lines.index("role pid CPU memory speed lag restarts waits for")
    assert lines[at + 1 : -1] == [
        "supervisor 1234566 1 % 310.0 MB – – 0 –",
        "learner 1234567 101 % 1.3 GB 453 updates/s 0.0 0 actors 35 %",
        "batch 2 %",
        "actor-0 1234568 71 % 309.0 MB 1,905 steps/s 12.4 0 learner 25 %",
        "envs 11 %",
        "actor-10 – – – – – 12 –",
        "evaluator 1234570 0 % 308.0 MB 34.2 steps/s – 0 idle 95 %",
    ]


def test_many_processes_do_not_fill_the_screen() -> None:
    lines = panel(replace(SEVERAL, roles=(SEVERAL.roles[3],) * 40), width=80)
    assert sum("actor-10" in line for line in lines) == 12
    assert any("28 more" in line for line in lines)


def test_what_is_waited_for_is_no_markup() -> None:
    role = replace(SEVERAL.roles[3], waiting={"[/x]": 0.5})
    assert any("[/x] 50 %" in line for line in panel(replace(SEVERAL, roles=(role, role)), width=120))


@pytest.mark.parametrize("extreme", [-1e38, 0, 1e38])
def test_no_number_is_too_large_or_too_small_to_be_shown(extreme: float) -> None:
    changes: dict[str, Any] = {name: extreme for name in Gauges.__dataclass_fields__ if name != "roles"}
    role = RoleGauges("a", 1, extreme, int(extreme), extreme, extreme, {"envs": extreme}, extreme)
    odd = replace(GAUGES, **changes, roles=(role, role))
    assert {len(line) for line in panel(odd, width=120)} == {120}
    assert " | limit reached in " in render_line(odd)


def test_a_line_says_who_waits_for_whom_and_not_who_rests() -> None:
    line = render_line(SEVERAL)
    waits = "waiting: learner waits for actors 35 %, batch 2 % · actor-0 waits for learner 25 %, envs 11 %"
    assert f" | {waits} | limit reached in " in line
    assert "evaluator" not in line


def test_what_a_machine_does_not_tell_is_left_out() -> None:
    silent = replace(GAUGES, load_average=None, memory_available_bytes=None, disk_free_bytes=None, greedy_return=None)
    for text in ("\n".join(panel(silent, width=120)), render_line(silent)):
        for word in ("load", "free", "machine", "eval", "solved", "None"):
            assert word not in text


@pytest.mark.parametrize("text", SHOWN)
def test_a_line_shows(text: str) -> None:
    assert text in " ".join(render_line(GAUGES).split())


def test_what_is_not_known_yet_is_a_dash() -> None:
    early = replace(
        GAUGES,
        loss=None,
        mean_return_100=None,
        best_return=None,
        greedy_return=None,
        samples_per_step=None,
        remaining_s=None,
    )
    assert "learning: mean-100 – · best – · ε 0.310 · loss –" in render_line(early)


def test_a_mean_of_fewer_than_100_episodes_says_of_how_many() -> None:
    assert "mean-100 −18.25 (n = 7)" in render_line(replace(GAUGES, episodes=7))
    assert "(n =" not in render_line(GAUGES)


def test_a_policy_shows_its_entropy_in_place_of_epsilon_and_no_replay() -> None:
    rollouts = replace(
        GAUGES,
        epsilon=None,
        policy_entropy_nats=1.2345,
        replay_transitions=None,
        replay_capacity_transitions=None,
        replay_bytes=None,
    )
    for text in ("\n".join(panel(rollouts, width=120)), render_line(rollouts)):
        assert "entropy 1.234 nats" in text
        assert "ε" not in text
        assert "replay" not in text


def test_time_left_has_its_interval_and_is_not_told_in_the_warm_up() -> None:
    sure = replace(GAUGES, remaining_low_s=9_000.0, remaining_high_s=13_500.0)
    for text in ("\n".join(panel(sure, width=80)), render_line(sure)):
        assert "limit reached in 3 h 05 min (2 h 30 min – 3 h 45 min)" in text
    same = replace(GAUGES, remaining_low_s=11_100.4, remaining_high_s=11_100.6)
    assert render_line(same).endswith("limit reached in 3 h 05 min")
    early = replace(GAUGES, updates=0, remaining_s=None)
    assert render_line(early).endswith("time left: known after the warm-up")
    assert render_line(replace(early, updates=1)).endswith("time left: known in a moment")
    assert render_line(replace(early, progress=None)).endswith("time left unknown")


@pytest.mark.parametrize("width", [80, 120])
def test_a_price_shows_the_money_so_far_and_to_come(width: int) -> None:
    assert "money" not in render_line(GAUGES)
    early = replace(GAUGES, price_per_hour=1.2, cost=0.05)
    assert "| money: $0.0500 so far |" in render_line(early)
    known = {"cost_remaining": 3.7, "cost_remaining_low": 3.0, "cost_remaining_high": 4.5}
    priced = replace(early, cost=1.25, **known, cost_per_million_steps=0.625)
    told = "$1.25 so far · $3.70 ($3.00 – $4.50) to come · $0.625 per million steps"
    assert f"| money: {told} |" in render_line(priced)
    assert told in " ".join(" ".join(panel(priced, width=width)).replace("│", " ").split())


def test_energy_is_shown_where_the_machine_tells_it() -> None:
    assert "energy" not in render_line(GAUGES)
    assert "| energy: 85 W · 1.25 kWh so far |" in render_line(replace(GAUGES, power_w=85.2, energy_j=4_500_000.0))
    assert "| energy: 500.00 Wh so far |" in render_line(replace(GAUGES, energy_j=1_800_000.0))


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


def test_small_money_has_more_digits() -> None:
    assert [money(amount) for amount in (15_600, 346.0, 1.005, 0.526, 0.065, 0)] == [
        *("$15,600.00", "$346.00", "$1.00", "$0.526", "$0.0650", "$0.00")
    ]

"""Hours, days and money: two known tables to the digit, limits and rates in every unit, and what is saved."""

import math
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from redline.cli.plan.time_table import assumptions
from redline.envs.game_lists import GameLimit, parse_games
from redline.errors import UserError
from redline.plan.time import (
    MANY,
    Bill,
    Interruptions,
    Projection,
    RateUnit,
    Span,
    Speed,
    busy_hours,
    compare,
    project,
    rounded,
)

# game: hours, days, cost at 20 and at 900 episodes an hour and $2 an hour
TABLES = {
    "ms_pacman": ((1_500, 62.5, 3_000), (33, 1.4, 66)),
    "asteroids": ((1_250, 52.1, 2_500), (28, 1.2, 56)),
    "seaquest": ((1_250, 52.1, 2_500), (28, 1.2, 56)),
    "beam_rider": ((1_000, 41.7, 2_000), (22, 0.9, 44)),
    "space_invaders": ((750, 31.3, 1_500), (17, 0.7, 34)),
    "enduro": ((750, 31.3, 1_500), (17, 0.7, 34)),
    "breakout": ((500, 20.8, 1_000), (11, 0.5, 22)),
    "boxing": ((500, 20.8, 1_000), (11, 0.5, 22)),
    "freeway": ((150, 6.3, 300), (3, 0.1, 6)),
    "pong": ((150, 6.3, 300), (3, 0.1, 6)),
    "total": ((7_800, 325, 15_600), (173, 7.2, 346)),
}


def speed(rate: float, unit: RateUnit = "steps/s", **more: Any) -> Speed:
    ends = {"low_rate": Decimal(str(rate)), "high_rate": Decimal(str(rate)), **more}
    return Speed(rate=Decimal(str(rate)), unit=unit, source="given", **ends)


def plan(games: list[GameLimit], found: Speed, **bill: Any) -> Projection:
    return project(games, {game.game: found for game in games}, Bill(**bill))


def ten(rate: int) -> Projection:
    return plan(list(parse_games("ten")), speed(rate, "episodes/h"), price_per_hour=Decimal(2))


@pytest.mark.parametrize(("place", "rate"), [(0, 20), (1, 900)])
def test_the_known_tables_come_out_to_the_digit(place: int, rate: int) -> None:
    content = ten(rate).to_json()
    rows = [*content["rows"], {**content["total"], "game": "total"}]
    found = {row["game"]: (row["hours"], row["days"], row["cost"]) for row in rows}
    assert found == {game: figures[place] for game, figures in TABLES.items()}
    assert content["total"]["limit"] == 156_000


def test_days_of_the_total_come_from_its_hours_not_from_the_days_of_the_rows() -> None:
    content = ten(900).to_json()
    assert sum(Decimal(str(row["days"])) for row in content["rows"]) == Decimal("7.3")
    assert content["total"]["days"] == 7.2


def test_what_is_saved_is_the_difference_of_what_is_shown() -> None:
    saving = compare(ten(20), ten(900))
    assert (saving.ratio, saving.hours, saving.days, saving.cost, saving.percent) == (45, 7_627, 318, 15_254, 98)


@pytest.mark.parametrize(
    ("value", "digits", "expected"), [("31.25", 1, "31.3"), ("0.5", 0, "1"), ("2.675", 2, "2.68"), ("1.4", 0, "1")]
)
def test_halves_are_rounded_up(value: str, digits: int, expected: str) -> None:
    assert rounded(Decimal(value), digits) == Decimal(expected)


def test_a_short_plan_keeps_three_digits() -> None:
    found = plan([GameLimit("pong", 360_000, "steps")], speed(80), price_per_hour=Decimal("0.526")).to_json()
    assert found["total"]["hours"] == 1.25
    assert found["total"]["days"] == 0.052
    assert found["total"]["cost"] == 0.66  # 1.25 × 0.526 = 0.6575


def test_limits_and_rates_meet_in_steps() -> None:
    episodes, steps = [GameLimit("pong", 3_600)], [GameLimit("pong", 3_600_000, "steps")]
    length = {"episode_steps": Decimal(1_000)}
    assert plan(steps, speed(100)).span.hours == 10  # 3.6 M steps ÷ 100/s = 36,000 s
    assert plan(episodes, speed(100, **length)).span.hours == 10
    assert plan(steps, speed(360, "episodes/h", **length)).span.hours == 10
    assert plan(episodes, speed(360, "episodes/h", **length)).span.hours == 10
    assert plan(episodes, speed(100, **length)).to_json()["rows"][0]["steps"] == 3_600_000


@pytest.mark.parametrize(("unit", "rate_unit"), [("episodes", "steps/s"), ("steps", "episodes/h")])
def test_episodes_and_steps_do_not_meet_without_a_length(unit: Any, rate_unit: Any) -> None:
    with pytest.raises(UserError, match="say how long an episode is with --episode-steps"):
        plan([GameLimit("pong", 3_000, unit)], speed(100, rate_unit))


def test_only_the_high_end_counts_on_longer_episodes_and_only_for_episodes() -> None:
    found = plan([GameLimit("pong", 900)], speed(90, "episodes/h"), episode_growth=Decimal(3)).span
    assert (found.low, found.hours, found.high) == (10, 10, 30)
    found = plan([GameLimit("pong", 3_600, "steps")], speed(1), episode_growth=Decimal(3)).span
    assert (found.low, found.hours, found.high) == (1, 1, 1)


def test_a_spread_of_rates_is_a_spread_of_hours() -> None:
    spread = {"low_rate": Decimal(50), "high_rate": Decimal(200)}
    found = plan([GameLimit("pong", 3_600_000, "steps")], speed(100, **spread)).span
    assert (found.low, found.hours, found.high) == (5, 10, 20)


def test_the_warm_up_has_a_speed_of_its_own() -> None:
    warm = speed(100, warmup_steps=36_000, warmup_steps_per_s=Decimal(1_000))
    found = plan([GameLimit("pong", 396_000, "steps")], warm)
    assert found.span.hours * 3_600 == 36 + 3_600
    assert any("first 36,000 steps are a warm-up at 1,000 steps/s" in words for words in assumptions(found))


def test_games_side_by_side_share_one_bill() -> None:
    games = [GameLimit(name, hours * 3_600, "steps") for name, hours in (("pong", 30), ("boxing", 10), ("enduro", 20))]
    found = plan(games, speed(1), concurrency=2, price_per_hour=Decimal(2)).to_json()
    total = found["total"]
    # 30 hours of pong on one side, 20 of enduro and 10 of boxing on the other
    assert (total["run_hours"], total["machine_hours"], total["hours"], total["cost"]) == (60, 30, 30, 60)
    assert [row["cost"] for row in found["rows"]] == [30, 10, 20]


def test_the_longest_games_begin_first() -> None:
    assert busy_hours([Decimal(2), Decimal(2), Decimal(4)], 2) == 4
    assert busy_hours([Decimal(1)], 8) == 1


def test_interruptions_are_part_of_the_hours_and_of_the_bill() -> None:
    spot = Interruptions(per_hour=0.1, restart_s=180, checkpoint_minutes=10, has_notice=False)
    found = plan([GameLimit("pong", 360_000, "steps")], speed(1), price_per_hour=Decimal(1), interruptions=spot)
    row = found.to_json()["rows"][0]
    assert row["lost_hours"] == 1.34  # 100 h × 0.1 × (5 + 3) min, and a little for what interrupts that
    assert (row["hours"], row["cost"], row["exact_hours"]) == (101, 101, pytest.approx(101.342, abs=1e-3))
    assert 0 < row["lost_low"] < row["lost_hours"] < row["lost_high"]
    assert any("5 min 00 s of work is lost without notice" in words for words in assumptions(found))


def test_a_slower_after_saves_less_than_nothing() -> None:
    games = [GameLimit("pong", 360_000, "steps")]
    saving = compare(plan(games, speed(2)), plan(games, speed(1)))
    assert (saving.ratio, saving.hours, saving.cost, saving.percent) == (Decimal("0.5"), -50, None, -100)


# Interruptions


def lost(found: Interruptions, work_hours: float) -> tuple[float, float, float]:
    """Return the mean, low and high hours that are lost."""
    span = found.lost(Span(*[Decimal(work_hours)] * 3))
    return float(span.hours), float(span.low), float(span.high)


def test_without_notice_each_costs_a_restart_and_half_an_interval() -> None:
    rare = Interruptions(per_hour=0.1, restart_s=180, checkpoint_minutes=10, has_notice=False)
    assert lost(rare, 100.0)[0] == pytest.approx(10 * 8 / 60, rel=0.01)


def test_work_that_is_done_again_may_be_interrupted_too() -> None:
    often = Interruptions(per_hour=2.0, restart_s=0, checkpoint_minutes=30, has_notice=False)
    # one per interval: e − 1 hours of training keep one hour
    assert lost(often, 10.0)[0] == pytest.approx(10 * (math.e - 2))


def test_with_notice_each_costs_a_restart_alone() -> None:
    rare = Interruptions(per_hour=0.1, restart_s=180, checkpoint_minutes=10, has_notice=True)
    # Poisson of mean 9: 3 or fewer with 2.1 %, 4 or fewer with 5.5 %; 13 or fewer with 92.6 %, 14 or fewer with 95.9 %
    assert lost(rare, 90.0) == pytest.approx((9 * 0.05, 4 * 0.05, 14 * 0.05))


def test_a_short_run_probably_loses_nothing_and_may_lose_one_restart() -> None:
    rare = Interruptions(per_hour=0.1, restart_s=360, checkpoint_minutes=5, has_notice=True)
    assert lost(rare, 1.0)[1:] == (0.0, pytest.approx(0.1))


@pytest.mark.parametrize(("work_hours", "per_hour"), [(5.0, 0.5), (40.0, 0.5), (1_000.0, 0.5), (40.0, 2.0)])
def test_nine_of_ten_simulated_runs_lie_in_the_interval(work_hours: float, per_hour: float) -> None:
    often = Interruptions(per_hour=per_hour, restart_s=120, checkpoint_minutes=20, has_notice=False)
    (mean_hours, low_hours, high_hours), rng = lost(often, work_hours), np.random.default_rng(1)
    inside, extras = 0, []
    for _ in range(500):
        left_hours, extra_hours = work_hours, 0.0
        while (until_hours := rng.exponential(1 / per_hour)) < left_hours:
            undone_hours = until_hours % (20 / 60)  # since the newest checkpoint of this process
            left_hours -= until_hours - undone_hours
            extra_hours += undone_hours + 120 / 3600
        inside += low_hours <= extra_hours <= high_hours
        extras.append(extra_hours)
    assert 440 <= inside <= 498
    assert mean_hours == pytest.approx(np.mean(extras), rel=0.05)


def test_very_many_interruptions_are_counted_as_few_are() -> None:
    often = Interruptions(per_hour=1.0, restart_s=36, checkpoint_minutes=1, has_notice=False)
    below, above = lost(often, MANY * 0.99), lost(often, MANY * 1.01)
    assert above[2] / below[2] == pytest.approx(1.01 / 0.99, rel=1e-3)
    mean, low, high = lost(often, 1e9)
    assert low < mean < high


def test_a_run_that_hardly_comes_to_its_next_checkpoint_is_refused() -> None:
    with pytest.raises(
        UserError, match=r"30 interruptions per hour, each of which undoes 2\.5 min, undo more than they"
    ):
        Interruptions(per_hour=30, restart_s=120, checkpoint_minutes=5, has_notice=False)
    # restarts may take longer than training: each hour of it costs two more
    assert lost(Interruptions(30, 240, 5, has_notice=True), 1.0)[0] == pytest.approx(2.0)

"""Hours and money of a fleet, before and after: to the digit as a table of prices has them."""

from decimal import Decimal

import pytest

from redline.envs.game_lists import TEN_GAMES
from redline.fleet.cost import Baseline, Cost, Work, cost_of, union_of
from redline.plan.time import Speed

PRICE = Decimal(2)
# game, hours, days and money at 20 episodes an hour, and at 900
TABLE = [
    ("ms_pacman", (1_500, 62.5, 3_000), (33, 1.4, 66)),
    ("asteroids", (1_250, 52.1, 2_500), (28, 1.2, 56)),
    ("seaquest", (1_250, 52.1, 2_500), (28, 1.2, 56)),
    ("beam_rider", (1_000, 41.7, 2_000), (22, 0.9, 44)),
    ("space_invaders", (750, 31.3, 1_500), (17, 0.7, 34)),
    ("enduro", (750, 31.3, 1_500), (17, 0.7, 34)),
    ("breakout", (500, 20.8, 1_000), (11, 0.5, 22)),
    ("boxing", (500, 20.8, 1_000), (11, 0.5, 22)),
    ("freeway", (150, 6.3, 300), (3, 0.1, 6)),
    ("pong", (150, 6.3, 300), (3, 0.1, 6)),
]
WORKS = [
    Work(game.game, steps=1_000 * (game.limit or 0), episodes=game.limit or 0, hours=Decimal(game.limit or 0) / 900)
    for game in TEN_GAMES
]
TOTAL = sum((work.hours for work in WORKS), Decimal())


def baseline(rate: int) -> Baseline:
    speed = Speed(Decimal(rate), "episodes/h", "given", Decimal(rate), Decimal(rate))
    return Baseline({work.game: speed for work in WORKS}, "episodes", 1, ())


def cost(rate: int | None, price: Decimal | None = PRICE) -> Cost:
    found = cost_of(WORKS, TOTAL, 1, price, None if rate is None else baseline(rate))
    assert found is not None
    return found


def test_ten_games_before_and_after_to_the_digit() -> None:
    found = cost(20)
    assert found.before is not None
    before, after = found.before.to_json(), found.after.to_json()
    told = [
        (row["game"], *(tuple(side[name] for name in ("hours", "days", "cost")) for side in (old, row)))
        for old, row in zip(before["rows"], after["rows"], strict=True)
    ]
    assert told == TABLE
    totals = [tuple(side["total"][name] for name in ("limit", "hours", "days", "cost")) for side in (before, after)]
    assert totals == [(156_000, 7_800, 325, 15_600), (156_000, 173, 7.2, 346)]
    assert found.saved is not None
    assert found.saved.describe() == "45 × as fast: 7,627 hours, 318 days, $15,254 less (98 %)"


def test_rates_are_those_of_the_fleet() -> None:
    after = cost(20).after.to_json()
    assert {(row["rate"], row["rate_unit"], row["rate_source"]) for row in after["rows"]} == {
        (900, "episodes/h", "run")
    }
    assert {row["episode_steps"] for row in after["rows"]} == {1_000}
    alone = cost(None)
    assert (alone.before, alone.saved) == (None, None)
    assert {(row["rate"], row["rate_unit"]) for row in alone.after.to_json()["rows"]} == {(250, "steps/s")}


def test_without_a_price_there_is_no_money() -> None:
    assert cost(20, price=None).after.to_json()["total"]["cost"] is None
    assert cost(20, price=None).saved.cost is None  # type: ignore[union-attr]


def test_runs_side_by_side_share_the_price() -> None:
    works = [Work("a", 100, 1, Decimal(30)), Work("b", 100, 1, Decimal(10))]
    found = cost_of(works, Decimal(20), 2, Decimal(3), None)
    assert found is not None
    told = found.after.to_json()
    assert [row["cost"] for row in told["rows"]] == [45, 15]  # half of 3 for each hour
    assert (told["total"]["hours"], told["total"]["run_hours"], told["total"]["cost"]) == (20, 40, 60)


def test_nothing_done_costs_nothing_and_saves_nothing() -> None:
    assert cost_of([], Decimal(), 1, PRICE, baseline(20)) is None
    found = cost_of([Work("pong", 100, 0, Decimal(1))], Decimal(1), 1, PRICE, baseline(20))  # no episode has ended
    assert found is not None
    assert found.saved is None


@pytest.mark.parametrize(
    ("spans", "seconds", "most"),
    [
        ([], 0, 0),
        ([(0, 2), (1, 3), (5, 6)], 4, 2),
        ([(0, 10), (2, 3), (2, 4), (9, 12)], 12, 3),
        ([(0, 1), (1, 2)], 2, 1),
    ],
)
def test_time_of_several_runs_counts_once(spans: list[tuple[float, float]], seconds: float, most: int) -> None:
    assert union_of(spans) == (seconds, most)
    naive = {at for begin, end in spans for at in range(int(begin), int(end))}
    assert len(naive) == seconds

"""Machines read, ranked and refused, and speeds by the number of cores, worked by hand."""

from typing import Any

import pytest

from redline.errors import UserError
from redline.plan.machines import (
    EXTRAPOLATED,
    INTERPOLATED,
    MEASURED,
    SYSTEM_BYTES,
    CoresSpeed,
    Enough,
    Machine,
    Needs,
    Ranking,
    Scaling,
    counts_to_measure,
    machines_in,
    rank,
    scaling_of,
)
from redline.replay import ReplayLayout
from redline.replay.layout import RESERVE_BYTES

GB = 10**9
ON_1, ON_2 = 1_000_000 / 3_600, 2_000_000 / 3_600  # steps/s: a million in one hour, and in half an hour
SCALING = Scaling({1: CoresSpeed(ON_1, ON_1, ON_1, MEASURED), 2: CoresSpeed(ON_2, ON_1, ON_2, MEASURED)})
SMALL = Needs(processes_bytes=GB, layout=None)


def machine(name: str, *, cores: int, price: float, memory_gb: float = 8, gpu: str | None = None) -> Machine:
    return Machine(name, cores, round(memory_gb * GB), price, gpu)


def names(ranking: Ranking) -> list[str]:
    return [row.machine.name for row in ranking.rows]


def test_machines_are_ranked_by_the_money_of_a_million_steps() -> None:
    found = rank(
        [machine("one", cores=1, price=0.5), machine("two", cores=2, price=0.8), machine("dear", cores=2, price=3)],
        SCALING,
        SMALL,
    )
    assert [(row.machine.name, row.hours, row.cost) for row in found.rows] == [
        ("two", pytest.approx(0.5), pytest.approx(0.4)),
        ("one", pytest.approx(1.0), pytest.approx(0.5)),
        ("dear", pytest.approx(0.5), pytest.approx(1.5)),
    ]
    two = found.rows[0].to_json()
    assert (two["low_hours"], two["high_hours"]) == (pytest.approx(0.5), pytest.approx(1.0))
    assert (two["low_cost"], two["high_cost"]) == (pytest.approx(0.4), pytest.approx(0.8))


def test_the_quickest_may_be_extrapolated_and_the_cheapest_that_is_not_is_told_beside_it() -> None:
    rows = [machine("two", cores=2, price=0.8), machine("four", cores=4, price=0.6)]
    found = rank(rows, SCALING, SMALL)  # no serial part: four cores need a quarter of an hour, or half of one at worst
    assert found.cheapest is found.quickest is found.rows[0]
    four = found.rows[0].to_json()
    assert (four["name"], four["basis"], four["cost_per_1m_steps"]) == ("four", "extrapolated", pytest.approx(0.15))
    assert four["high_hours"] == pytest.approx(1.0)
    assert found.cheapest_not_extrapolated is found.rows[1]


def test_a_gpu_was_not_measured_and_is_never_the_best() -> None:
    rows = [machine("gpu", cores=2, price=0.1, gpu="T4"), machine("cpu", cores=2, price=0.2)]
    found = rank(rows, SCALING, SMALL)
    assert names(found) == ["gpu", "cpu"]
    assert found.rows[0].to_json()["gpu_measured"] is False
    assert found.cheapest is not None
    assert found.quickest is not None
    assert (found.cheapest.machine.name, found.quickest.machine.name) == ("cpu", "cpu")


def raw_replay(capacity: int) -> ReplayLayout:
    return ReplayLayout(
        capacity=capacity, frame_shape=(84, 84), frame_dtype="uint8", stack=4, lanes=1, codec="raw", budget_bytes=None
    )


def test_a_machine_without_the_memory_is_last_and_told_the_largest_replay_that_fits() -> None:
    layout = raw_replay(1_000_000)  # 7,056 bytes a frame
    needs = Needs(processes_bytes=GB, layout=layout)
    assert needs.memory_bytes == SYSTEM_BYTES + GB + layout.ram_bytes
    rows = [machine("small", cores=1, price=0.01, memory_gb=4), machine("large", cores=1, price=1, memory_gb=16)]
    found = rank(rows, SCALING, needs)
    assert [(row.machine.name, row.fits) for row in found.rows] == [("large", True), ("small", False)]
    assert found.rows[0].largest_capacity == 1_000_000
    largest = found.rows[1].largest_capacity
    assert largest == 340_000  # of 2.5 GB, with 3 % more for final frames and tables
    assert (
        SYSTEM_BYTES + GB + raw_replay(340_000).ram_bytes <= 4 * GB < SYSTEM_BYTES + GB + raw_replay(350_000).ram_bytes
    )
    assert found.cheapest is found.rows[0]


def test_a_small_program_still_needs_the_reserve_that_a_run_asks_for_at_its_start() -> None:
    assert Needs(processes_bytes=1, layout=None).memory_bytes == SYSTEM_BYTES + RESERVE_BYTES


def test_nothing_is_the_best_where_nothing_fits() -> None:
    found = rank([machine("tiny", cores=1, price=1, memory_gb=0.5)], SCALING, SMALL)
    assert (found.cheapest, found.quickest, found.rows[0].largest_capacity) == (None, None, None)


ROW: dict[str, Any] = {"name": "a", "cores": 4, "memory_gb": 7.5, "price_per_hour": 0.179}


def test_a_file_is_read_with_its_units() -> None:
    found = machines_in({"machine": [ROW, {**ROW, "name": "b", "gpu": "T4"}]}, "m.toml")
    assert found[0] == Machine("a", 4, 7_500_000_000, 0.179, None)
    assert found[1].gpu == "T4"


BAD: list[tuple[dict[str, Any], str]] = [
    ({}, "m.toml names 0 machines: write 1 to 1_000 tables [[machine]]"),
    ({"machine": []}, "m.toml names 0 machines"),
    ({"machine": {"name": "a"}}, "machine is no list of tables: begin each machine with [[machine]]"),
    ({"machine": ["a"]}, "machine is no list of tables"),
    ({"machines": [ROW]}, "unknown key 'machines': did you mean machine?"),
    (
        {"machine": [{**ROW, "price_per_hou": 3}]},
        "m.toml, machine 1: unknown key 'price_per_hou': did you mean price_per_hour?",
    ),
    ({"machine": [{"name": "a", "cores": 4}]}, "memory_gb is missing"),
    ({"machine": [{**ROW, "price_per_hour": -1}]}, "price_per_hour is -1: use 0 to 100_000"),
    ({"machine": [{**ROW, "price_per_hour": float("nan")}]}, "price_per_hour is nan: use 0 to 100_000"),
    ({"machine": [{**ROW, "price_per_hour": "0.5"}]}, "price_per_hour is '0.5': use a number"),
    ({"machine": [{**ROW, "price_per_hour": True}]}, "price_per_hour is True: use a number"),
    ({"machine": [{**ROW, "cores": 0}]}, "cores is 0: use 1 to 1_024"),
    ({"machine": [{**ROW, "cores": 2.5}]}, "cores is 2.5: use a whole number"),
    ({"machine": [{**ROW, "memory_gb": 0}]}, "memory_gb is 0: use 0.1 to 100_000"),
    ({"machine": [{**ROW, "name": " "}]}, "name is ' ': use a short text"),
    ({"machine": [{**ROW, "name": "a\x1b[2J"}]}, "name is 'a\\x1b[2J': use a short text"),
    ({"machine": [{**ROW, "gpu": False}]}, "gpu is False: use a short text"),
    ({"machine": [ROW, ROW]}, "m.toml has two machines 'a': give each a name of its own"),
]


@pytest.mark.parametrize(("content", "message"), BAD, ids=[message for _, message in BAD])
def test_a_file_with_a_mistake_is_refused_in_one_line(content: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as error:
        machines_in(content, "m.toml")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


# Speeds by the number of cores


def scaling(**steps_per_s: float) -> Scaling:
    """Return a scaling without spread: `on_2=125` means 125 steps/s with two cores."""
    found = {int(name.removeprefix("on_")): rate for name, rate in steps_per_s.items()}
    return Scaling({cores: CoresSpeed(rate, 0.9 * rate, 1.1 * rate, MEASURED) for cores, rate in found.items()})


def test_a_measured_count_is_what_was_measured() -> None:
    assert scaling(on_1=100, on_2=160).speed(2) == CoresSpeed(160, 144, 176, MEASURED)


def test_beyond_the_last_count_amdahls_law_is_the_estimate_and_no_gain_the_low_end() -> None:
    found = scaling(on_1=100, on_2=160)  # 10 and 6.25 ms: 2.5 ms serial, 7.5 ms shared
    assert (found.serial_s, found.parallel_s) == pytest.approx((0.0025, 0.0075))
    on_4 = found.speed(4)  # 2.5 + 7.5 / 4 = 4.375 ms
    assert on_4.steps_per_s == pytest.approx(1000 / 4.375)
    assert on_4.low_steps_per_s == pytest.approx(144)
    assert on_4.high_steps_per_s == pytest.approx(1.1 * 1000 / 4.375)
    assert on_4.basis == EXTRAPOLATED


def test_cores_that_gained_nothing_are_not_thought_to_gain_later() -> None:
    slower = scaling(on_1=100, on_2=90)
    assert slower.parallel_s == 0.0
    assert slower.speed(64).steps_per_s == pytest.approx(90)


def test_cores_can_share_no_more_than_the_whole_step() -> None:
    superlinear = scaling(on_1=100, on_2=210)
    assert superlinear.serial_s == 0.0
    assert superlinear.speed(4).steps_per_s == pytest.approx(420)


def test_many_cores_are_no_faster_than_twice_the_measured_ones_but_for_the_high_end() -> None:
    found = scaling(on_1=100, on_2=190)  # 10 and 5.26 ms: 0.526 ms serial, 9.47 ms shared
    on_4, on_96 = found.speed(4), found.speed(96)
    assert on_96.steps_per_s == on_4.steps_per_s == pytest.approx(345.5, abs=0.1)
    assert on_96.high_steps_per_s == pytest.approx(1.1 * 1_600, abs=1)  # 0.625 ms
    assert on_96.low_steps_per_s == pytest.approx(0.9 * 190)


def test_where_cores_stop_paying_far_beyond_the_measured_is_not_told() -> None:
    assert scaling(on_1=100, on_2=190).enough() is None  # by Amdahl's law 15 cores


def test_one_core_tells_nothing_of_more() -> None:
    alone = scaling(on_1=100)
    on_8 = alone.speed(8)
    assert (on_8.low_steps_per_s, on_8.steps_per_s, on_8.high_steps_per_s) == pytest.approx((90, 100, 8 * 110))
    assert alone.enough() is None


def test_between_two_counts_the_time_is_linear_in_the_share_of_a_core() -> None:
    found = scaling(on_1=100, on_2=200, on_4=250).speed(3)  # 5 and 4 ms; 1/3 lies a third of the way from 1/4 to 1/2
    assert found.steps_per_s == pytest.approx(1000 / (4 + 1 / 3))
    assert found.basis == INTERPOLATED


def test_more_cores_are_enough_where_the_next_adds_less_than_five_percent() -> None:
    measured = scaling(on_1=100, on_2=160, on_3=164, on_4=200).enough()
    assert measured is not None
    assert (measured.cores, measured.basis) == (2, MEASURED)
    assert measured.next_gain == pytest.approx(0.025)
    beyond = scaling(on_1=100, on_2=125).enough()  # 10, 8, then 7.33 and 7 ms by Amdahl's law
    assert beyond is not None
    assert (beyond.cores, beyond.basis) == (3, EXTRAPOLATED)
    assert beyond.next_gain == pytest.approx(7.333 / 7 - 1, abs=1e-3)
    assert scaling(on_1=100, on_2=103).enough() == Enough(1, pytest.approx(0.03), MEASURED)


def test_rounds_give_a_median_and_the_range_of_nine_tenths_of_them() -> None:
    rounds = [float(rate) for rate in range(100, 121)]
    assert scaling_of({2: rounds, 1: [50.0]}).measured == {
        1: CoresSpeed(50.0, 50.0, 50.0, MEASURED),
        2: CoresSpeed(110.0, 101.0, 119.0, MEASURED),
    }


@pytest.mark.parametrize(
    ("usable", "wanted", "counts"),
    [
        (1, (2, 8), (1,)),
        (2, (2, 96), (1, 2)),
        (4, (), (1, 2, 3, 4)),
        (64, (4, 8, 16, 96), (1, 2, 3, 4, 5, 8, 16, 64)),
    ],
)
def test_counts_are_one_all_the_wanted_and_the_small_ones(
    usable: int, wanted: tuple[int, ...], counts: tuple[int, ...]
) -> None:
    assert counts_to_measure(usable, wanted) == counts

"""Machines read, ranked and refused, with hours and money worked by hand."""

from typing import Any

import pytest

from redline.errors import UserError
from redline.plan.machines import SYSTEM_BYTES, Machine, Needs, Ranking, machines_in, rank
from redline.plan.scaling import MEASURED, CoresSpeed, Scaling
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
    ({"machine": [{**ROW, "price_per_hour": float("nan")}]}, "price_per_hour is nan: use a number"),
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

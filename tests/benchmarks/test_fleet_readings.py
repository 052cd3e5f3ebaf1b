"""Fleets that are measured: how speeds are read and compared, and what counts as a fault that was told."""

from argparse import Namespace
from typing import Any

import pytest

import fleet_health
import fleet_packing
from recording import make_record


def reading(unix_s: float, steps: float) -> dict[str, Any]:
    return {"unix_s": unix_s, "steps": steps}


ROWS = [reading(100.0, 0), reading(105.0, 500), reading(110.0, 600)]


@pytest.mark.parametrize(
    ("unix_s", "steps"), [(100.0, 0.0), (102.5, 250.0), (105.0, 500.0), (107.5, 550.0), (110.0, 600.0)]
)
def test_steps_between_two_readings_grow_evenly(unix_s: float, steps: float) -> None:
    assert fleet_packing.reading_at(ROWS, "steps", unix_s) == steps


def side(steps_per_s: float, concurrency: int = 2) -> dict[str, Any]:
    return {"steps_per_s": steps_per_s, "concurrency": concurrency, "samples_per_step": 8.0}


PACKED = [
    {"chosen": side(190.0), "1": side(150.0), "2": side(200.0), "3": side(180.0)},
    {"chosen": side(198.0), "1": side(150.0), "2": side(200.0), "3": side(250.0)},
    {"chosen": side(220.0), "1": side(150.0), "2": side(200.0), "3": side(180.0)},
]
PACKING = Namespace(workload="ppo-pong", seconds=60.0, rounds=3)


def test_the_choice_is_compared_with_the_number_that_is_best_over_all_rounds() -> None:
    summary = fleet_packing.summary_of(PACKED)
    assert summary["best_fixed"] == 2
    assert summary["ratio"]["median"] == pytest.approx(0.99)
    assert fleet_packing.measurement(PACKING, PACKED).passed is True


def test_a_choice_that_is_too_slow_does_not_pass() -> None:
    slow = [row | {"chosen": side(180.0)} for row in PACKED]
    assert fleet_packing.measurement(PACKING, slow).passed is False


TOLD: dict[str, Any] = {"fault": "leak", "after_s": 40.0, "message": "it grows", "false_before": []}
HEALTHY: dict[str, Any] = {
    "minutes": 30.0,
    "incidents": [],
    "supervisor_cores": 0.004,
    "supervisor_peak_bytes": 40_000_000,
    "most_runs_at_a_time": 10,
    "steps": 1_000,
    "mean_returns": [200.0, None],
}
WATCHED = Namespace(faults=["leak"], minutes=30.0, runs=10)


@pytest.mark.parametrize(
    ("planted", "healthy", "passed"),
    [
        (TOLD, HEALTHY, True),
        (TOLD, None, True),
        (TOLD | {"after_s": 61.0}, HEALTHY, False),
        (TOLD | {"after_s": None}, HEALTHY, False),
        (TOLD | {"false_before": ["hang"]}, HEALTHY, False),
        ({"fault": "disk", "skipped": "mounting a small disk needs root"}, HEALTHY, True),
        (TOLD, HEALTHY | {"incidents": [{"kind": "hang", "slot": "a", "message": "b"}]}, False),
        (TOLD, HEALTHY | {"supervisor_cores": 0.02}, False),
        (TOLD, HEALTHY | {"supervisor_peak_bytes": 200_000_000}, False),
    ],
)
def test_a_fault_must_be_told_in_time_and_a_healthy_fleet_be_quiet_and_cheap(
    planted: dict[str, Any], healthy: dict[str, Any] | None, passed: bool
) -> None:
    assert fleet_health.measurement(WATCHED, [planted], healthy).passed is passed


def test_records_can_be_made_of_both() -> None:
    for measurement in (
        fleet_packing.measurement(PACKING, PACKED),
        fleet_health.measurement(WATCHED, [TOLD], HEALTHY),
    ):
        assert make_record(measurement, argv=["x.py"], unix_s=0.0)["name"].startswith("fleet-")

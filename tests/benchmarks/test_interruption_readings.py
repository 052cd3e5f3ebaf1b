"""Interrupted runs: what is read out of the lives of their processes, and how it is judged."""

from typing import Any

import pytest

import interruptions
from interruptions import Life
from recording import make_record

LIVES = [Life(9.0, 5.0, 1.0), Life(3.0, 8.0, 3.0), Life(5.0, 10.0, 2.0), Life(4.0, 0.0, 7.0)]


def test_the_first_start_is_no_restart_and_calibrating_lives_do_not_count() -> None:
    found = interruptions.read_lives(LIVES, calibrate=2, has_notice=False)
    assert found == {"interruptions": 2, "kept_s": 10.0, "extra_s": 18.0, "restart_s": 3.0}


def test_with_notice_saving_is_a_part_of_the_restart() -> None:
    assert interruptions.read_lives(LIVES, calibrate=2, has_notice=True)["restart_s"] == 2.0 + 3.0


@pytest.mark.parametrize(
    ("count", "extra_s", "name", "passed"),
    [(60, 250.0, "interruptions", True), (60, 301.0, "interruptions", False), (5, 250.0, "interruptions-tried", None)],
)
def test_a_hundred_interruptions_are_judged_by_the_printed_interval(
    count: int, extra_s: float, name: str, passed: bool | None
) -> None:
    seen: dict[str, Any] = {"interruptions": count, "extra_s": extra_s, "kept_s": 900.0, "restart_s": 4.0, "steps": 9}
    seen |= {"low_s": 200.0, "high_s": 300.0, "hours_s": 240.0, "lives": []}
    found = interruptions.measurement(interruptions.parse([]), [{"way": way, **seen} for way in ("sigterm", "kill")])
    assert (found.name, found.passed) == (name, passed)
    make_record(found, argv=["x.py"], unix_s=0.0)


def test_the_interval_is_the_one_that_the_command_prints(tmp_path: Any) -> None:
    options = interruptions.parse(["--gap-seconds", "36"])  # 100 an hour
    found = {"kept_s": 3_600.0, "restart_s": 3.6}
    printed = interruptions.printed_interval(options, way="sigterm", found=found, log=tmp_path / "log")
    assert printed["hours_s"] == pytest.approx(100 * 3.6, rel=0.01)
    assert printed["low_s"] < printed["hours_s"] < printed["high_s"]

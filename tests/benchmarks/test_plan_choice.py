"""The sweep against a choice: which pairs are tried, which rows count, and when a choice is good."""

from pathlib import Path
from typing import Any

import pytest

import plan_choice
from plan_choice import CASES, measurement, promising_pairs, read_done
from redline.jsonl import RecordWriter
from redline.runs.host import commit

THREADS, AHEAD, RAW = {"learner.threads": 1}, {"replay.prefetch": 1}, {"replay.codec": "raw"}
SINGLE = {"--learner.threads 1": THREADS, "--replay.prefetch 1": AHEAD, "--replay.codec raw": RAW}


def test_pairs_that_should_reach_the_choice_are_tried_the_likeliest_first() -> None:
    # the choice is one thread, 1.25 × as fast as the default
    ratios = {"default": 0.8, "--replay.prefetch 1": 0.8, "--replay.codec raw": 0.88}
    assert list(promising_pairs(SINGLE, ratios, THREADS)) == [
        "--learner.threads 1 --replay.codec raw",  # 1 × 0.88 / 0.8
        "--learner.threads 1 --replay.prefetch 1",  # 1 × 0.8 / 0.8
    ]  # prefetch and raw together: 0.8 × 0.88 / 0.8 is below 0.9


def test_pairs_of_a_way_that_was_not_measured_or_of_one_knob_are_left_out() -> None:
    ratios = {"--learner.threads 1": 1.0, "--learner.threads 2": 1.0}
    single = {**SINGLE, "--learner.threads 2": {"learner.threads": 2}}
    assert promising_pairs(single, ratios, {}) == {}


def row(case: str, *, is_good: bool = True, **facts: Any) -> dict[str, Any]:
    base = {"case": case, "commit": commit(), "seconds": 115.0, "took_s": 100.0, "is_good": is_good, "better": {}}
    return {**base, **facts}


def test_only_rows_of_this_version_and_budget_count_as_done(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    assert read_done(path, seconds=115.0) == {}
    with RecordWriter(path) as rows:
        for found in (row("tiny"), row("pong", commit="another"), row("load", seconds=60.0)):
            rows.write(found)
    assert list(read_done(path, seconds=115.0)) == ["tiny"]


@pytest.mark.parametrize(("bad", "passed"), [(1, True), (2, False)])
def test_nine_of_ten_choices_must_be_good(bad: int, passed: bool) -> None:
    rows = [row(case, is_good=number >= bad) for number, case in enumerate(CASES)]
    assert measurement(rows, seconds=115.0, rounds=10).passed is passed
    assert measurement(rows[:3], seconds=115.0, rounds=10).passed is None


def test_the_cases_are_ten() -> None:
    assert len(CASES) == 10
    assert plan_choice.CASE_S == 2 * plan_choice.CHOICE_S

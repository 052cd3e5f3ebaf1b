"""Runs that told how long they would take: what is read out of their records, and how it is judged."""

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

import projection
from projection import Judged, Projection
from recording import make_record

BEGUN = 1_000.0


def reading(at_s: float, steps: int, **left: float | None) -> dict[str, Any]:
    return {"unix_s": BEGUN + at_s, "steps": steps, **left}


def event(name: str, at_s: float, **details: str) -> dict[str, Any]:
    return {"event": name, "unix_s": BEGUN + at_s, **details}


ROWS = [
    reading(10.0, 900, remaining_s=None),
    reading(15.0, 1_100, remaining_s=75.0, remaining_low_s=60.0, remaining_high_s=84.0),
    reading(60.0, 5_000, remaining_s=42.0, remaining_low_s=35.0, remaining_high_s=50.0),
    reading(99.0, 10_000, remaining_s=0.0),
]
EVENTS = [
    *(event("start", 0.0), event("checkpoint", 0.5), event("checkpoint", 50.0)),
    *(event("stop", 99.5, reason="max-steps 10,000 reached"), event("checkpoint", 100.0)),
]


def test_a_run_takes_from_its_start_to_its_last_checkpoint() -> None:
    assert projection.span_of(EVENTS) == (BEGUN, BEGUN + 100.0)


@pytest.mark.parametrize("extra", [event("resume", 50.0), event("stop", 50.0, reason="SIGTERM")])
def test_a_run_that_was_interrupted_is_not_judged(extra: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"one invocation|did not reach"):
        projection.span_of([EVENTS[0], extra, *EVENTS[1:]])


def test_the_first_reading_after_a_share_of_the_steps_is_held_against_what_came() -> None:
    times = {"begun_unix_s": BEGUN, "ended_unix_s": BEGUN + 100.0}
    early = projection.judge_rows(ROWS, **times, share=0.1)
    assert (early.projected_s, early.error, early.is_within) == (90.0, pytest.approx(-0.1), False)
    half = projection.judge_rows(ROWS, **times, share=0.5)
    assert (half.projected_s, half.error, half.is_within) == (102.0, pytest.approx(0.02), True)
    warmup = projection.judge_rows(ROWS, **times, share=0.05)
    assert (warmup.projected_s, warmup.error, warmup.is_within) == (None, None, None)


def judged(*errors: float | None, is_quiet: bool = True) -> Judged:
    found = [
        Projection(
            share, None if error is None else 100.0, error, is_within=None if error is None else abs(error) < 0.04
        )
        for share, error in zip((0.1, 0.5), errors, strict=True)
    ]
    return Judged("dqn", "pong", 1, "c0ffee", 10_000, 100.0, 0.1, is_quiet, -20.0, tuple(found))


def test_a_run_comes_back_from_its_row() -> None:
    run = judged(-0.08, None)
    assert projection.as_judged(json.loads(json.dumps(asdict(run)))) == run


def test_the_worst_of_enough_runs_on_a_quiet_machine_decides() -> None:
    good = [judged(-0.08, 0.03)] * 6
    found = projection.measurement(good)
    assert found.passed is True
    assert found.headline == "8.0% at 10% of the steps, 3.0% at 50% of the steps"
    assert found.summary["within_interval"] == 0.5
    assert make_record(found, argv=["projection.py", "runs"], unix_s=0.0)["passed"] is True
    assert projection.measurement([*good, judged(0.0, 0.06)]).passed is False
    assert projection.measurement([*good, judged(None, 0.01)]).passed is False
    assert projection.measurement(good[:3]).passed is None
    assert projection.measurement([*good, replace(good[0], is_quiet=False)]).passed is None

"""Runs that are stopped: what is read out of their records, and how it is judged."""

from typing import Any

import pytest

import preemption
from recording import make_record
from redline_process import Ending


def reading(time_s: float, steps: int, updates: int) -> dict[str, Any]:
    row = {"time_s": time_s, "unix_s": 1_000.0 + time_s, "steps": steps, "updates": updates, "load_average": 2.0}
    row |= {"rss_bytes": 100, "replay_transitions": steps, "replay_capacity_transitions": 10_000}
    return row | {"samples_per_step": 8.0, "mean_return_100": None, "roles": [{"role": "learner", "rss_bytes": 50}]}


STOPPED = preemption.Stopped(
    seconds_to_exit=4.0,
    exit_code=75,
    steps=1_000_400,
    updates=100,
    time_s=600.0,
    replay_transitions=999_990,
    checkpoint_age_s=200.0,
    bytes_on_disk=100_000_000,
)
RESUMED = preemption.Resumed(
    exit_code=0,
    learner_back_after_s=8.0,
    steps_seen_after_s=10.0,
    replay_transitions=999_990,
    steps=1_002_400,
    updates=600,
)


def test_learning_counts_from_when_the_memory_is_full() -> None:
    rows = [reading(10.0, 500, 0), reading(15.0, 900, 0), reading(20.0, 1_000, 1), reading(25.0, 1_040, 9)]
    assert preemption.learning_since_s(rows[:2], transitions=1_000) is None
    assert preemption.learning_since_s(rows, transitions=1_000) == 5.0


def test_what_was_stopped_is_read_from_the_last_reading_and_the_checkpoint_before() -> None:
    events = [{"event": name, "unix_s": unix_s} for name, unix_s in [("checkpoint", 1_000.0), ("checkpoint", 1_300.0)]]
    events += [{"event": "stop", "unix_s": 1_420.0}, {"event": "checkpoint", "unix_s": 1_422.0}]
    found = preemption.read_stopped(Ending(75, 3.5), [reading(420.0, 5_000, 40)], events, bytes_on_disk=7)
    assert (found.checkpoint_age_s, found.seconds_to_exit, found.exit_code) == (120.0, 3.5, 75)
    assert (found.steps, found.updates, found.replay_transitions) == (5_000, 40, 5_000)


def test_what_was_resumed_is_read_from_the_readings_after_its_start() -> None:
    rows = [reading(600.0, 1_000_400, 100), reading(600.5, 1_000_400, 100), reading(605.5, 1_001_000, 250)]
    rows = [row | {"unix_s": unix_s} for row, unix_s in zip(rows, (1_600.0, 2_009.0, 2_014.0), strict=True)]
    found = preemption.read_resumed(Ending(0, 30.0), STOPPED, rows, started_unix_s=2_000.0)
    assert (found.learner_back_after_s, found.steps_seen_after_s) == (8.5, 14.0)
    assert (found.steps, found.updates, found.exit_code) == (1_001_000, 250, 0)


@pytest.mark.parametrize(
    ("stopped", "resumed", "fault"),
    [
        ({"exit_code": 1}, {}, "after SIGTERM was 1"),
        ({"seconds_to_exit": 21.0}, {}, "took 21.0 s"),
        ({"replay_transitions": 900_000}, {}, "only 900,000"),
        ({}, {"exit_code": 1}, "of the resume was 1"),
        ({}, {"replay_transitions": 0}, "0 transitions were brought back"),
        ({}, {"steps": 1_000_400, "updates": 100}, "ended at step 1,000,400"),
    ],
)
def test_every_broken_promise_is_a_fault(stopped: dict[str, Any], resumed: dict[str, Any], fault: str) -> None:
    def faults(before: preemption.Stopped, after: preemption.Resumed) -> list[str]:
        return preemption.find_faults(before, after, transitions=1_000_000, more_steps=2_000)

    assert faults(STOPPED, RESUMED) == []
    found = faults(
        preemption.Stopped(**{**vars(STOPPED), **stopped}), preemption.Resumed(**{**vars(RESUMED), **resumed})
    )
    assert any(fault in text for text in found)


def test_a_smaller_memory_is_only_a_trial() -> None:
    options = preemption.parse(["--transitions", "5000"])
    found = preemption.measurement(options, ["--env", "pong"], STOPPED, RESUMED)
    assert (found.name, found.passed) == ("preemption-tried", None)
    found = preemption.measurement(preemption.parse([]), ["--env", "pong"], STOPPED, RESUMED)
    assert (found.name, found.passed) == ("preemption", True)
    make_record(found, argv=["x.py"], unix_s=0.0)

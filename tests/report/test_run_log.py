"""Where a run's time went, what was set and what happened, by numbers worked by hand."""

from pathlib import Path

import pytest
from made_runs import event, facts, made_run, reading

from redline.report.run_log import (
    Change,
    changes_of,
    event_table,
    parse_adjustment,
    phase_split,
    process_shares,
    settings_of,
)
from redline.types import Adjustment


def test_phases_add_up_to_the_wall_clock(tmp_path: Path) -> None:
    # 100 s of training, halted for 20 s of evaluation, and 5 s to begin and 3 s to end
    warm = {"warmup_steps_per_s": 50.0}
    metrics = [reading(50.0, **warm), {**reading(100.0, **warm), "unix_s": reading(125.0)["unix_s"]}]
    events = [
        event(2.0, "start"),
        event(4.0, "checkpoint", stalled_s=2.0) | {"time_s": 0.0},
        event(5.0, "process"),
        event(60.0, "checkpoint", stalled_s=4.0),
        event(90.0, "evaluation", number=1, duration_s=20.0),
        event(125.0, "stop"),
        event(128.0, "checkpoint", stalled_s=3.0) | {"time_s": 100.0},
    ]
    split = phase_split(made_run(tmp_path / "run", facts(warmup_steps=1_000), metrics=metrics, events=events))
    assert split.phases_s == pytest.approx(
        {"warm-up": 20.0, "learning": 100.0 - 20.0 - 4.0, "evaluation": 20.0, "checkpoint": 9.0, "rest": 3.0}
    )
    assert sum(split.phases_s.values()) == pytest.approx(128.0)
    assert split.beside_s == {}


def test_an_evaluator_of_its_own_takes_no_time_from_the_run(tmp_path: Path) -> None:
    events = [event(0.0, "start"), event(50.0, "evaluation", duration_s=30.0)]
    split = phase_split(made_run(tmp_path / "run", facts(topology="async"), metrics=[reading(60.0)], events=events))
    assert split.phases_s == {"learning": 60.0}
    assert split.beside_s == {"evaluation": 30.0}


def test_before_the_first_update_all_is_warm_up(tmp_path: Path) -> None:
    metrics = [reading(30.0, updates=0, warmup_steps_per_s=100.0)]
    split = phase_split(made_run(tmp_path / "run", facts(warmup_steps=50_000), metrics=metrics))
    assert split.phases_s == {"warm-up": 30.0}


def test_foreign_code_has_no_phases(tmp_path: Path) -> None:
    split = phase_split(made_run(tmp_path / "run", events=[event(0.0, "monitor-start")]))
    assert (split.phases_s, split.beside_s, split.processes) == ({}, {}, [])


def test_shares_of_a_process_are_weighed_by_time_and_the_rest_is_named() -> None:
    metrics = [
        reading(5.0, roles=[{"role": "learner", "waiting": {"actors": 0.4}, "busy": {"learn": 0.6}}]),
        reading(20.0, roles=[{"role": "learner", "waiting": {"actors": 0.1}, "busy": {"learn": 0.5}}]),
    ]
    [shares] = process_shares(metrics)
    # the second row tells of its last 10 s only
    assert shares.seconds == 15.0
    assert shares.waiting == pytest.approx({"actors": (5 * 0.4 + 10 * 0.1) / 15})
    assert shares.busy == pytest.approx({"learn": (5 * 0.6 + 10 * 0.5) / 15})
    assert shares.unaccounted == pytest.approx(10 * 0.4 / 15)


def test_every_second_counts_once_in_the_shares_of_a_process() -> None:
    # busy in the first second and idle for 13 more, in a row each; resumed after 14 s, and busy for two
    shares = [1.0 / min(second, 10) if second <= 10 else 0.0 for second in range(1, 15)]
    shares += [1.0, 1.0]
    metrics = [
        reading(float(second), roles=[{"role": "inline", "busy": {"learn": share}}])
        for second, share in enumerate(shares, start=1)
    ]
    [found] = process_shares(metrics, [14.0])
    assert found.seconds == pytest.approx(16.0)
    assert found.busy == pytest.approx({"learn": 3.0 / 16.0})


def test_shares_that_come_to_more_than_all_are_scaled() -> None:
    [shares] = process_shares(
        [reading(5.0, roles=[{"role": "a", "waiting": {"x": 0.6}, "busy": {"y": 0.9, "z": 7.0}}])]
    )
    assert sum([*shares.busy.values(), *shares.waiting.values()]) == pytest.approx(1.0)
    assert shares.unaccounted == 0.0


def test_an_adjustment_is_read_back_from_how_it_is_written() -> None:
    written = str(Adjustment("replay.capacity", "1,000", "500", "the memory (4 GB) is too small"))
    assert parse_adjustment(written, "start") == Change(
        "start", "replay.capacity", "1,000", "500", "the memory (4 GB) is too small"
    )
    assert parse_adjustment("it became warm", "start") == Change("start", "", "", "", "it became warm")


def test_settings_and_all_their_changes_are_listed(tmp_path: Path) -> None:
    run = facts() | {
        "adjustments": ["env.size: 96 → 84 (fixed)", 7],
        "resumes": [{"steps": 8_000, "changes": {"max_steps": "8000 → 9000"}, "adjustments": ["a_b: 1 → 2 (b)"]}],
    }
    events = [
        event(30.0, "adjustment", message="samples_per_step: 8 → 7 (late)"),
        event(90.0, "adjustment", message="replay.capacity: 9 → 8 (full)"),
    ]
    files = made_run(tmp_path / "run", run, events=events)
    settings = dict(settings_of(files))
    assert settings["env.id"] == "CartPole-v1"
    assert settings["learner.threads"] == "1"
    assert settings["batch-size"] == "32"
    assert changes_of(files) == [
        Change("start", "env.size", "96", "84", "fixed"),
        Change("at 3,000 steps", "samples-per-step", "8", "7", "late"),
        Change("resume at 8,000 steps", "max-steps", "9000", "9000", "set by the resume, 8000 before"),
        Change("resume at 8,000 steps", "a-b", "1", "2", "b"),
        Change("at 9,000 steps", "replay.capacity", "9", "8", "full"),
    ]


def test_events_tell_when_and_what(tmp_path: Path) -> None:
    events = [event(0.0, "start"), event(90.0, "warning", message="disk\nfull"), {"event": "odd", "unix_s": None}]
    start, warning, odd = event_table(made_run(tmp_path / "run", facts(), events=events))
    assert (start.minutes, start.steps, start.details) == (0.0, 0, "")
    assert (warning.minutes, warning.steps, warning.details) == (1.5, 9_000, "message disk full")
    assert (odd.minutes, odd.steps) == (None, None)

"""What is wrong with a run is told within a minute; a healthy one is left in peace. Time is simulated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from health_stage import GB, HOLDER, MB, RUNNER, SLOT, Stage, process
from redline.fleet.place import Place
from redline.jsonl import RecordWriter


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_healthy_hours_are_quiet(stage: Stage) -> None:
    stage.row |= {"replay_capacity_transitions": 1_000_000, "replay_bytes": 4 * GB}

    def fill(time_s: float) -> None:  # the replay memory fills up in the first hour
        stage.row["replay_transitions"] = min(1_000_000, stage.row["steps"] * 6)
        full_bytes = 4 * GB * stage.row["replay_transitions"] // 1_000_000
        ramp = 300 * MB * min(1.0, time_s / 30.0)
        checkpoint = 200 * MB * (time_s % 300 < 20)
        stage.processes[RUNNER] = replace(
            stage.processes[RUNNER], rss_bytes=int(100 * MB + ramp + checkpoint + full_bytes + time_s % 7 * MB)
        )

    stage.live(3 * 3600.0, fill)
    assert stage.told == []


def test_roles_that_somebody_made_up_do_no_harm(stage: Stage) -> None:
    stage.row |= {"roles": [{"pid": [1]}, {"pid": {}}, {}, 3]}
    stage.live(60.0)
    assert stage.kinds == ["workers"]


def test_leak_is_told_within_a_minute_and_once(stage: Stage) -> None:
    stage.live(600.0)
    begun_s = stage.now_s
    stage.live(300.0, lambda _: stage.grow(50 * MB))
    assert stage.kinds == ["leak"]
    time_s, incident = stage.told[0]
    assert time_s - begun_s <= 60.0
    assert incident.message == (
        "its memory grows by 18.0 GB per hour, 200.0 MB in the last 40 s: 8.0 GB free is gone in 26 min 40 s"
    )
    assert incident.slot == SLOT.name


def test_leak_is_told_although_the_replay_memory_fills(stage: Stage) -> None:
    stage.row |= {"replay_capacity_transitions": 10_000_000, "replay_bytes": 10 * GB, "replay_transitions": 0}

    def fill(_: float) -> None:
        stage.row["replay_transitions"] += 5_000
        stage.grow(5 * MB)

    stage.live(600.0, fill)
    assert stage.told == []
    stage.live(60.0, lambda time_s: (fill(time_s), stage.grow(50 * MB))[0])
    assert stage.kinds == ["leak"]


def test_slow_leak_is_told_in_time(stage: Stage) -> None:
    stage.live(3600.0, lambda _: stage.grow(0.5 * MB))  # 180 MB an hour
    assert stage.kinds == ["leak"]


def test_buffers_that_fill_at_the_start_are_no_leak(stage: Stage) -> None:
    stage.live(50.0, lambda _: stage.grow(20 * MB))
    stage.live(300.0)
    assert stage.told == []


def test_step_of_the_memory_is_no_leak(stage: Stage) -> None:
    stage.live(1200.0, lambda time_s: stage.grow(500 * MB if time_s == 600.0 else 0))
    assert stage.told == []


def test_hang_is_told_within_a_minute_and_again_after_it_was_over(stage: Stage) -> None:
    stage.live(120.0)
    begun_s = stage.now_s
    for _ in range(10):
        stage.look()
    assert stage.kinds == ["hang"]
    assert stage.told[0][0] - begun_s <= 60.0
    assert stage.told[0][1].message.endswith("and it computes nothing")
    stage.live(60.0)
    for _ in range(10):
        stage.look()
    assert stage.kinds == ["hang", "hang"]


def test_stopped_process_is_told_with_the_way_on(stage: Stage) -> None:
    stage.live(60.0)
    stage.processes[RUNNER] = process(state="T", cpu_s=60.0)
    for _ in range(6):
        stage.look()
    assert [(one.kind, one.remedy) for _, one in stage.told] == [("hang", "kill -CONT it")]


def test_long_evaluation_is_no_hang(stage: Stage) -> None:
    stage.live(60.0)
    stage.live(500.0, steps=0)
    assert stage.told == []
    stage.live(200.0, steps=0)
    assert stage.kinds == ["hang"]


def test_run_on_another_machine_has_only_its_steps(stage: Stage) -> None:
    stage.holder = msgspec.structs.replace(HOLDER, place=Place("other", "boot-9", "pid:[9]"))
    stage.live(60.0)
    stage.processes = {}
    stage.live(500.0, steps=0)
    assert stage.told == []


def test_orphan_is_told_within_a_minute_with_its_number(stage: Stage) -> None:
    stage.processes[RUNNER + 1] = process(RUNNER + 1, parent=RUNNER)
    stage.live(60.0)
    stage.processes = {RUNNER + 1: process(RUNNER + 1)}
    stage.state, begun_s = "waiting", stage.now_s
    for _ in range(10):
        stage.look()
    assert stage.kinds == ["orphan"]
    time_s, incident = stage.told[0]
    assert time_s - begun_s <= 60.0
    assert incident.message == f"a process lives on after attempt 1 was over: {RUNNER + 1}"
    assert incident.remedy == f"kill {RUNNER + 1}"


def test_processes_that_end_with_their_run_are_no_orphans(stage: Stage) -> None:
    stage.processes[RUNNER + 1] = process(RUNNER + 1, parent=RUNNER)
    stage.live(60.0)
    stage.state, stage.processes = "waiting", {RUNNER + 1: process(RUNNER + 1)}
    stage.look()
    stage.processes = {}
    for _ in range(6):
        stage.look()
    assert stage.told == []


def test_number_of_a_gone_process_may_belong_to_another(stage: Stage) -> None:
    stage.live(60.0)
    stage.state = "done"
    other = process(started_ticks=900)  # leads a session of its own
    stage.processes = {RUNNER: other, RUNNER + 1: process(RUNNER + 1, started_ticks=901)}
    for _ in range(6):
        stage.look()
    assert stage.told == []


def test_lost_worker_is_told_unless_it_is_replaced_in_time(stage: Stage) -> None:
    stage.row["roles"] = [{"pid": RUNNER}, {"pid": RUNNER + 1}, {"pid": None}]
    stage.processes[RUNNER + 1] = process(RUNNER + 1, parent=RUNNER)
    stage.live(30.0)
    assert stage.told == []
    stage.live(30.0)
    assert [one.message for _, one in stage.told] == ["2 of its 3 processes are alive"]


def test_run_that_learns_nothing_is_named_after_half_of_its_budget(stage: Stage) -> None:
    returns = [-21.0, -20.0, -21.0, -19.0, -20.0] * 6
    with RecordWriter(stage.folder / "run" / "episodes.jsonl") as writer:
        for value in returns:
            writer.write({"role": "actor", "return": value})
    stage.row |= {"progress": 0.4, "mean_return_100": -20.1, "episodes": 160}
    stage.live(30.0)
    assert stage.told == []
    stage.row["progress"] = 0.5
    stage.live(100.0)
    assert [one.message for _, one in stage.told] == [
        "mean return −20.10 after 50% of its budget, and −20.20 in its first 30 episodes"
    ]


def test_run_that_learns_is_not_named(stage: Stage) -> None:
    with RecordWriter(stage.folder / "run" / "episodes.jsonl") as writer:
        for value in [-21.0, -20.0, -21.0, -19.0, -20.0] * 4:
            writer.write({"role": "actor", "return": value})
    stage.row |= {"progress": 0.9, "mean_return_100": -18.0, "episodes": 160}
    stage.live(30.0)
    assert stage.told == []


def test_warning_of_a_run_is_passed_on_once(stage: Stage) -> None:
    for free in (3.1, 2.9):
        with RecordWriter(stage.folder / "run" / "events.jsonl") as writer:
            writer.write({"event": "warning", "unix_s": 5.0, "message": f"no checkpoint: {free} MB free"})
        stage.live(30.0)
    assert [(one.kind, one.message) for _, one in stage.told] == [("warning", "no checkpoint: 3.1 MB free")]


def test_warning_of_an_earlier_attempt_is_not_told_again(stage: Stage) -> None:
    with RecordWriter(stage.folder / "run" / "events.jsonl") as writer:
        writer.write({"event": "warning", "unix_s": 5.0, "message": "no checkpoint"})
    stage.holder = msgspec.structs.replace(HOLDER, began_unix_s=6.0)
    stage.live(30.0)
    assert stage.told == []


def test_last_words_of_a_run_are_passed_on(stage: Stage) -> None:
    stage.live(30.0)
    with RecordWriter(stage.folder / "run" / "events.jsonl") as writer:
        writer.write({"event": "process-lost", "unix_s": 5.0, "role": "actor-1", "why": "killed"})
    stage.state, stage.processes = "waiting", {}
    for _ in range(6):
        stage.look()
    assert [(one.kind, one.message) for _, one in stage.told] == [("workers", "actor-1 was lost: killed")]


def test_hot_gpu_is_told(stage: Stage) -> None:
    with RecordWriter(stage.folder / "run" / "hardware.jsonl") as writer:
        writer.write({"unix_s": 5.0, "gpus": [{"index": 0, "name": "A100", "temperature_c": 93}]})
    stage.live(30.0)
    assert [(one.kind, one.message) for _, one in stage.told] == [("heat", "A100 is at 93 °C")]

"""What is wrong with a fleet is told once, whatever becomes of its supervisor. Time is simulated."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from health_stage import GB, HEALTHY, HOLDER, LOOK_S, MB, RUNNER, SLOT, Stage, process
from redline.fleet.health import HEALTH_JSONL, read_health
from redline.fleet.machine_state import Heat, MachineState, Space
from redline.fleet.slots import SLOTS_JSONL, State


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_crash_and_crash_loop_are_told_once_each(stage: Stage) -> None:
    for attempt in (1, 2, 3):
        stage.state = "running"
        facts = {"epoch": attempt, "attempt": attempt, "vain": attempt - 1, "exit_code": 1}
        stage.holder = msgspec.structs.replace(HOLDER, **facts)
        stage.processes = {RUNNER: process(started_ticks=attempt)}
        stage.write_row(state="running")
        stage.look()
        state = "given up" if attempt == 3 else "waiting"
        stage.state, stage.processes = state, {}
        stage.write_row(state=state, exit_code=1, reason="env broke")
        stage.look()
    stage.start()  # a new supervisor writes them once more
    stage.write_row(state="given up", exit_code=1, reason="env broke")
    stage.look()
    assert [(one.kind, one.attempt) for _, one in stage.told] == [("crash", 1), ("crash-loop", 2), ("given-up", 3)]
    assert stage.told[0][1].message == "attempt 1 ended at step 0: env broke"
    assert stage.told[1][1].message.endswith("2 attempts in a row without a new step")
    assert stage.told[0][1].remedy == "see logs/catch-dqn-s1.log"


@pytest.mark.parametrize(
    ("state", "exit_code", "reason"),
    [("waiting", 75, "SIGTERM"), ("done", 0, "max-steps"), ("stopped", 75, "asked to stop"), ("running", None, "")],
)
def test_usual_ends_are_no_incidents(stage: Stage, state: State, exit_code: int | None, reason: str) -> None:
    stage.state = state
    stage.write_row(exit_code=exit_code, reason=reason)
    stage.look()
    assert stage.told == []


def test_kill_for_lack_of_memory_is_told_as_such(stage: Stage) -> None:
    stage.live(30.0)
    stage.machine, stage.state, stage.processes = replace(HEALTHY, oom_kills=1), "waiting", {}
    stage.write_row(state="waiting", reason="killed")
    stage.look()
    assert [(one.kind, one.slot) for _, one in stage.told] == [("oom", ""), ("oom", SLOT.name)]
    assert stage.told[1][1].message == "attempt 1 was killed at step 0 when the machine ran out of memory"


@pytest.mark.parametrize(
    ("machine", "kind", "message"),
    [
        (replace(HEALTHY, disk=Space(50 * MB, GB)), "disk", "the disk has 50.0 MB free"),
        (replace(HEALTHY, disk=Space(50 * GB, GB, 3)), "disk", "the disk can hold 3 more files"),
        (replace(HEALTHY, shared=Space(MB, 64 * MB)), "shared-memory", "shared memory has 1.0 MB of 64.0 MB free"),
        (replace(HEALTHY, memory_available_bytes=100 * MB), "memory", "100.0 MB of memory is left"),
        (replace(HEALTHY, heat=Heat("core", 99.0, 100.0)), "heat", "core is at 99 °C, its limit is 100 °C"),
    ],
)
def test_shortage_is_told_at_once_and_again_only_after_it_was_over(
    stage: Stage, machine: MachineState, kind: str, message: str
) -> None:
    for state in (HEALTHY, machine, HEALTHY, machine):  # it comes and goes once, briefly
        stage.machine = state
        stage.live(LOOK_S)
    stage.live(100.0)
    stage.start()  # a new supervisor knows of it
    stage.live(100.0)
    assert [(time_s, one.kind) for time_s, one in stage.told] == [(LOOK_S, kind)]
    assert stage.told[0][1].message.startswith(message)
    assert stage.told[0][1].remedy
    stage.machine = HEALTHY
    stage.live(60.0)
    stage.machine = machine
    stage.live(60.0)
    assert stage.kinds == [kind, kind]


def test_unknown_values_are_no_shortage(stage: Stage) -> None:
    stage.machine = MachineState("boot-1", 8 * GB, None, None, None, None)
    stage.live(60.0)
    assert stage.told == []


def test_reboot_is_told_once(stage: Stage) -> None:
    stage.live(60.0)
    stage.machine = replace(HEALTHY, boot_id="boot-2")
    for _ in range(2):  # the second supervisor since
        stage.start()
        stage.live(30.0)
    assert stage.kinds == ["reboot"]


def test_reboot_is_told_from_the_leases_if_nobody_has_watched(stage: Stage) -> None:
    stage.machine, stage.state, stage.processes = replace(HEALTHY, boot_id="boot-2"), "waiting", {}
    stage.look()
    assert stage.kinds == ["reboot"]


def test_full_disk_does_not_end_the_watch(stage: Stage) -> None:
    (stage.folder / HEALTH_JSONL).mkdir()  # in its place: nothing can be written
    stage.machine = replace(HEALTHY, disk=Space(0, GB))
    stage.live(60.0)
    assert stage.kinds == ["disk"]


def test_status_tells_the_newest_sample_and_all_incidents(stage: Stage) -> None:
    stage.live(30.0)
    stage.machine = replace(HEALTHY, disk=Space(0, GB))
    stage.live(60.0)
    health = read_health(stage.folder)
    assert (health["expected"], health["alive"], health["workers_alive"]) == (1, 1, 1)
    assert health["counts"] == {"disk": 1}
    (incident,) = health["incidents"]
    assert (incident["kind"], incident["slot"], incident["host"]) == ("disk", "", "machine")
    assert json.dumps(health, allow_nan=False)


def test_rows_that_anybody_wrote_do_no_harm(stage: Stage) -> None:
    rows = [
        {"row": "incident", "kind": ["a"], "slot": {"b": 1}, "attempt": "x", "message": "\x1b[31mred", "lasts": True},
        {"row": "sample", "host": "machine", "boot_id": 7, "expected": "many", "runs": 3},
        {"row": "over", "about": 5},
    ]
    text = "\n".join([json.dumps(row) for row in rows] + ["{torn", "[]", "null"])
    (stage.folder / HEALTH_JSONL).write_text(text, encoding="utf-8")
    (stage.folder / "run" / "events.jsonl").write_text('{"event":"warning","unix_s":"x"}\n7\n', encoding="utf-8")
    (stage.folder / "run" / "hardware.jsonl").write_text('{"gpus":[1,{"temperature_c":"hot"}]}\n', encoding="utf-8")
    (stage.folder / SLOTS_JSONL).write_text(
        '{"slot":"catch-dqn-s1","state":["waiting"],"attempt":{}}\n', encoding="utf-8"
    )
    stage.row |= {"roles": [7, {"pid": "x"}], "progress": "half", "replay_bytes": -1}
    stage.start()
    stage.live(30.0)
    assert read_health(stage.folder)["incidents"][0]["message"] == " [31mred"


def test_supervisor_loads_nothing_heavy() -> None:
    code = (
        "import sys, redline.fleet.supervisor, redline.fleet.engines.local\n"
        "heavy = {'torch', 'numpy', 'scipy', 'matplotlib', 'gymnasium', 'ray', 'tyro', 'rich', 'pynvml'}\n"
        "print(*sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == ""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import redline.monitor
from redline.jsonl import RecordWriter, Row, read_records
from redline.monitor.processes import read_stat
from redline.monitor.sampling import TARGET_ENDED, HardwareRecorder, NamedRoles


def open_recording(out: Path, *, hz: float, said: list[Row], pid: int | None = None) -> HardwareRecorder:
    return HardwareRecorder(os.getpid() if pid is None else pid, out, hz=hz, say=said.append)


def events_of(rows: list[Row]) -> list[str]:
    return [row["event"] for row in rows]


def test_samples_come_at_the_rate_asked_for_with_what_they_cost(tmp_path: Path) -> None:
    said: list[Row] = []
    recording = open_recording(tmp_path, hz=20.0, said=said)
    end_s = time.monotonic() + 0.6

    def wait(seconds: float) -> str | None:
        time.sleep(seconds)
        return "enough" if time.monotonic() > end_s else None

    end = recording.finish(recording.run(wait))
    rows = read_records(tmp_path / "hardware.jsonl")
    assert 6 <= len(rows) == end["samples"] <= 13  # 12, unless the machine is busy
    assert all(row["interval_s"] > 0 for row in rows)
    assert rows[-1]["elapsed_s"] == pytest.approx(sum(row["interval_s"] for row in rows))
    assert rows[-1]["unix_s"] == pytest.approx(time.time(), abs=5.0)
    assert [row["monitor_cpu_s"] for row in rows] == sorted(row["monitor_cpu_s"] for row in rows)
    assert 0.0 < end["monitor_cpu_share"] < 1.0
    assert events_of(said) == ["monitor-start", "monitor-stop"]
    assert said[0]["cores"] == os.cpu_count()
    assert said[0]["absent"]["gpus"] or said[0]["gpus"]


def test_what_is_missed_is_not_made_up_for(tmp_path: Path) -> None:
    recording = open_recording(tmp_path, hz=20.0, said=[])
    naps_s = iter([0.3, 0.0])

    def wait(seconds: float) -> str | None:
        nap_s = next(naps_s, None)
        time.sleep(seconds if nap_s is None else nap_s)
        return "enough" if nap_s is None else None

    recording.finish(recording.run(wait))
    rows = read_records(tmp_path / "hardware.jsonl")
    later_s = rows[-1]["elapsed_s"] - rows[0]["elapsed_s"]  # a busy machine may wake us late
    assert len(rows) <= 2 + later_s * 20.0  # one after the nap and one at the end, not those that the nap missed
    assert rows[0]["interval_s"] >= 0.3


def test_a_recording_ends_with_its_process(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        recording = open_recording(tmp_path, hz=20.0, said=[], pid=child.pid)
        child.communicate(b"\n")
    assert recording.run(lambda seconds: time.sleep(seconds)) == TARGET_ENDED  # noqa: PLW0108
    recording.finish(TARGET_ENDED)


def test_a_full_disk_costs_samples_and_not_the_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Row] = []
    recording = open_recording(tmp_path, hz=20.0, said=said)

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(RecordWriter, "write", refuse)
    recording.take()
    recording.take()
    monkeypatch.undo()
    recording.take()
    recording.finish("enough")
    assert events_of(said) == ["monitor-warning", "monitor-stop"]
    assert "No space left" in said[0]["message"]
    assert len(read_records(tmp_path / "hardware.jsonl")) == 1


def test_processes_have_the_roles_that_the_events_of_their_run_name(tmp_path: Path) -> None:
    events, stat = tmp_path / "events.jsonl", read_stat(os.getpid())
    assert stat is not None
    roles = NamedRoles(events)
    assert roles() == {}
    with RecordWriter(events) as writer:
        writer.write({"event": "process", "role": "learner", "pid": stat.pid, "unix_s": time.time()})
        writer.write({"event": "process", "role": "gone", "pid": 2**22 + 1, "unix_s": time.time()})
        writer.write({"event": "stop", "reason": "x"})
        assert roles() == {stat.identity: "learner"}


def test_a_role_that_was_given_before_the_process_was_started_is_another_one_s(tmp_path: Path) -> None:
    stat = read_stat(os.getpid())
    assert stat is not None
    with RecordWriter(tmp_path / "events.jsonl") as writer:
        writer.write({"event": "process", "role": "old", "pid": stat.pid, "unix_s": stat.started_unix_s - 60.0})
    assert NamedRoles(tmp_path / "events.jsonl")() == {}


def test_the_monitor_needs_neither_torch_nor_gymnasium_nor_numpy() -> None:
    heavy = ("torch", "gymnasium", "numpy", "ale_py", "stable_baselines3", "matplotlib", "rich", "tyro")
    code = f"import sys, redline.monitor, redline.monitor.sampling; print([m for m in {heavy} if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_what_the_monitor_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        redline.monitor.nothing  # type: ignore[attr-defined]  # noqa: B018

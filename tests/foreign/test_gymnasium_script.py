"""A script of Gymnasium alone can be recorded from outside and through the wrappers, and a report made of it."""

import sys
from pathlib import Path
from typing import Any

from redline.jsonl import read_records


def test_a_script_is_recorded_from_outside(tmp_path: Path, run_program: Any, script: Any, told: Any) -> None:
    command = ("--", sys.executable, script("gymnasium_script.py"))
    ended = run_program("monitor", "--out", tmp_path / "out", "--hz", 10, *command)
    assert ended.returncode == 0, ended.stderr
    found = told(tmp_path / "out")
    assert (found["state"], found["kind"], found["reading"]) == ("stopped", "recording", None)
    assert found["how"].endswith("exit code 0")
    assert max(row["cpu_cores_used"] for row in read_records(tmp_path / "out" / "hardware.jsonl")) > 0.1


def test_the_wrappers_leave_recordings_that_make_a_report(tmp_path: Path, run_script: Any, report: Any) -> None:
    ended = run_script("gymnasium_script.py", tmp_path)
    assert ended.returncode == 0, ended.stderr
    for name, lanes in (("one", {0}), ("vector", {0, 1, 2, 3})):
        rows = read_records(tmp_path / name / "episodes.jsonl")
        assert {row["lane"] for row in rows} == lanes
        assert all(row["return"] == row["length_steps"] for row in rows)  # CartPole pays 1 a step
        assert any(row.get("hardware", {}).get("cpu_cores_used", 0.0) > 0.1 for row in rows)
        assert read_records(tmp_path / name / "events.jsonl")[-1]["event"] == "monitor-stop"
    assert '<figure class="card lines"' in report(tmp_path / "vector")

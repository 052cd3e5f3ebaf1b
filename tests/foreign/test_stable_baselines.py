"""A script of Stable-Baselines3 can be recorded from outside and through the callback, and a report made of it."""

import csv
import sys
from pathlib import Path
from typing import Any

import pytest

from redline.jsonl import read_records

pytest.importorskip("stable_baselines3")


def test_ppo_under_redline_monitor(tmp_path: Path, run_program: Any, script: Any, told: Any, report: Any) -> None:
    out = tmp_path / "out"
    ended = run_program("monitor", "--out", out, "--hz", 10, "--", sys.executable, script("ppo_script.py"))
    assert ended.returncode == 0, ended.stderr
    found = told(out)
    assert (found["state"], found["how"].endswith("exit code 0")) == ("stopped", True)
    samples = read_records(out / "hardware.jsonl")
    assert max(row.get("rss_bytes", 0) for row in samples) > 100e6  # torch is in it
    assert '<figure class="card lines"' in report(out)


def test_ppo_through_the_callback(tmp_path: Path, run_script: Any, report: Any) -> None:
    ended = run_script("ppo_script.py", tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert "cpu_cores_used" in ended.stdout
    assert "core_busy" not in ended.stdout  # the printed table stays short
    with (tmp_path / "sb3" / "progress.csv").open(encoding="utf-8") as file:
        logged = list(csv.DictReader(file))
    assert float(logged[-1]["hardware/cpu_cores_used"]) > 0.1
    assert "hardware/core_busy.0" in logged[-1]
    episodes = read_records(tmp_path / "episodes.jsonl")
    assert {row["lane"] for row in episodes} == {0, 1, 2, 3}
    assert sum(row["length_steps"] for row in episodes) <= episodes[-1]["steps"] <= 4_096
    assert any(row.get("hardware", {}).get("cpu_cores_used", 0.0) > 0.1 for row in episodes)
    assert [row["event"] for row in read_records(tmp_path / "events.jsonl")] == ["monitor-start", "monitor-stop"]
    assert '<figure class="card lines"' in report(tmp_path)

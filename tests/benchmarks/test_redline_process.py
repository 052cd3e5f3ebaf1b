"""Processes are watched through their records, take turns, and leave nothing behind."""

import sys
from pathlib import Path

import psutil
import pytest

import redline_process
from redline_process import WatchedProcess, read_window, take_turns
from waiting import wait_for

CHILD = "import subprocess, time; print(subprocess.Popen(['sleep', '60']).pid, flush=True); time.sleep(60)"


def watch_and_interrupt(log: Path) -> None:
    with WatchedProcess([sys.executable, "-c", CHILD], log) as process:
        process.wait_for(lambda: log.read_text(encoding="utf-8") or None, timeout_s=30.0)
        raise KeyboardInterrupt


def test_whatever_ends_a_watched_process_ends_its_children(tmp_path: Path) -> None:
    log = tmp_path / "said.log"
    with pytest.raises(KeyboardInterrupt):
        watch_and_interrupt(log)
    pid = int(log.read_text(encoding="utf-8"))
    has_ended = lambda: not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE  # noqa: E731
    wait_for(has_ended, "the child ends")


def test_a_process_that_ends_too_early_says_why(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "raise SystemExit('no such game')"]
    process = WatchedProcess(command, tmp_path / "said.log")
    with process, pytest.raises(RuntimeError, match="ended with 1 too early: no such game"):
        process.wait_for(lambda: None, timeout_s=30.0)


def test_each_side_begins_about_as_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redline_process.psutil, "cpu_percent", lambda interval: 3.0)
    sides = {name: lambda seed: {"steps_per_s": seed, "samples_per_step": 8.0} for name in "ab"}
    rows = take_turns(sides, rounds=4)
    assert [row["order"] for row in rows] == [["a", "b"], ["b", "a"], ["b", "a"], ["a", "b"]]
    assert [row["a"]["steps_per_s"] for row in rows] == [row["seed"] for row in rows] == [1, 2, 3, 4]
    assert rows[0]["busy_percent_before"] == 3.0


def test_the_window_of_a_peer_has_no_roles() -> None:
    rows = [
        {"time_s": 10.0 * n, "steps": 100 * n, "updates": 25 * n, "samples": 800 * n, "cpu_percent": 150.0}
        for n in range(3)
    ]
    found = read_window(rows)
    assert (found["steps_per_s"], found["updates_per_s"], found["samples_per_step"]) == (10.0, 2.5, 8.0)
    assert found["cpu_percent"] == 150.0
    assert "waiting" not in found

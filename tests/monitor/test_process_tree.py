import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from busy_workers import HOLD, worker

from redline.monitor.process_files import read_pss_bytes, read_stat
from redline.monitor.process_tree import ProcessTree, Total
from redline.records import Row

A, B, C = (1, 10), (2, 20), (3, 30)


def grown(*readings: dict[tuple[int, int], float]) -> list[float]:
    total = Total()
    return [total.advance(reading) for reading in readings]


def sample(tree: ProcessTree, interval_s: float = 1.0, roles: dict[int, str] | None = None) -> Row:
    row = tree.sample(interval_s, roles or {})
    assert row is not None
    return row


def test_a_count_begins_with_its_first_reading() -> None:
    assert grown({A: 100.0}, {A: 103.0}) == [0.0, 3.0]


def test_a_count_of_what_was_just_started_begins_with_nothing() -> None:
    assert Total(last={}).advance({A: 0.5, B: 0.25}) == 0.75


def test_a_new_process_brings_all_it_has_counted() -> None:
    assert grown({A: 100.0}, {A: 101.0, B: 2.0}) == [0.0, 3.0]


def test_what_a_child_hands_to_its_parent_when_it_ends_counts_once() -> None:
    assert grown({A: 10.0, B: 5.0}, {A: 16.5}) == [0.0, 1.5]  # B used another 0.5, A 1.0


def test_a_child_that_hands_its_count_to_nobody_is_not_taken_off() -> None:
    assert grown({A: 10.0, B: 50.0}, {A: 11.0}) == [0.0, 1.0]


def test_a_number_that_another_process_has_taken_is_another_process() -> None:
    assert grown({A: 10.0, (2, 20): 7.0}, {A: 17.0, (2, 99): 1.0}) == [0.0, 1.0]


def test_a_name_with_parentheses_and_spaces_is_read_whole(tmp_path: Path) -> None:
    program = tmp_path / "a) R (b"
    program.symlink_to(sys.executable)
    with subprocess.Popen([program, "-c", "input()"], stdin=subprocess.PIPE) as child:
        stat = None
        while stat is None or stat.name.startswith("python") or stat.name.startswith("pytest"):
            stat = read_stat(child.pid)
        child.communicate(b"\n")
    assert stat.name == "a) R (b"
    assert stat.parent == os.getpid()


def test_descendants_are_found_and_the_excluded_is_not(tmp_path: Path) -> None:
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(flush=True); input()'])"
    tree = ProcessTree(os.getpid())
    tree.sample(0.0, {})
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        seen = {process["pid"]: process["role"] for process in sample(tree, roles={child.pid: "learner"})["watched"]}
        without = sample(ProcessTree(os.getpid(), excluded_pid=child.pid))
        child.communicate(b"\n")
    assert seen.pop(os.getpid()) == "main"
    assert seen.pop(child.pid) == "learner"
    assert set(seen.values()) == {"other"}
    assert child.pid not in {process["pid"] for process in without["watched"]}


def test_a_process_that_lost_its_parent_stays_watched() -> None:
    code = (
        "import subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import os; print(os.getpid(), flush=True); input()'])\n"
        "sys.stdin.readline()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        orphan = int(child.stdout.readline())
        tree = ProcessTree(os.getpid())
        sample(tree)
        child.kill()
        child.wait()
        row = sample(tree)
        assert orphan in {process["pid"] for process in row["watched"]}
        assert child.pid not in {process["pid"] for process in row["watched"]}


def test_a_zombie_still_tells_its_time_and_then_it_is_gone() -> None:
    code = "import time\nwhile time.process_time() < 0.3: pass"
    with subprocess.Popen([sys.executable, "-c", code]) as child:
        tree = ProcessTree(child.pid)
        sample(tree, 0.0)
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert tree.has_ended
        last = sample(tree)
    assert last["cpu_s"] >= 0.25
    assert last["processes"] == 0
    assert tree.sample(1.0, {}) is None


def test_there_is_nothing_to_say_of_a_process_that_never_was() -> None:
    assert ProcessTree(2**22 + 1).sample(1.0, {}) is None
    assert ProcessTree(2**22 + 1).has_ended


def test_proportional_memory_is_read_at_most_every_ten_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    tree = ProcessTree(os.getpid())
    assert "pss_bytes" in sample(tree)
    assert "pss_bytes" not in sample(tree)
    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s + 10.0)
    assert "pss_bytes" in sample(tree)


def test_proportional_memory_counts_a_shared_page_once() -> None:
    with worker(HOLD) as process:
        process.work()
        tree = ProcessTree(process.pid)
        row = sample(tree)
        pss_bytes = read_pss_bytes(process.pid)
    assert pss_bytes is not None
    assert row["pss_bytes"] == pytest.approx(pss_bytes, rel=0.05)
    assert 300_000_000 < row["pss_bytes"] <= row["rss_bytes"]
    assert row["roles"] == {"main": {"cpu_cores_used": 0.0, "rss_bytes": row["rss_bytes"], "processes": 1}}

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from redline.jsonl import Row
from redline.monitor import processes
from redline.monitor.processes import Identity, ProcessTree, read_stat


def sample(tree: ProcessTree, interval_s: float = 1.0, roles: dict[Identity, str] | None = None) -> Row:
    row = tree.sample(interval_s, roles or {})
    assert row is not None
    return row


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
        stat = read_stat(child.pid)
        assert stat is not None
        row = sample(tree, roles={stat.identity: "learner", (os.getpid(), 1): "somebody with our number before us"})
        seen = {process["pid"]: process["role"] for process in row["watched"]}
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
    monkeypatch.setattr(processes, "PSS_MOST_OF_TIME", 1.0)  # else a busy machine is asked less often
    tree = ProcessTree(os.getpid())
    assert "pss_bytes" in sample(tree)
    assert "pss_bytes" not in sample(tree)
    now_s = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now_s + 10.0)
    assert "pss_bytes" in sample(tree)


SHARE = """
import os, sys
held = bytearray(b"x") * 100_000_000  # before the fork: both have the same pages
if os.fork():
    print(flush=True)
input()
"""


def test_proportional_memory_counts_a_shared_page_once() -> None:
    with subprocess.Popen([sys.executable, "-c", SHARE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        tree = ProcessTree(process.pid)
        row = sample(tree)
        process.communicate(b"\n\n")
    assert row["processes"] == 2
    assert row["rss_bytes"] > 200_000_000
    assert 100_000_000 < row["pss_bytes"] < 130_000_000
    assert row["roles"]["main"]["rss_bytes"] + row["roles"]["other"]["rss_bytes"] == row["rss_bytes"]

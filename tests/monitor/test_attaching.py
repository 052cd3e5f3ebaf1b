"""`record` attaches a watcher that disturbs nobody, says what goes wrong, and leaves nothing behind."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from redline.jsonl import Row, read_records
from redline.monitor import attaching, record
from redline.monitor.attaching import MonitorProcess, new_folder
from redline.monitor.processes import read_stat
from waiting import wait_for


def events_of(rows: list[Row]) -> list[str]:
    return [row["event"] for row in rows]


def events_in(folder: Path) -> list[str]:
    return events_of(read_records(folder / "events.jsonl"))


def run_code(code: str, *args: Path) -> str:
    """Run a program that may do what pytest's own process must not, and return what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *args], capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def wait_for_end(pid: int) -> None:
    wait_for(lambda: (stat := read_stat(pid)) is None or stat.has_ended, f"{pid} ends")


def wait_for_start(folder: Path) -> None:
    wait_for(lambda: (folder / "events.jsonl").exists() and events_in(folder), "the monitor has begun")


def watcher_pid(recording: attaching.AttachedRecording) -> int:
    pid = recording._monitor.pid
    assert pid is not None
    return pid


@pytest.mark.parametrize("hz", [0.0, -1.0, 0.01, 20.5, float("nan"), float("inf")])
def test_a_rate_that_cannot_be_kept_is_refused(hz: float, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"use 0\.05 to 20"):
        record(tmp_path, hz=hz)


def test_the_monitor_leaves_itself_out_and_ends_when_asked(tmp_path: Path) -> None:
    with record(tmp_path, hz=20.0) as recording:
        watcher_pid = recording._monitor.pid
        time.sleep(0.2)
    recording.close()
    rows = read_records(tmp_path / "hardware.jsonl")
    assert all(os.getpid() in {process["pid"] for process in row["watched"]} for row in rows)
    assert all(watcher_pid not in {process["pid"] for process in row["watched"]} for row in rows)
    assert events_of(read_records(tmp_path / "events.jsonl")) == ["monitor-start", "monitor-stop"]


def test_the_monitor_ends_when_its_process_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, sys, redline.monitor as m\n"
        "w = m.record(sys.argv[1], hz=20)\n"
        "print(w._monitor.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", code, tmp_path], stdout=subprocess.PIPE, check=False)
    assert killed.returncode == -9
    wait_for_end(int(killed.stdout))
    assert events_of(read_records(tmp_path / "events.jsonl"))[-1] == "monitor-stop"


def test_a_monitor_that_is_lost_is_told_once(tmp_path: Path) -> None:
    watcher = MonitorProcess(tmp_path, hz=20.0, pid=os.getpid(), is_run=False)
    assert events_of(watcher.wait_until_recording()) == ["monitor-start"]
    assert watcher.pid is not None
    os.kill(watcher.pid, signal.SIGKILL)
    wait_for_end(watcher.pid)
    assert events_of(watcher.take_events()) == ["monitor-warning"]
    assert watcher.take_events() == []
    assert watcher.close() == []


def test_the_end_of_a_recording_warns_once_if_its_monitor_was_lost(tmp_path: Path) -> None:
    recording = record(tmp_path)
    os.kill(watcher_pid(recording), signal.SIGKILL)
    with pytest.warns(RuntimeWarning, match="the monitor was lost: hardware.jsonl stops here"):
        recording.close()
    recording.close()


def test_a_monitor_that_is_terminated_takes_a_last_sample(tmp_path: Path) -> None:
    with record(tmp_path, hz=0.05) as recording:
        os.kill(watcher_pid(recording), signal.SIGTERM)
        wait_for_end(watcher_pid(recording))
    assert events_in(tmp_path) == ["monitor-start", "monitor-stop"]
    assert read_records(tmp_path / "events.jsonl")[-1]["reason"] == "SIGTERM"
    assert len(read_records(tmp_path / "hardware.jsonl")) == 1


def test_a_monitor_that_hangs_is_killed_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attaching, "STOP_PATIENCE_S", 0.1)
    recording = record(tmp_path)
    pid = watcher_pid(recording)
    wait_for_start(tmp_path)
    os.kill(pid, signal.SIGSTOP)
    with pytest.warns(RuntimeWarning, match="the monitor was lost"):
        recording.close()
    wait_for_end(pid)
    record(tmp_path).close()  # its folder is free again
    assert events_in(tmp_path) == ["monitor-start", "monitor-start", "monitor-stop"]


def test_who_waits_for_all_children_does_not_wait_for_the_monitor(tmp_path: Path) -> None:
    code = """if True:
        import os, resource, sys, redline.monitor
        with redline.monitor.record(sys.argv[1], hz=20):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            try:
                os.wait()
            except ChildProcessError:
                print("no children")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        print(before == after)
    """
    assert run_code(code, tmp_path) == "no children\nTrue\n"
    assert events_in(tmp_path) == ["monitor-start", "monitor-stop"]


def test_who_adopts_orphans_is_left_no_zombie(tmp_path: Path) -> None:
    code = """if True:
        import ctypes, os, sys, redline.monitor
        PR_SET_CHILD_SUBREAPER = 36
        assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
        redline.monitor.record(sys.argv[1]).close()
        try:
            os.wait()
        except ChildProcessError:
            print("no children")
    """
    assert run_code(code, tmp_path) == "no children\n"


def test_a_forked_process_does_not_end_the_recording(tmp_path: Path) -> None:
    code = """if True:
        import os, pathlib, sys, time, redline.monitor
        with redline.monitor.record(sys.argv[1]):
            child = os.fork()
            if child == 0:
                sys.exit()
            os.waitpid(child, 0)
            time.sleep(0.2)
            print(b"monitor-stop" in pathlib.Path(sys.argv[1], "events.jsonl").read_bytes())
    """
    assert run_code(code, tmp_path) == "False\n"
    assert events_in(tmp_path) == ["monitor-start", "monitor-stop"]


def test_a_recording_that_nobody_refers_to_ends(tmp_path: Path) -> None:
    recordings = [record(tmp_path)]
    recordings.clear()
    assert events_in(tmp_path) == ["monitor-start", "monitor-stop"]


def test_a_recording_that_only_a_cycle_refers_to_ends_when_its_folder_is_wanted(tmp_path: Path) -> None:
    cycle: list[object] = [record(tmp_path)]
    cycle.append(cycle)
    del cycle
    record(tmp_path).close()
    assert events_in(tmp_path) == ["monitor-start", "monitor-stop"] * 2


def test_a_folder_takes_one_recording_at_a_time_and_several_in_turn(tmp_path: Path) -> None:
    with record(tmp_path, hz=0.05), pytest.raises(ValueError, match="is being recorded already: use another folder"):
        record(tmp_path)
    record(tmp_path, hz=0.05).close()
    assert len(read_records(tmp_path / "hardware.jsonl")) == 2


def test_a_program_may_change_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with record("out") as recording:
        monkeypatch.chdir("/")
    assert recording.path == tmp_path / "out"
    assert events_in(recording.path) == ["monitor-start", "monitor-stop"]


def test_a_folder_that_is_made_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    record("out").close()
    folders = [Path("out"), new_folder(), new_folder()]
    assert len({folder.resolve() for folder in folders}) == 3
    assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700] * 3


def test_what_cannot_be_written_is_told_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"/proc/self/hardware\.jsonl"):
        record("/proc/self")
    for name in ("events.jsonl", "hardware.jsonl"):
        (tmp_path / name / name).mkdir(parents=True)
        with pytest.raises(OSError, match=f"{name} is a folder"):
            record(tmp_path / name)


def test_a_process_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="there is no process 99999999"):
        record(tmp_path / "out", pid=99999999)
    assert not (tmp_path / "out").exists()


def test_a_monitor_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attaching, "BOOT", attaching.BOOT.replace("main()", "raise OSError('no more of it')"))
    with pytest.raises(RuntimeError, match="the monitor did not start: OSError: no more of it"):
        record(tmp_path)


def test_a_slow_start_is_said_and_waited_for_no_longer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = attaching.BOOT.replace("main()", "import time; time.sleep(0.4); main()")
    monkeypatch.setattr(attaching, "BOOT", slow)
    monkeypatch.setattr(attaching, "START_PATIENCE_S", 0.2)
    with pytest.warns(RuntimeWarning, match=r"did not begin within 0\.2 s"):
        recording = record(tmp_path)
    recording.close()
    assert events_in(tmp_path) == ["monitor-start", "monitor-stop"]

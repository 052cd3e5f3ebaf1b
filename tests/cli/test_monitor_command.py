import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from redline.cli.monitor import Command
from redline.jsonl import read_records
from waiting import wait_for

READY = "import signal, sys, time\n"
ANSWER = READY + "signal.signal(signal.{0}, lambda *_: sys.exit(33)); print('ready', flush=True); time.sleep(60)"
COUNT = (
    READY + "got = []\nsignal.signal(signal.SIGINT, lambda *_: got.append(1)); print('ready', flush=True)\n"
    "end_s = time.monotonic() + 0.5\nwhile time.monotonic() < end_s: time.sleep(0.01)\nsys.exit(len(got))"
)


def python(code: str) -> tuple[str, ...]:
    return ("--", sys.executable, "-c", code)


def test_a_command_is_recorded_and_its_exit_code_comes_back(tmp_path: Path, run_program: Any) -> None:
    ended = run_program(
        "monitor", "--out", tmp_path / "out", "--hz", 20, *python("print('hello'); raise SystemExit(7)")
    )
    assert ended.returncode == 7
    assert ended.stdout == "hello\n"  # nothing of ours
    events = read_records(tmp_path / "out" / "events.jsonl")
    assert [row["event"] for row in events] == ["monitor-start", "monitor-stop"]
    assert events[0]["command"].endswith("raise SystemExit(7)'")
    assert events[1]["exit_code"] == 7
    assert read_records(tmp_path / "out" / "hardware.jsonl")


def test_a_command_that_a_signal_ended_gives_the_code_of_a_shell(tmp_path: Path, run_program: Any) -> None:
    ended = run_program("monitor", "--out", tmp_path, *python("import os; os.kill(os.getpid(), 9)"))
    assert ended.returncode == 128 + 9


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1"])
def test_a_signal_goes_through_to_the_command(name: str, tmp_path: Path, start_program: Any) -> None:
    process = start_program("monitor", "--out", tmp_path, *python(ANSWER.format(name)))
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.Signals[name])
    process.communicate(timeout=20)
    assert process.returncode == 33


def test_a_signal_after_the_command_has_ended_changes_nothing() -> None:
    with Command(["sh", "-c", "exit 3"]) as command:
        assert command.exit_code() == 3
        signal.pthread_kill(threading.get_ident(), signal.SIGINT)
    assert not signal.sigpending()


def test_ctrl_c_in_a_terminal_reaches_the_command_once(tmp_path: Path) -> None:
    master, slave = os.openpty()
    command = [sys.executable, "-m", "redline.cli.main", "monitor", "--out", str(tmp_path), *python(COUNT)]
    process = subprocess.Popen(
        ["setsid", "--ctty", "--wait", *command], stdin=slave, stdout=slave, stderr=slave, close_fds=True
    )
    os.close(slave)
    shown = b""
    while b"ready" not in shown:
        shown += os.read(master, 1024)
    os.write(master, b"\x03")
    assert process.wait(20) == 1
    os.close(master)


def test_the_command_finds_environment_and_signal_mask_as_they_were(tmp_path: Path, run_program: Any) -> None:
    code = "import os, signal; print('OMP_WAIT_POLICY' in os.environ, signal.pthread_sigmask(signal.SIG_BLOCK, []))"
    environment = {
        name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    }
    command = [sys.executable, "-m", "redline.cli.main", "monitor", "--out", str(tmp_path), *python(code)]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert ended.stdout == "False set()\n"


def test_a_whole_process_tree_is_watched(tmp_path: Path, run_program: Any) -> None:
    child = "import time\nwhile time.process_time() < 0.4: pass"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    ended = run_program("monitor", "--out", tmp_path, "--hz", 20, "--json", *python(code))
    assert json.loads(ended.stdout)["cpu_s"] >= 0.4
    rows = read_records(tmp_path / "hardware.jsonl")
    assert max(row["processes"] for row in rows) == 2
    assert any("other" in row["roles"] for row in rows)


def test_json_is_one_object_and_the_command_prints_elsewhere(tmp_path: Path, run_program: Any) -> None:
    ended = run_program("monitor", "--out", tmp_path, "--json", *python("print('hello')"))
    told = json.loads(ended.stdout)
    assert told["schema"] == 1
    assert told["exit_code"] == 0
    assert told["reason"] == "the command ended"
    assert "hello" in ended.stderr


def test_a_flag_of_the_command_is_not_ours(tmp_path: Path, run_program: Any) -> None:
    ended = run_program("monitor", "--out", tmp_path, "--", "no-such-program", "--json")
    assert ended.returncode == 2
    assert ended.stdout == ""


def wait_for_a_sample(folder: Path) -> None:
    rows = folder / "hardware.jsonl"
    wait_for(lambda: rows.exists() and rows.stat().st_size, "there is a sample")


def test_a_process_is_watched_until_it_ends(tmp_path: Path, start_program: Any) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        monitor = start_program("monitor", "--pid", process.pid, "--out", tmp_path, "--hz", 20, "--json")
        wait_for_a_sample(tmp_path)
        process.communicate(b"\n")
        out, _ = monitor.communicate(timeout=20)
    assert monitor.returncode == 0
    assert json.loads(out)["reason"] == "the watched process ended"


def test_ctrl_c_ends_the_recording_of_a_process_and_not_the_process(tmp_path: Path, start_program: Any) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        monitor = start_program("monitor", "--pid", process.pid, "--out", tmp_path, "--hz", 20)
        wait_for_a_sample(tmp_path)
        monitor.send_signal(signal.SIGINT)
        monitor.communicate(timeout=20)
        assert monitor.returncode == 0
        assert process.poll() is None
        process.communicate(b"\n")
    assert read_records(tmp_path / "events.jsonl")[-1]["reason"] == "SIGINT"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "needs a command or --pid"),
        (["--pid", "1", "--", "true"], "not both"),
        (["--pid", "4194305"], "there is no process 4194305"),
        (["--pid", "-5"], "there is no process -5"),
        (["--pid", "0"], "there is no process 0"),
        (["--", "/nowhere"], "/nowhere can't be run"),
        (["--hz", "50", "--", "true"], "hz is 50: use 0.05 to 20"),
        (["--out", "/proc/nothing", "--", "true"], "use another --out"),
        (["--", ""], "the command to monitor has no name"),
        (["--", "no-such-program"], "no-such-program can't be run"),
        (["--outt", "x", "--", "true"], "did you mean --out"),
    ],
)
def test_bad_input_is_one_line(
    args: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    from redline.cli.main import main

    monkeypatch.chdir(tmp_path)
    assert main(["monitor", *args]) == 2
    shown = capfd.readouterr()
    assert said in shown.err
    assert len(shown.err.splitlines()) == 1
    assert shown.out == ""
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_holds_a_recording_is_refused(tmp_path: Path, capfd: Any) -> None:
    from redline.cli.main import main

    assert main(["monitor", "--out", str(tmp_path), "--", "true"]) == 0
    assert main(["monitor", "--out", str(tmp_path), "--", "true"]) == 2
    assert "holds a recording already" in capfd.readouterr().err


def test_a_command_that_loses_its_parent_is_still_watched(tmp_path: Path, run_program: Any) -> None:
    done = tmp_path / "done"
    worker = f"import pathlib, time\nwhile time.process_time() < 0.5: pass\npathlib.Path({str(done)!r}).touch()"
    starter = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {worker!r}])"
    code = (
        f"import pathlib, subprocess, sys, time; subprocess.run([sys.executable, '-c', {starter!r}])\n"
        f"while not pathlib.Path({str(done)!r}).exists(): time.sleep(0.05)\n"
        "time.sleep(1.2)"  # a sample comes every second
    )
    ended = run_program("monitor", "--out", tmp_path / "out", "--hz", 1, "--json", *python(code))
    assert json.loads(ended.stdout)["cpu_s"] >= 0.5


def test_children_that_nobody_waits_for_count_beside_a_busy_parent(tmp_path: Path, run_program: Any) -> None:
    code = (
        "import os, signal, time\nsignal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "def burn(s):\n    end = time.process_time() + s\n    while time.process_time() < end: pass\n"
        "if os.fork() == 0:\n    burn(0.3); time.sleep(0.2); os._exit(0)\n"
        "time.sleep(0.7); burn(0.5)"
    )
    ended = run_program("monitor", "--out", tmp_path, "--hz", 20, "--json", *python(code))
    assert json.loads(ended.stdout)["cpu_s"] >= 0.78


def test_a_broken_pipe_ends_a_command_as_it_would_without_us(tmp_path: Path, run_program: Any) -> None:
    ended = run_program("monitor", "--out", tmp_path, "--", "bash", "-c", "yes | head -1; exit ${PIPESTATUS[0]}")
    assert ended.returncode == 128 + signal.SIGPIPE


@pytest.mark.parametrize("redirection", ["2>/dev/full", "2>&-", "2> >(exit 0)"])
def test_where_nobody_hears_us_the_command_goes_on_and_its_code_comes_back(redirection: str, tmp_path: Path) -> None:
    command = f"{sys.executable} -m redline.cli.main monitor --out {tmp_path}/out -- bash -c 'sleep 0.2; exit 3'"
    assert subprocess.run(["bash", "-c", f"{command} {redirection}"], check=False).returncode == 3


def test_a_recording_that_fails_does_not_take_the_command_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    from redline.cli.main import main
    from redline.monitor.sampling import HardwareRecorder

    def fail(_: object) -> None:
        raise RuntimeError("the sensor fell off")

    monkeypatch.setattr(HardwareRecorder, "take", fail)
    command = python("import time; time.sleep(0.3); print(5); exit(4)")
    assert main(["monitor", "--out", str(tmp_path / "out"), "--hz", "20", *command]) == 4
    shown = capfd.readouterr()
    assert shown.out == "5\n"
    assert "the sensor fell off" in shown.err


def test_what_never_ran_leaves_nothing_behind(tmp_path: Path, capfd: Any) -> None:
    from redline.cli.main import main

    script = tmp_path / "no-interpreter"
    script.write_text("nonsense")
    script.chmod(0o755)
    for program in (script, "no-such-program"):
        assert main(["monitor", "--out", str(tmp_path / "out"), "--", str(program)]) == 2
        assert "can't be run" in capfd.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_recording_is_private(tmp_path: Path) -> None:
    from redline.cli.main import main

    assert main(["monitor", "--out", str(tmp_path / "out"), "--", "true"]) == 0
    assert (tmp_path / "out").stat().st_mode & 0o077 == 0

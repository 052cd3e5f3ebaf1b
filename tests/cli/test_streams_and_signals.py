"""A training outlives its display; a signal ends a command at any moment, in one line, with the right exit code."""

import fcntl
import json
import os
import pty
import resource
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from redline.cli.main import FAILED, main, refuse
from redline.cli.process import REPEATED_S, SHORT_SPIN, LossyFile, StopRequest, print_object
from redline.jsonl import read_records
from waiting import PATIENCE_S, wait_for

REDLINE = [sys.executable, "-m", "redline.cli.main"]
TRAIN = [*REDLINE, "train", "--env", "CartPole-v1", "--model", "dqn", "--plain", "--log-dir"]
SHORT = ["--max-steps", "1000"]
LONG = ["--max-minutes", "5"]


def run_of(folder: Path) -> Path:
    (found,) = folder.rglob("run.json")
    return found.parent


def wait_for_run(folder: Path) -> Path:
    wait_for(lambda: list(folder.rglob("metrics.jsonl")), "it trains")
    return run_of(folder)


def test_training_goes_on_when_its_display_meets_a_full_disk(tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*TRAIN, str(tmp_path), *SHORT], check=False, stdout=full, stderr=subprocess.PIPE, timeout=PATIENCE_S
        )
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)
    run = run_of(tmp_path)
    assert list((run / "checkpoints").glob("1000"))
    warnings = [row["message"] for row in read_records(run / "events.jsonl") if row["event"] == "warning"]
    assert warnings == ["lines of the display are lost: No space left on device"]


def test_training_needs_no_stdout_and_no_stderr(tmp_path: Path) -> None:
    closed = " ".join([*TRAIN, str(tmp_path), *SHORT, ">&-", "2>&-", "<&-"])
    assert subprocess.run(["sh", "-c", closed], check=False, timeout=PATIENCE_S).returncode == 0
    run = run_of(tmp_path)
    # no file of the run got the number of stdout, so nothing was printed into one
    assert all(row.get("schema") == 1 for row in read_records(run / "metrics.jsonl"))
    assert (run / "run.lock").read_bytes() == b""


def test_a_command_whose_output_is_lost_says_so_and_fails() -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [*REDLINE, "recipes"], check=False, stdout=full, stderr=subprocess.PIPE, timeout=PATIENCE_S
        )
    assert done.returncode == 1
    assert done.stderr.decode() == "redline: a part of the output is lost: no space left on device\n"


def test_letters_that_a_locale_lacks_are_replaced() -> None:
    ascii_only = {**os.environ, "PYTHONIOENCODING": "ascii:strict"}
    done = subprocess.run([*REDLINE, "recipes"], check=False, capture_output=True, timeout=PATIENCE_S, env=ascii_only)
    assert done.returncode == 0
    assert done.stdout.isascii()


def test_lossy_file_drops_what_it_can_not_write_and_remembers_why() -> None:
    descriptor = os.open("/dev/full", os.O_WRONLY)
    file = LossyFile(descriptor)
    assert (file.write(b"12345"), file.write(b"678")) == (5, 3)
    assert str(file.error) == "[Errno 28] No space left on device"
    os.close(descriptor)


def test_closed_terminal_stops_a_training_with_a_checkpoint_and_no_traceback(tmp_path: Path) -> None:
    own, its = pty.openpty()
    training = subprocess.Popen(
        [*TRAIN, str(tmp_path), *LONG], stdin=its, stdout=its, stderr=subprocess.PIPE, start_new_session=True
    )
    os.close(its)
    run = wait_for_run(tmp_path)
    os.close(own)  # what it prints from now on is an EIO
    training.send_signal(signal.SIGHUP)
    _, said = training.communicate(timeout=PATIENCE_S)
    assert (training.returncode, b"Traceback" in said) == (75, False)
    assert list((run / "checkpoints").iterdir())


def test_nohup_keeps_a_training_alive(tmp_path: Path) -> None:
    training = subprocess.Popen(
        ["nohup", *TRAIN, str(tmp_path), *LONG], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    run = wait_for_run(tmp_path)
    training.send_signal(signal.SIGHUP)
    time.sleep(1.0)
    assert training.poll() is None
    training.terminate()
    assert training.wait(PATIENCE_S) == 75
    assert read_records(run / "events.jsonl")[-1]["event"] == "checkpoint"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 75), (signal.SIGHUP, 75), (signal.SIGINT, 1)])
def test_signal_while_modules_load_is_one_line(number: signal.Signals, code: int) -> None:
    # the moment is certain: this process sends itself the signal when the first large module is asked for
    program = (
        "import os, sys\n"
        "class Early:\n"
        "    def find_spec(self, name, *_):\n"
        f"        if name == 'rich': os.kill(os.getpid(), {int(number)})\n"
        "sys.meta_path.insert(0, Early())\n"
        "from redline.cli import start\n"
        "sys.argv = ['redline', 'train', '--max-steps', '10', '--json']\n"
        "sys.exit(start())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, timeout=PATIENCE_S)
    said = "interrupted" if number is signal.SIGINT else f"stopped by {number.name}"
    assert (done.returncode, done.stderr.decode()) == (code, f"redline: {said}\n")
    assert json.loads(done.stdout) == {"schema": 1, "error": said}


@pytest.mark.parametrize("command", ["recipes", "train"])
def test_ctrl_c_while_python_ends_changes_nothing(command: str) -> None:
    # an exit hook, as other packages have them, that takes long
    program = (
        "import atexit, signal, sys\n"
        "atexit.register(signal.raise_signal, signal.SIGINT)\n"
        "from redline.cli import start\n"
        f"sys.argv = ['redline', '{command}', '--max-steps', 'x']\n"
        "sys.exit(start())\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, timeout=PATIENCE_S)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


def test_second_signal_interrupts_and_a_repeated_one_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # to the process, and to its group
        assert stop.reason() == "SIGTERM"
        now_s += 2 * REPEATED_S
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL  # the next one ends the process


def test_signals_that_were_ignored_stay_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopRequest() as stop:
            signal.raise_signal(signal.SIGHUP)
            assert stop.reason() is None
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


def test_signal_before_the_command_is_found_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # the first thing that takes time is a look at how busy the machine is
    monkeypatch.setattr("redline.cli.process.time.sleep", lambda _: signal.raise_signal(signal.SIGINT))
    for name in SHORT_SPIN:
        monkeypatch.delenv(name, raising=False)
    assert main(["bench", "env"]) == 1
    assert capsys.readouterr().err == "redline: interrupted\n"


def test_a_second_ctrl_c_does_not_interrupt_the_line_about_the_first() -> None:
    program = (
        "import io, signal, sys\n"
        "class Said(io.StringIO):\n"
        "    def write(self, text):\n"
        "        signal.raise_signal(signal.SIGINT)\n"
        "        return super().write(text)\n"
        "class First:\n"
        "    def find_spec(self, name, *_):\n"
        "        if name == 'redline.cli.lists': signal.raise_signal(signal.SIGINT)\n"
        "sys.meta_path.insert(0, First())\n"
        "sys.argv, sys.stderr = ['redline', 'recipes'], Said()\n"
        "from redline.cli import start\n"
        "code = start()\n"
        "print(sys.stderr.getvalue(), end='')\n"
        "sys.exit(code)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stdout.decode()) == (1, "redline: interrupted\n")


def test_a_signal_while_the_object_is_printed_leaves_it_whole_and_alone() -> None:
    program = subprocess.Popen([*REDLINE, "algos", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert program.stdout is not None
    pipe = program.stdout.fileno()
    fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, resource.getpagesize())
    wait_for(lambda: unread_bytes(pipe) == resource.getpagesize(), "it prints")
    program.send_signal(signal.SIGINT)
    out, err = program.communicate(timeout=PATIENCE_S)
    assert (program.returncode, err) == (0, b"")
    assert "algorithms" in json.loads(out)


def unread_bytes(pipe: int) -> int:
    number = bytearray(4)
    fcntl.ioctl(pipe, termios.FIONREAD, number)
    return int.from_bytes(number, sys.byteorder)


def test_what_ends_a_command_after_its_object_adds_no_other(capsys: pytest.CaptureFixture[str]) -> None:
    print_object("{}")
    assert refuse("interrupted", as_json=True, code=FAILED) == FAILED
    assert capsys.readouterr() == ("{}\n", "redline: interrupted\n")


def test_a_command_that_is_over_does_not_wait_for_the_end_of_python() -> None:
    program = """
import sys, time
from redline.cli.main import main
class Slow:
    def __del__(self):  # when modules are cleared, where any signal would kill the process
        time.sleep(600)
slow = Slow()
sys.argv = ["redline", "recipes"]
sys.exit(main())
"""
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, timeout=PATIENCE_S)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"pong" in done.stdout

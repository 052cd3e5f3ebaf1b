"""Workers: processes of their own, of which nothing is left, whatever ends them."""

import os
import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from redline.bench.other_work import OtherWork, percent_of_others
from redline.bench.training.settings import SETTINGS
from redline.bench.training.workers import TrainingPeer, WorkerError, end_group, environ_with, run_worker


def test_a_worker_that_fails_says_why() -> None:
    with pytest.raises(WorkerError, match=r"ended with 1: .*no_such_worker"):
        run_worker("redline.bench.training.no_such_worker", SETTINGS["dqn"], environ=os.environ)


def test_an_interrupt_leaves_neither_processes_nor_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary, pids = tmp_path / "temporary", tmp_path / "pids"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    (tmp_path / "sleeping_worker.py").write_text(
        "import os, pathlib, subprocess, time\n"
        "child = subprocess.Popen(['sleep', '60'])\n"
        f"pathlib.Path({str(pids)!r}).write_text(f'{{os.getpid()}} {{child.pid}} ')\n"
        "time.sleep(60)\n",
        encoding="utf-8",
    )

    def interrupt_once_started(*_: object) -> None:
        if pids.exists() and pids.read_text(encoding="utf-8").count(" ") == 2:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt_once_started)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_worker("sleeping_worker", SETTINGS["dqn"], environ={**os.environ, "PYTHONPATH": str(tmp_path)})
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    for pid in map(int, pids.read_text(encoding="utf-8").split()):
        assert is_gone(pid)
    assert list(temporary.iterdir()) == []


def test_a_second_interrupt_ends_the_worker_at_once() -> None:
    deaf = subprocess.Popen(
        ["sh", "-c", "trap '' TERM; echo ready; sleep 60"], stdout=subprocess.PIPE, start_new_session=True
    )
    assert deaf.stdout is not None
    with deaf.stdout as said:
        said.readline()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        with pytest.raises(KeyboardInterrupt):
            end_group(deaf)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    assert deaf.returncode == -signal.SIGKILL


def is_gone(pid: int) -> bool:
    """Tell whether a process has ended, waiting a little for whoever reaps it."""
    try:
        process = psutil.Process(pid)
        psutil.wait_procs([process], timeout=2.0)
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def test_settings_for_openmp_are_there_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    monkeypatch.setenv("KEPT", "yes")
    known = {"OMP_WAIT_POLICY": "passive"}
    assert environ_with(known, known=known)["OMP_WAIT_POLICY"] == "passive"
    without = environ_with({}, known=known)
    assert "OMP_WAIT_POLICY" not in without
    assert without["KEPT"] == "yes"


def test_a_peer_that_is_not_installed_says_how_to_get_it() -> None:
    absent = TrainingPeer("no_such_module", "no-such-package", "no_such_worker")
    assert absent.missing is not None
    assert "make setup EXTRAS=bench" in absent.missing
    assert TrainingPeer("json", "json", "json").missing is None


def test_own_work_is_not_the_work_of_others() -> None:
    assert percent_of_others(all_cpu_s=19.0, own_cpu_s=15.0, available_s=20.0) == 20.0
    assert percent_of_others(all_cpu_s=15.0, own_cpu_s=15.01, available_s=20.0) == 0.0
    assert OtherWork().percent() >= 0.0

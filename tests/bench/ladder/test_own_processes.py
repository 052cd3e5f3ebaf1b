"""A contender in processes of its own works only in its turns, and leaves nothing behind."""

import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from redline.bench.ladder import own_processes
from redline.bench.ladder.contenders import ContenderError
from redline.bench.ladder.own_processes import OwnProcesses, tied

# writes readings as a run does, with a process of its own, and counts steps only while it runs; after a halt it loses a
# process, and its steps leap a little later
RUN = """
import json, pathlib, signal, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
run = pathlib.Path(sys.argv[1]) / "pong" / "dqn" / "1"
run.mkdir(parents=True)
steps, leap_s = 0, float("inf")
def lose(*_):
    global leap_s
    leap_s = time.time() + 0.2
    (run / "events.jsonl").write_text('{"schema": 1, "event": "process-lost"}\\n')
signal.signal(signal.SIGCONT, lose)
with (run / "metrics.jsonl").open("w") as file:
    while True:
        steps += 8
        if time.time() > leap_s:
            steps, leap_s = steps + 8_000_000, float("inf")
        row = {"schema": 1, "unix_s": time.time(), "steps": steps, "updates": steps // 4, "samples": steps * 8}
        file.write(json.dumps(row) + "\\n")
        file.flush()
        time.sleep(0.02)
"""


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_processes, "command", lambda *arguments: [sys.executable, "-c", RUN, arguments[1]])
    monkeypatch.setattr(own_processes, "FRESH_S", 0.1)


def test_it_rests_between_turns(stand_in: None) -> None:
    folders: list[Path] = []

    def flags(folder: Path) -> list[str]:
        folders.append(folder)
        return [str(folder)]

    run = OwnProcesses(flags)
    processes = [psutil.Process(run._process.pid)]
    try:
        run.warm_up()
        processes += processes[0].children()
        assert len(processes) == 2
        time.sleep(0.1)
        assert {process.status() for process in processes} == {psutil.STATUS_STOPPED}
        rows = len(run._rows("metrics"))
        time.sleep(0.3)
        assert len(run._rows("metrics")) == rows
        turn = run.take_turn(0.2)
        # no window reaches back over the rest, in which no step was played, nor does one count that saw a loss
        assert 0.2 <= turn.seconds < 2.0
        assert turn.steps < 8_000_000
        assert run._count_lost() == 1
        assert turn.samples / turn.steps == 8.0
        assert turn.updates == turn.steps // 4
    finally:
        run.close()
    _, alive = psutil.wait_procs(processes, timeout=10.0)  # on a busy machine the killed take a moment to go
    assert all(process.status() == psutil.STATUS_ZOMBIE for process in alive)
    assert not folders[0].exists()


def test_one_that_ends_too_early_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = [sys.executable, "-c", "import sys; sys.exit('no such game')"]
    monkeypatch.setattr(own_processes, "command", lambda *arguments: failing)
    run = OwnProcesses(lambda folder: [])
    with pytest.raises(ContenderError, match="no such game"):
        run.warm_up()
    run.close()


def test_what_was_learnt_is_read_beside_whatever_else_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    code = """import sys; print('{"mean_return_100": 0.5}', flush=True); print("a late warning", file=sys.stderr)"""
    monkeypatch.setattr(own_processes, "command", lambda *arguments: [sys.executable, "-c", code])
    run = OwnProcesses(lambda folder: [])
    assert run.mean_return() == 0.5
    run.close()


def test_a_halted_run_does_not_outlive_a_bench_that_is_killed() -> None:
    starts = "import subprocess, sys; subprocess.Popen(sys.argv[1:], start_new_session=True).wait()"
    waits = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    words = [sys.executable, "-c", starts, *tied([sys.executable, "-c", waits])]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as bench:
        assert bench.stdout is not None
        run = psutil.Process(int(bench.stdout.readline()))
        run.suspend()
        bench.kill()
    give_up_s = time.monotonic() + 10.0
    while run.is_running() and run.status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < give_up_s
        time.sleep(0.02)

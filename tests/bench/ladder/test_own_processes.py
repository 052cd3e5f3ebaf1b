"""A contender in processes of its own works only in its turns, and leaves nothing behind."""

import sys
import time
from pathlib import Path

import psutil
import pytest

from redline.bench.ladder import own_processes
from redline.bench.ladder.contenders import ContenderError
from redline.bench.ladder.own_processes import OwnProcesses

# writes readings as a run does, with a process of its own, and counts steps only while it runs
RUN = """
import json, subprocess, sys, time, pathlib
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
run = pathlib.Path(sys.argv[1]) / "pong" / "dqn" / "1"
run.mkdir(parents=True)
steps = 0
with (run / "metrics.jsonl").open("w") as file:
    while True:
        steps += 8
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
        rows = len(run._rows())
        time.sleep(0.3)
        assert len(run._rows()) == rows
        turn = run.take_turn(0.2)
        # no window reaches back over the rest, in which no step was played
        assert 0.2 <= turn.seconds < 2.0
        assert turn.samples / turn.steps == 8.0
        assert turn.updates == turn.steps // 4
    finally:
        run.close()
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)
    assert not folders[0].exists()


def test_one_that_ends_too_early_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = [sys.executable, "-c", "import sys; sys.exit('no such game')"]
    monkeypatch.setattr(own_processes, "command", lambda *arguments: failing)
    run = OwnProcesses(lambda folder: [])
    with pytest.raises(ContenderError, match="no such game"):
        run.warm_up()
    run.close()

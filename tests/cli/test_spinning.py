"""How long threads spin: long only where a learner has the machine to itself."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from redline.cli import process
from redline.cli.main import BAD_INPUT, main
from redline.cli.process import LONG_SPIN, SHORT_SPIN, busy_cores, choose_spin, spin_in_processes


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "busy_cores", lambda: 0.0)


@pytest.mark.usefixtures("free")
def test_a_learner_on_a_free_machine_spins_long_and_everything_else_briefly(tmp_path: Path) -> None:
    assert choose_spin(["train", "--env", "pong"]) == LONG_SPIN
    assert choose_spin(["bench", "train"]) == LONG_SPIN
    assert choose_spin(["plan", "speed", "--env", "pong"]) == LONG_SPIN
    assert choose_spin(["plan", "memory"]) == SHORT_SPIN
    for args in ([], ["watch", "runs"], ["train", "--topology", "async"], ["train", "--topology=async"]):
        assert choose_spin(args) == SHORT_SPIN
    run = tmp_path / "runs" / "one"
    run.mkdir(parents=True)
    for topology, expected in (("inline", LONG_SPIN), ("async", SHORT_SPIN)):
        (run / "run.json").write_text(json.dumps({"config": {"topology": topology}}), encoding="utf-8")
        assert choose_spin(["resume", str(run)]) == expected
        assert choose_spin(["resume", str(run.parent)]) == expected
    assert choose_spin(["resume", str(tmp_path / "nowhere")]) == SHORT_SPIN
    assert choose_spin(["resume"]) == SHORT_SPIN


def test_a_candidate_in_several_processes_spins_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    assert spin_in_processes() == {}  # briefly already
    for name, value in LONG_SPIN.items():
        monkeypatch.setenv(name, value)
    assert spin_in_processes() == SHORT_SPIN


def test_a_run_whose_file_asks_for_several_processes_spins_briefly(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value in LONG_SPIN.items():
        monkeypatch.setenv(name, value)
    config = tmp_path / "speed.toml"
    config.write_text("topology = 'async'\n", encoding="utf-8")
    args = ["--env", "CartPole-v1", "--config", config, "--log-dir", tmp_path]
    too_many = ["--replay.capacity", 10**11]  # refused before the processes start, which takes seconds
    assert main(["train", *map(str, args + too_many)]) == BAD_INPUT
    assert {name: os.environ[name] for name in SHORT_SPIN} == SHORT_SPIN


@pytest.mark.usefixtures("free")
def test_a_run_that_cannot_be_read_is_left_to_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert choose_spin(["resume", "last"]) == SHORT_SPIN  # there are no runs
    run = tmp_path / "runs" / "one"
    run.mkdir(parents=True)
    os.mkfifo(run / "run.json")
    assert choose_spin(["resume", str(run)]) == SHORT_SPIN
    (run / "run.json").unlink()
    (run / "run.json").write_text("[]", encoding="utf-8")
    assert choose_spin(["resume", str(run)]) == SHORT_SPIN


def test_other_work_is_seen() -> None:
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            spent = max(busy_cores() for _ in range(5))
        finally:
            other.kill()
    assert spent > process.MOST_BUSY_CORES


def test_other_work_makes_a_learner_spin_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "busy_cores", lambda: 0.5)
    assert choose_spin(["train"]) == SHORT_SPIN

"""A disk that fills up, and files that vanish during a run: training goes on, and saves what can be saved."""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from redline.algorithms.named.dqn import DQN_CLASSIC
from redline.envs.config import EnvConfig
from redline.jsonl import read_records
from redline.networks import Mlp
from redline.replay import ReplayConfig
from redline.runtime.config import Job, MonitorConfig
from redline.runtime.gauges import Display
from redline.runtime.launch import resume_run, start_run
from redline.runtime.resuming import read_run

UNWATCHED = MonitorConfig(hz=0)  # a process per test would take its time


def test_a_full_disk_costs_a_checkpoint_and_nothing_else(mount_disk: Callable[[str], Path], listener: Display) -> None:
    disk = mount_disk("8m")
    algorithm = replace(DQN_CLASSIC, network=Mlp((32,)), replay=ReplayConfig(capacity=2_000), warmup_steps=100)
    job = Job(
        monitor=UNWATCHED, env=EnvConfig("CartPole-v1", stack=1, skip=1), algorithm=algorithm, log_dir=disk, num_envs=2
    )
    with start_run(job, "dqn", listener) as session:
        for _ in range(100):
            session.trainer.vector_step()
        session.checkpoint(is_last=False)
        filler = disk / "filler"
        with filler.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):  # noqa: PT012
            while True:
                file.write(b"x" * 4096)
        for _ in range(100):
            session.trainer.vector_step()
        for episode in range(3):
            session.event("filler", number=episode, text="x" * 4_096)  # more than the last block has room for
        filled = session.run.path / "checkpoints"
        session.checkpoint(is_last=False)
        assert sorted(path.name for path in filled.iterdir()) == ["0", "200"]
        assert any(f"{disk} has" in note and "goes on" in note for note in listener.notes)  # type: ignore[attr-defined]
        filler.unlink()
        session.checkpoint(is_last=False)
        assert sorted(path.name for path in filled.iterdir()) == ["0", "200", "400"]
    numbers = [row["number"] for row in read_records(session.run.path / "events.jsonl") if row["event"] == "filler"]
    assert numbers == [0, 1, 2]
    assert any("rows wait in memory" in note for note in listener.notes)  # type: ignore[attr-defined]
    saved = read_run(session.run.path)
    with resume_run(saved, saved.job, listener) as resumed:
        assert resumed.trainer.counters.steps == 400


# Files that somebody removes while a run trains

PATIENCE_S = 120.0
REDLINE = [sys.executable, "-m", "redline.cli.main"]
TOPOLOGIES = {"inline": [], "async": ["--topology", "async", "--actors", "1"]}


def start_training(folder: Path, topology: str) -> tuple[subprocess.Popen[bytes], Path]:
    """Start a training that saves a checkpoint every second; return it and its folder once it has saved one."""
    options = [
        "--env",
        "CartPole-v1",
        "--model",
        "dqn",
        "--plain",
        "--checkpoint-minutes",
        "0.016",
        "--max-minutes",
        "5",
    ]
    training = subprocess.Popen(
        [*REDLINE, "train", *options, *TOPOLOGIES[topology], "--max-minutes", "5", "--log-dir", str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    wait_until(lambda: len(list(folder.glob("*/*/*/checkpoints/[1-9]*/manifest.json"))) > 0)
    return training, next(folder.glob("*/*/*"))


def wait_until(holds: Callable[[], bool]) -> None:
    end_s = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def saved_steps(run: Path) -> list[int]:
    return sorted(int(path.parent.name) for path in run.glob("checkpoints/[0-9]*/manifest.json"))


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_removed_replay_and_checkpoints_are_saved_again(tmp_path: Path, topology: str) -> None:
    training, run = start_training(tmp_path, topology)
    shutil.rmtree(run / "replay")
    shutil.rmtree(run / "checkpoints", ignore_errors=True)  # one may be saved at this moment
    wait_until(lambda: len(saved_steps(run)) > 0)
    training.send_signal(signal.SIGTERM)
    _, said = training.communicate(timeout=PATIENCE_S)
    assert (training.returncode, b"Traceback" in said) == (75, False), said
    last = saved_steps(run)[-1]
    resume = [*REDLINE, "resume", str(run), "--plain", "--max-steps", str(last + 100)]
    done = subprocess.run(resume, check=False, capture_output=True, timeout=PATIENCE_S)
    assert done.returncode == 0, done.stderr
    assert f"resumed at step {last:,}" in done.stdout.decode()
    assert "damaged" not in done.stdout.decode()


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_run_without_its_directory_trains_to_its_end_and_says_what_it_could_not_save(
    tmp_path: Path, topology: str
) -> None:
    training, run = start_training(tmp_path, topology)
    moved = tmp_path / "moved"
    run.rename(moved)
    time.sleep(2.0)
    assert training.poll() is None
    training.send_signal(signal.SIGTERM)
    _, said = training.communicate(timeout=PATIENCE_S)
    assert (training.returncode, b"Traceback" in said) == (1, False), said
    assert "no such file or directory" in said.decode()
    assert read_records(moved / "events.jsonl")[-1]["event"] == "error"

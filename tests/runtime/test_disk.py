"""A disk that fills up, and files that vanish during a run: training goes on, and saves what can be saved."""

import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from whole_runs import UNWATCHED

from redline.algorithms.named.dqn import DQN_CLASSIC
from redline.cli.main import DONE, FAILED, RESUMABLE, main
from redline.envs.config import EnvConfig
from redline.errors import UserError
from redline.files import free_bytes
from redline.jsonl import read_records
from redline.networks import Mlp
from redline.replay import ReplayConfig
from redline.runtime.building import check_disk, checkpoint_bytes
from redline.runtime.config import Job
from redline.runtime.gauges import Display
from redline.runtime.launch import resume_run, start_run
from redline.runtime.resolve import resolve_job
from redline.runtime.resuming import read_run
from waiting import wait_for


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

OFTEN = ("--env", "CartPole-v1", "--model", "dqn", "--plain", "--checkpoint-minutes", 0.016, "--max-minutes", 5)
TOPOLOGIES = {"inline": (), "async": ("--topology", "async", "--actors", 1)}


def saved_steps(folder: Path) -> list[int]:
    return sorted(int(path.parent.name) for path in folder.rglob("checkpoints/[1-9]*/manifest.json"))


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_removed_replay_and_checkpoints_are_saved_again(
    tmp_path: Path, topology: str, main_beside: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def remove_and_stop(send: Any) -> None:
        wait_for(lambda: saved_steps(tmp_path), "a checkpoint is saved")
        (run,) = tmp_path.glob("*/*/*")
        shutil.rmtree(run / "replay")
        shutil.rmtree(run / "checkpoints", ignore_errors=True)  # one may be saved at this moment
        wait_for(lambda: saved_steps(run), "a checkpoint is saved again")
        send(signal.SIGTERM)

    train = ("train", *OFTEN, *TOPOLOGIES[topology], "--log-dir", tmp_path)
    assert main_beside(remove_and_stop, train) == RESUMABLE
    assert "Traceback" not in capsys.readouterr().err
    (run,) = tmp_path.glob("*/*/*")
    last = saved_steps(run)[-1]
    assert main(["resume", str(run), "--plain", "--max-steps", str(last + 100)]) == DONE
    said = capsys.readouterr().out
    assert f"resumed at step {last:,}" in said
    assert "damaged" not in said


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_run_without_its_directory_trains_to_its_end_and_says_what_it_could_not_save(
    tmp_path: Path, topology: str, main_beside: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = tmp_path / "moved"

    def move_and_stop(send: Any) -> None:
        wait_for(lambda: saved_steps(tmp_path / "runs"), "a checkpoint is saved")
        next((tmp_path / "runs").glob("*/*/*")).rename(moved)
        time.sleep(2.0)  # in which it fails to save checkpoints, and goes on
        send(signal.SIGTERM)

    train = ("train", *OFTEN, *TOPOLOGIES[topology], "--log-dir", tmp_path / "runs")
    assert main_beside(move_and_stop, train) == FAILED
    said = capsys.readouterr().err
    assert "Traceback" not in said
    assert "no such file or directory" in said
    assert read_records(moved / "events.jsonl")[-1]["event"] == "error"


def test_a_resumed_run_needs_no_room_for_what_it_has(mount_disk: Callable[[str], Path], listener: Display) -> None:
    disk = mount_disk("8m")
    algorithm = replace(DQN_CLASSIC, network=Mlp((256,)), replay=ReplayConfig(capacity=2_000), warmup_steps=100)
    job = Job(monitor=UNWATCHED, env=EnvConfig("CartPole-v1", stack=1, skip=1), algorithm=algorithm, log_dir=disk)
    with start_run(job, "dqn", listener) as session:
        session.checkpoint(is_last=True)
        run, held_bytes = session.run.path, session.run.saved_bytes()
    needed_bytes = checkpoint_bytes(resolve_job(job))
    (disk / "filler").write_bytes(bytes(free_bytes(disk) - needed_bytes + held_bytes // 2))
    with pytest.raises(UserError, match="a run may need"):
        check_disk(resolve_job(job), disk)
    saved = read_run(run)
    with resume_run(saved, saved.job, listener) as session:
        assert session.trainer.counters.steps == 0

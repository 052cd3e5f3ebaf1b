"""A disk that fills up during a run: the last good checkpoint stands, training goes on, the next save works."""

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

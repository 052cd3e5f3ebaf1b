"""A training is recorded without a monitor where none can be started, and a stopped monitor goes on without us."""

import signal
import subprocess
from pathlib import Path

import psutil
import pytest

from redline.bench import training_speed
from redline.bench.training_speed import recorded, waker
from redline.cli.flags import parse_train
from redline.runtime.building import build_trainer
from redline.runtime.resolve import resolve_job


def test_a_monitor_that_cannot_be_started_is_said_and_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(training_speed, "MonitorProcess", refuse)
    notes: list[str] = []
    trainer = build_trainer(resolve_job(parse_train(["--env", "CartPole-v1", "--num-envs", "1"]).job), env_seed=1)
    try:
        with recorded(trainer, tmp_path, algorithm="dqn", note=notes.append) as training, training.without_records():
            pass
    finally:
        trainer.close()
    assert notes == ["the monitor can't be started: Cannot allocate memory; measured without it"]


def test_a_stopped_process_goes_on_when_our_pipe_closes() -> None:
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        try:
            with waker(sleeper.pid) as waking:
                sleeper.send_signal(signal.SIGSTOP)
                while psutil.Process(sleeper.pid).status() != psutil.STATUS_STOPPED:
                    pass
                assert waking.stdin is not None
                waking.stdin.close()  # as it is when this process is killed
                assert waking.wait(30) == 0
            assert psutil.Process(sleeper.pid).status() != psutil.STATUS_STOPPED
        finally:
            sleeper.kill()

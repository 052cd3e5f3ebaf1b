"""`redline bench train`: a real training beside the limit, one object on stdout, clear words for bad input."""

import json
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from redline.bench import learner_speed, training_speed
from redline.bench.training_speed import make_job
from redline.cli.main import BAD_INPUT, FAILED, main
from redline.cli.process import ended_by_signals
from redline.envs.vector import EnvError
from redline.runs.host import usable_cores
from redline.runtime.config import Job

QUICK = ["bench", "train", "--algo", "a2c", "--rounds", "1", "--seconds", "0.5", "--warmup-steps", "100"]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def small(algorithm: str, **flags: Any) -> Job:
        job = make_job(algorithm, **flags)
        return replace(job, num_envs=2, algorithm=replace(job.algorithm, batch_size=10))

    monkeypatch.setattr(learner_speed, "SIZES", (64,))
    monkeypatch.setattr(learner_speed, "TRY_SECONDS", 0.005)
    monkeypatch.setattr(training_speed, "ENV_SECONDS", 0.02)
    monkeypatch.setattr(training_speed, "make_job", small)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.set_flush_denormal(False)


def test_one_object_with_every_figure(
    quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert main([*QUICK, "--json"]) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert {"schema", "command", "host", "versions", "duration_s", "config", "goals"} <= result.keys()
    for rate in (result["steps_per_s"], result["updates_per_s"], result["limit_fraction"]):
        assert 0 < rate["low"] <= rate["median"] <= rate["high"]
    assert "round 1 of 1" in printed.err
    assert result["same_updates_per_step"] is True
    assert result["learning"]["redline"]["samples_per_step"]["median"] == 1.0
    (row,) = result["rounds"]
    assert row["redline"]["first_step"] >= 100
    assert row["redline"]["cores_used"] > 0.0
    assert row["redline"]["others_percent"] >= 0.0
    assert row["redline"]["threads"] == usable_cores()
    assert row["sgemm_gflops"] > 0.0
    assert row["bare_env_steps_per_s"] > 0.0
    assert list(tmp_path.glob("redline-*")) == []  # torch may have made a cache there


def test_a_training_that_fails_is_one_line(
    quick: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise EnvError("the emulators do not answer")

    monkeypatch.setattr(training_speed, "train_window", fail)
    assert main([*QUICK, "--plain"]) == FAILED
    assert capsys.readouterr().err.splitlines()[-1] == "redline: the emulators do not answer"


def test_a_table_without_json(quick: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--plain"]) == 0
    text = capsys.readouterr().out
    assert "replay ratio" in text
    assert "ms of emulation; reached" in text


def test_sigterm_ends_the_work_as_ctrl_c_does() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), ended_by_signals():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--algo", "rainbow"], "unknown algorithm of this bench 'rainbow'"),
        (["--env", "ALE/Pong-v5"], "by the rules of 2015"),
        (["--env", "CartPole-v1"], "is not an Atari game"),
        (["--rounds", "0"], "rounds is 0"),
        (["--seconds", "0"], "seconds is 0"),
        (["--warmup-steps", "1"], "warmup-steps is 1"),
    ],
)
def test_bad_input_is_one_line(args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "train", *args]) == BAD_INPUT
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1

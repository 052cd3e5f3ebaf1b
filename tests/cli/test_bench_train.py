"""`redline bench train`: real trainings in processes of their own, one object on stdout, clear words for bad input."""

import json
import signal
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from redline.bench import limit
from redline.bench.training import bench
from redline.bench.training.settings import SETTINGS, Setting
from redline.bench.training.workers import TrainingPeer
from redline.cli import bench_train
from redline.cli.bench_printing import ended_by_signals
from redline.cli.main import BAD_INPUT, FAILED, main
from redline.runs.host import usable_cores

QUICK = ["bench", "train", "--algo", "a2c", "--rounds", "1", "--seconds", "0.5", "--warmup-steps", "100"]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit, "SIZES", (64,))
    monkeypatch.setattr(limit, "TRY_SECONDS", 0.005)
    monkeypatch.setattr(bench, "ENV_SECONDS", 0.02)
    small = replace(SETTINGS["a2c"], num_envs=2, batch_size=10)
    monkeypatch.setattr(bench_train, "SETTINGS", {"a2c": small})


def test_ours_beside_the_limit_when_the_peer_is_missing(
    quick: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    absent = TrainingPeer("no_such_module", "no-such-package", "no_such_worker", ("dummy", "subproc"))
    monkeypatch.setattr(bench, "TRAINING_PEERS", {"sb3": absent})
    assert main([*QUICK, "--against", "sb3", "--json"]) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert {"schema", "command", "host", "versions", "duration_s", "config", "goals"} <= result.keys()
    for rate in (result["steps_per_s"], result["updates_per_s"], result["limit_fraction"]):
        assert 0 < rate["low"] <= rate["median"] <= rate["high"]
    assert (result["peers"], result["ratio"]) == ({}, {})
    assert "make setup EXTRAS=bench" in result["missing"]["sb3"]
    assert "left out: sb3" in printed.err
    assert result["same_updates_per_step"] is True
    assert result["learning"]["redline"]["samples_per_step"]["median"] == 1.0
    (row,) = result["rounds"]
    assert row["redline"]["first_step"] >= 100
    assert row["redline"]["cores_used"] > 0.0
    assert row["redline"]["others_percent"] >= 0.0
    assert row["redline"]["threads"] == usable_cores()
    assert list(tmp_path.glob("redline-*")) == []  # torch may have made a cache there


def test_the_faster_vector_env_of_a_peer_is_taken_by_the_median(monkeypatch: pytest.MonkeyPatch) -> None:
    speeds = {"dummy": [300.0, 90.0, 80.0], "subproc": [100.0, 10.0, 110.0], "ours": [1.0]}
    closed: list[str] = []

    class Trained(AbstractContextManager["Trained"]):
        """A worker whose speeds are known."""

        def __init__(self, module: str, setting: Setting) -> None:
            self.name = "ours" if module == bench.OURS else setting.peer_vec_env

        def __exit__(self, *_: object) -> None:
            closed.append(self.name)

        def take_turn(self, seconds: float) -> dict[str, float]:
            return {"steps_per_s": speeds[self.name].pop(0)}

    monkeypatch.setattr(bench.TrainBench, "_worker", lambda _, module, setting: Trained(module, setting))
    peer = TrainingPeer("json", "json", "a_worker", ("dummy", "subproc"))
    with ExitStack() as stack:
        workers, reached = bench.TrainBench(SETTINGS["a2c"])._start({"peer": peer}, stack, lambda _: None)
        assert workers["peer"].name == "subproc"  # type: ignore[attr-defined]
        assert closed == ["dummy"]
    assert reached["peer"]["dummy"]["median"] == 90.0
    assert sorted(closed) == ["dummy", "ours", "subproc"]


def test_a_training_that_fails_is_one_line(
    quick: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench, "OURS", "redline.bench.training.no_such_worker")
    assert main([*QUICK, "--plain"]) == FAILED
    assert "no_such_worker" in capsys.readouterr().err.splitlines()[-1]


def test_sigterm_ends_the_work_as_ctrl_c_does() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), ended_by_signals():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--algo", "rainbow"], "unknown algorithm of this bench 'rainbow'"),
        (["--against", "sb4"], "unknown peer 'sb4': did you mean sb3"),
        (["--env", "ALE/Pong-v5"], "by the rules of 2015"),
        (["--env", "CartPole-v1"], "is no Atari game"),
        (["--rounds", "0"], "rounds is 0"),
        (["--seconds", "0"], "seconds is 0"),
        (["--warmup-steps", "1"], "warmup-steps is 1"),
        (["--peer-vec-env", "both"], "--peer-vec-env is 'both': use auto or dummy or subproc"),
    ],
)
def test_bad_input_is_one_line(args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "train", *args]) == BAD_INPUT
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1

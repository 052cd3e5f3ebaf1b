"""`redline profile`: one object on stdout, words without --json, and clear words for bad input."""

import gzip
import json
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from redline.bench.costs import PARTS
from redline.bench.knockouts import VARIANTS
from redline.cli.main import BAD_INPUT, FAILED, main

QUICK = ["profile", "--env", "CartPole-v1", "--num-envs", "2", "--rounds", "2", "--turn-seconds", "0.005"]
DQN = ["--batch-size", "8", "--samples-per-step", "8", "--warmup-steps", "60"]
PPO = ["--algo", "ppo", "--rollout-steps", "4", "--batch-size", "8", "--epochs", "1", "--monitor.hz", "0"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the command runs, and where its temporary files go."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "temporary").mkdir()
    (tmp_path / "folder.json").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path


def left_behind(folder: Path) -> list[Path]:
    """Return what is ours of the temporary files: PyTorch's profiler makes a folder for itself."""
    return list((folder / "temporary").glob("redline-*"))


def test_one_object_with_every_figure_and_nothing_left_behind(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, *DQN, "--out", "result.json", "--trace", "trace.json.gz", "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert result == json.loads((folder / "result.json").read_text(encoding="utf-8"))
    assert {
        "schema",
        "command",
        "host",
        "versions",
        "duration_s",
        "config",
        "overlap",
        "remarks",
        "advice",
        "is_busy",
    } <= result.keys()
    assert result["config"]["env"]["id"] == "CartPole-v1"
    for rate in [result["full"]["steps_per_s"], result["full"]["updates_per_s"]]:
        assert 0 < rate["low"] <= rate["median"] <= rate["high"]
    assert set(result["variants"]) == set(VARIANTS)
    assert set(result["parts"]) == set(PARTS)
    for part in result["parts"].values():
        assert part["ms_per_vector_step"].keys() == part["share"].keys() == {"median", "low", "high"}
    assert result["bottleneck"]["part"] is None  # of two rounds
    assert result["bottleneck"].keys() == {"part", "then", "sentence"}
    events = json.loads(gzip.decompress((folder / "trace.json.gz").read_bytes()))["traceEvents"]
    assert {"act", "draw", "learn", "keep"} <= {event.get("name") for event in events}
    assert {path.name for path in folder.iterdir()} == {"result.json", "trace.json.gz", "temporary", "folder.json"}
    assert left_behind(folder) == []


def test_words_for_people_though_the_disk_is_full(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "trace.json").symlink_to("/dev/full")
    assert main([*QUICK, *PPO, "--plain", "--out", "/dev/full", "--trace", "trace.json"]) == FAILED
    text, told = capsys.readouterr()
    for words in (
        "least and most of the rounds",
        "ms per vector step",
        "sum of the parts",
        "the whole",
        "Nothing runs beside the envs",
        "includes the clipping",
        "bottleneck: Not judged: use --rounds 5 or more",
    ):
        assert words in text
    assert told.splitlines()[-2:] == [
        "redline: trace trace.json can't be written: no space left on device",
        "redline: out /dev/full can't be written: no space left on device",
    ]
    assert left_behind(folder) == []


def test_an_end_from_outside_leaves_nothing_behind(
    folder: Path, start_program: Callable[..., "subprocess.Popen[str]"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(folder / "temporary"))
    program = start_program(*QUICK, *DQN, "--rounds", "1000", "--json")
    assert program.stderr is not None
    while "round 2" not in program.stderr.readline():
        pass
    time.sleep(0.01)
    program.send_signal(signal.SIGTERM)
    out, err = program.communicate(timeout=30)
    assert program.returncode == FAILED
    assert json.loads(out)["error"] == "stopped by SIGTERM"
    assert err.splitlines()[-1] == "redline: stopped by SIGTERM"
    assert left_behind(folder) == []


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--algo", "all"], "one training is profiled at a time"),
        (["--algo", "dqm"], "did you mean"),
        (["--rounds", "0"], "rounds is 0: use 1 to 1_000"),
        (["--rounds", "1001"], "rounds is 1001: use 1 to 1_000"),
        (["--turn-seconds", "0"], "turn-seconds is 0"),
        (["--trace", "trace.txt"], "let it end in .json or .json.gz"),
        (["--trace", "nowhere/trace.json"], "trace nowhere/trace.json lies in no folder"),
        (["--out", "nowhere/x.json"], "out nowhere/x.json lies in no folder"),
        (["--out", "temporary"], "out temporary is a folder"),
        (["--trace", "folder.json"], "trace folder.json is a folder"),
        (["--round", "3"], "did you mean --rounds?"),
        (["--algo", "ppo", "--topology", "async"], "use --topology inline"),
    ],
)
def test_bad_input_is_one_line(args: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["profile", "--env", "CartPole-v1", *args]) == BAD_INPUT
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1

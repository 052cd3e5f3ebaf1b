"""`redline bench env`: one object on stdout, a table without --json, and clear words for bad input."""

import json
from pathlib import Path

import pytest

from redline.cli.main import BAD_INPUT, FAILED, main

QUICK = ["bench", "env", "--num-envs", "2", "--threads", "1", "--rounds", "2", "--turn-seconds", "0.02"]


def test_one_object_with_every_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "result.json"
    assert main([*QUICK, "--out", str(out), "--json"]) == 0
    printed = capsys.readouterr()
    result = json.loads(printed.out)
    assert result == json.loads(out.read_text(encoding="utf-8"))
    assert {"schema", "command", "host", "versions", "duration_s", "config", "goals"} <= result.keys()
    for rate in (result["steps_per_s"], result["peers"]["bare"], result["ratio"]["bare"]):
        assert 0 < rate["low"] <= rate["median"] <= rate["high"]
    assert "round 2 of 2" in printed.err
    assert "left" in printed.err


def test_a_table_without_json_even_if_it_cannot_be_kept(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--plain", "--out", "/dev/full"]) == FAILED
    printed = capsys.readouterr()
    assert "bare emulators" in printed.out
    assert "goal 0.95: not judged, because: a verdict needs 5 rounds" in printed.out
    assert "of the bare emulators' speed" in printed.out
    assert printed.err.splitlines()[-1] == "redline: out /dev/full can't be written: no space left on device"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--env", "pongg"], "did you mean pong"),
        (["--env", "CartPole-v1"], "use an Atari game"),
        (["--num-envs", "0"], "num-envs is 0"),
        (["--rounds", "0"], "rounds is 0"),
        (["--turn-seconds", "0"], "turn-seconds is 0"),
        (["--seed", "-1"], "seed is -1"),
        (["--out", "nowhere/x.json"], "lies in no folder"),
        (["--out", "/"], "out / is a folder: name a file in it"),
        (["--envs", "4"], "did you mean"),
    ],
)
def test_bad_input_is_one_line(args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "env", *args]) == BAD_INPUT
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1

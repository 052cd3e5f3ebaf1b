"""`redline bench replay`: a table, one object in a file, and clear words for bad input."""

import json
from pathlib import Path
from typing import Any

import pytest

from redline.cli.main import BAD_INPUT, main

QUICK = ["bench", "replay", "--transitions", "1_000", "--rounds", "1", "--turn-seconds", "0.01"]


def test_a_table_and_one_object_with_every_figure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "result.json"
    assert main([*QUICK, "--games", "pong,freeway", "--path", str(tmp_path), "--out", str(out), "--plain"]) == 0
    text = capsys.readouterr().out
    for words in ("prefetch off", "steps inserted per second", "mean_bytes_per_transition"):
        assert words in text
    result: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    assert {"schema", "command", "host", "versions", "duration_s", "goals"} <= result.keys()
    assert set(result["bytes_per_transition"]) == {"pong", "freeway", "mean", "worst"}
    assert result["bytes_per_transition"]["worst"] == max(result["bytes_per_transition"].values())
    for codec in ("raw", "zstd", "lz4", "disk"):
        for sampler in ("uniform", "prioritized"):
            for prefetch in ("off", "on"):
                rate = result["batches_per_s"][codec][sampler][prefetch]
                assert 0 < rate["low"] <= rate["median"] <= rate["high"]
        assert result["insert_steps_per_s"][codec]["median"] > 0
    assert result["goals"]["mean_bytes_per_transition"]["met"] is None  # two games can't tell
    assert [path.name for path in tmp_path.iterdir()] == ["result.json"]  # nothing is left on the disk


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "bench needs a subject, replay or env"),
        (["--json"], "bench needs a subject"),
        (["replya"], "unknown subject of bench 'replya': did you mean replay"),
        (["replay", "--games", "pongg"], "did you mean pong"),
        (["replay", "--games", "CartPole-v1"], "is not an Atari game"),
        (["replay", "--games", ","], "no game is named"),
        (["replay", "--transitions", "10"], "transitions is 10: use 1_000 or more"),
        (["replay", "--rounds", "0"], "rounds is 0"),
        (["replay", "--turn-seconds", "0"], "turn-seconds is 0"),
        (["replay", "--path", "nowhere"], "path nowhere is no folder"),
        (["replay", "--out", "nowhere/x.json"], "lies in no folder"),
        (["replay", "--game", "pong"], "did you mean --games"),
    ],
)
def test_bad_input_is_one_line(
    args: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["bench", *args]) == BAD_INPUT
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1

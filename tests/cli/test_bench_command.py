"""`redline bench replay`: one object on stdout, a table without --json, and clear words for bad input."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from redline.bench import replay as replay_bench
from redline.bench.replay_peers import Peer
from redline.bench.sum_trees import measure_sum_trees
from redline.cli.main import BAD_INPUT, main

QUICK = ["bench", "replay", "--transitions", "1_000", "--rounds", "1", "--turn-seconds", "0.01"]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No peer is loaded, which takes seconds, and the disk is the test's own."""
    absent = Peer("no_such_module", "no-such-package", "as it comes", 1, lambda played: pytest.fail("never filled"))
    monkeypatch.setattr(replay_bench, "PEERS", {"absent": absent})
    small = partial(measure_sum_trees, num_leaves=1_000, num_updates=3_200)
    monkeypatch.setattr(replay_bench, "measure_sum_trees", small)
    return tmp_path


def test_one_object_with_every_figure(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = quick / "result.json"
    assert main([*QUICK, "--games", "pong,freeway", "--path", str(quick), "--out", str(out), "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert result == json.loads(out.read_text(encoding="utf-8"))
    assert {"schema", "command", "host", "versions", "duration_s", "goals"} <= result.keys()
    assert set(result["bytes_per_transition"]) == {"pong", "freeway", "mean", "worst"}
    assert result["bytes_per_transition"]["worst"] == max(result["bytes_per_transition"].values())
    for codec in ("raw", "zstd", "lz4", "disk"):
        for sampler in ("uniform", "prioritized"):
            for prefetch in ("off", "on"):
                rate = result["batches_per_s"][codec][sampler][prefetch]
                assert 0 < rate["low"] <= rate["median"] <= rate["high"]
        assert result["insert_steps_per_s"][codec]["median"] > 0
    assert result["peers"]["absent"]["batches_per_s"] is None
    assert "make setup EXTRAS=bench" in result["peers"]["absent"]["reason"]
    assert result["sum_tree"]["parents_exact"] is True
    assert result["goals"]["mean_bytes_per_transition"]["met"] is None  # two games can't tell
    assert [path.name for path in quick.iterdir()] == ["result.json"]  # nothing is left on the disk


def test_a_table_without_json(quick: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--games", "pong", "--path", str(quick), "--plain"]) == 0
    text = capsys.readouterr().out
    assert "prefetch off" in text
    assert "sum tree" in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "bench needs a subject, one of replay"),
        (["--json"], "bench needs a subject"),
        (["replya"], "unknown bench 'replya': did you mean replay"),
        (["replay", "--games", "pongg"], "did you mean pong"),
        (["replay", "--games", "CartPole-v1"], "is no Atari game"),
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

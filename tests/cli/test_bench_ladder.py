"""`redline bench ladder`: one object, a table and a picture; a void base is said loudly."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from redline.bench import goals
from redline.bench.ladder import climb, contenders, peer
from redline.bench.ladder.contenders import Turn
from redline.bench.ladder.task import CATCH
from redline.cli.bench_ladder import show
from redline.cli.main import BAD_INPUT, DONE, FAILED, main

QUICK = ["bench", "ladder", "--turn-seconds", "0.05"]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Speed is measured on the small game, and there is no peer."""
    monkeypatch.setattr(goals, "MAX_BUSY_PERCENT", 1_000.0)
    monkeypatch.setattr(contenders, "SETTLE_STEPS", 8)
    monkeypatch.setattr(climb, "PONG", replace(CATCH, warmup_steps=32, capacity=2_000))
    monkeypatch.setattr(peer, "missing", lambda: "stable-baselines3 is not installed: make setup EXTRAS=bench")


class FastPeer:
    """A peer that no loop keeps up with."""

    def __init__(self, *, seed: int, without: frozenset[str]) -> None:
        pass

    def warm_up(self) -> None:
        """Be ready."""

    def take_turn(self, seconds: float) -> Turn:
        """Claim a million steps."""
        return Turn(seconds=seconds, steps=1_000_000, updates=250_000, samples=8_000_000, cpu_share=1.0)

    def close(self) -> None:
        """Hold nothing."""


def test_one_object_and_a_picture(quick: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, png = tmp_path / "ladder.json", tmp_path / "ladder.png"
    flags = [
        "--rungs",
        "engine",
        "--rounds",
        "2",
        "--learning-steps",
        "520",
        "--out",
        str(out),
        "--png",
        str(png),
        "--json",
    ]
    assert main([*QUICK, *flags]) == DONE
    said = capsys.readouterr()
    result: dict[str, Any] = json.loads(said.out)
    assert result == json.loads(out.read_text(encoding="utf-8"))
    assert {"schema", "command", "host", "versions", "config", "duration_s", "base"} <= result.keys()
    assert result["base"]["valid"] is None
    assert "make setup EXTRAS=bench" in result["base"]["reason"]
    base, engine = result["rungs"]
    for rung in (base, engine):
        for name in ("steps_per_s", "updates_per_s", "samples_per_step", "cpu_share", "gain_over_base"):
            assert 0 < rung[name]["low"] <= rung[name]["median"] <= rung[name]["high"], name
        assert -1 <= rung["learning"]["mean_return"] <= 1
    assert base["gain"] is None
    assert engine["over"] == base["name"]
    assert engine["gain"] == engine["gain_over_base"]
    assert png.read_bytes().startswith(b"\x89PNG")
    assert " left" in said.err
    show(result, True)
    assert "NOT JUDGED: nobody can tell whether textbook keeps up" in capsys.readouterr().out


def test_a_base_that_does_not_keep_up_is_void(
    quick: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(peer, "missing", lambda: None)
    monkeypatch.setattr(peer, "StableBaselines3", FastPeer)
    png = tmp_path / "ladder.png"
    flags = ["--rungs", "textbook,gpu", "--learning-seeds", "0", "--png", str(png), "--plain"]
    assert main([*QUICK, *flags]) == FAILED
    said = capsys.readouterr().out
    assert "VOID: textbook does not keep up with stable-baselines3" in said
    assert "return: not measured (--learning-seeds 0)" in said
    assert "needs a GPU" in said
    assert png.exists()


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--rungs", "overlaped"], "overlapped"),
        (["--rounds", "0"], "rounds is 0"),
        (["--turn-seconds", "0"], "turn-seconds is 0"),
        (["--learning-seeds", "-1"], "learning-seeds is -1"),
        (["--learning-steps", "10"], "learning-steps is 10"),
        (["--png", "no/such/folder/a.png"], "lies in no folder"),
    ],
)
def test_bad_input_is_refused_in_one_line(
    flags: list[str], said: str, quick: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "ladder", *flags]) == BAD_INPUT
    complaint = capsys.readouterr().err
    assert said in complaint
    assert complaint.count("\n") == 1

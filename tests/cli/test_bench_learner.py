"""`redline bench learner`: one object on stdout, a table without --json, and clear words for bad input."""

import json
from collections.abc import Iterator

import pytest
import torch

from redline.bench import learner_speed
from redline.cli.main import BAD_INPUT, main

QUICK = ["bench", "learner", "--batch-size", "2", "--threads", "1", "--rounds", "2", "--turn-seconds", "0.02"]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(learner_speed, "SIZES", (64,))
    monkeypatch.setattr(learner_speed, "TRY_SECONDS", 0.005)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.set_flush_denormal(False)


def test_one_object_with_every_figure(quick: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--algo", "A2C", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert {"schema", "command", "host", "versions", "duration_s", "config", "goals"} <= result.keys()
    for rate in (result["steps_per_s"], result["updates_per_s"], result["limit_fraction"]):
        assert 0 < rate["low"] <= rate["median"] <= rate["high"]
    assert result["config"]["algo"] == "a2c"
    assert result["limit"]["sgemm_gflops"] > 0
    assert result["config"]["includes_forward_of_acting"] is False  # 40 updates from a rollout: features are not kept


def test_a_table_without_json(quick: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*QUICK, "--plain"]) == 0
    text = capsys.readouterr().out
    assert "updates/s" in text
    assert "the best sgemm of this run" in text


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--algo", "dqnn"], "did you mean dqn"),
        (["--batch-size", "0"], "batch-size is 0"),
        (["--threads", "-1"], "threads is -1"),
        (["--rounds", "0"], "rounds is 0"),
    ],
)
def test_bad_input_is_one_line(args: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "learner", *args]) == BAD_INPUT
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1

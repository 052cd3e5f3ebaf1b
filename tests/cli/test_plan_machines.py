"""`redline plan machines` as a user runs it."""

import json
from pathlib import Path
from typing import Any

import pytest

from redline.cli.main import DONE, main
from redline.runs.host import usable_cores

ROWS = """
[[machine]]
name = "small"
cores = 1
memory_gb = 4
price_per_hour = 0.05

[[machine]]
name = "large"
cores = 512
memory_gb = 1024
price_per_hour = 25

[[machine]]
name = "tiny"
cores = 1
memory_gb = 0.5
price_per_hour = 0.01
"""
BAD = [
    ("machine = []", [], "names 0 machines: write 1 to 1_000 tables [[machine]]"),
    (ROWS.replace("25", "-25"), [], "machine 2: price_per_hour is -25: use 0 to 100_000"),
    (ROWS.replace("cores = 512", "core = 512"), [], "machine 2: unknown key 'core': did you mean cores"),
    (ROWS.replace("large", "small"), [], "has two machines 'small'"),
    ("[[machine]", [], "is not TOML"),
    (ROWS, ["--rounds", "0"], "rounds is 0: use 1 to 1_000"),
    (ROWS, ["--seconds", "0"], "seconds is 0.0: use 0.1 to 3_600"),
    (ROWS, ["--model", "dqm"], "did you mean dqn"),
    (ROWS, ["--device", "cuda"], "--device cuda can't be compared"),
]


@pytest.mark.parametrize(("text", "args", "message"), BAD, ids=[message for *_, message in BAD])
def test_bad_input_is_one_line_with_a_remedy(
    text: str, args: list[str], message: str, refused: Any, tmp_path: Path
) -> None:
    (tmp_path / "m.toml").write_text(text)
    refused(["plan", "machines", str(tmp_path / "m.toml"), *args], message)


def test_a_missing_file_is_one_line(refused: Any, tmp_path: Path) -> None:
    refused(["plan", "machines", str(tmp_path / "no.toml")], "can't be read")
    refused(["plan", "machines"], "FILE is missing")


def test_machines_are_ranked_by_a_training_measured_here(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text(ROWS)
    args = ["--env", "CartPole-v1", "--rounds", "2", "--seconds", "0.1", "--json"]
    assert main(["plan", "machines", str(tmp_path / "m.toml"), *args]) == DONE
    found = json.loads(capsys.readouterr().out)
    assert found["measured"].keys() >= {"1", str(usable_cores())}
    assert all(speed["rounds"] == 2 for speed in found["measured"].values())
    rows = {row["name"]: row for row in found["rows"]}
    on_one = found["measured"]["1"]["steps_per_s"]
    assert rows["small"]["basis"] == "measured"
    assert rows["small"]["hours_per_1m_steps"] == pytest.approx(1e6 / on_one / 3_600)
    assert rows["small"]["cost_per_1m_steps"] == pytest.approx(0.05 * 1e6 / on_one / 3_600)
    assert rows["large"]["basis"] == "extrapolated"
    assert found["rows"][-1]["name"] == "tiny"
    assert (rows["tiny"]["fits"], rows["small"]["fits"]) == (False, True)
    assert found["cheapest"] == "small"
    assert found["roles"]["inline"]["memory_bytes"] > 50_000_000

"""`redline plan disk` as a user runs it."""

import json
from pathlib import Path
from typing import Any

import pytest

from redline.cli.main import DONE, main

BAD = [
    (["--steps", "0"], "steps is 0: use 1 to"),
    (["--steps", "1e6"], "--steps"),
    (["--record", "some"], "record is 'some': use all, best, off, or a number"),
    (["--record", "0"], "record is '0'"),
    (["--algo", "dqm"], "did you mean dqn"),
    (["--algo", "ppo", "--replay.capacity", "5000"], "has no replay memory: leave out --replay"),
    (["--env", "pongg"], "unknown env 'pongg': did you mean pong"),
    (["--seconds", "nan"], "seconds is nan: use 0.001 to 3_600"),
    (["--steps-per-s", "0"], "steps-per-s is 0.0: use 0.1 to"),
    (["--seed", "-1"], "seed is -1"),
    (["--path", "/dev/null"], "is no folder"),
    (["--stps", "5"], "did you mean --steps"),
]


@pytest.mark.parametrize(("args", "message"), BAD, ids=[" ".join(args) for args, _ in BAD])
def test_bad_input_is_one_line_with_a_remedy(args: list[str], message: str, refused: Any) -> None:
    refused(["plan", "disk", *args], message)


def plan(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["plan", "disk", *args, "--json"]) == DONE
    out, err = capsys.readouterr()
    assert err == ""
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.mark.parametrize(("env_id", "seconds"), [("pong", "1.5"), ("breakout", "0.4")])  # episodes must end
def test_a_game_is_played_and_fifty_million_steps_of_it_take_less_than_a_gigabyte(
    env_id: str, seconds: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    found = plan(capsys, "--env", env_id, "--seconds", seconds, "--path", str(tmp_path / "not yet there"))
    assert (found["schema"], found["env"], found["steps"], found["basis"]) == (1, env_id, 50_000_000, "measured")
    assert 0 < found["recordings_bytes_per_episode"] <= 3_000
    assert 0 < found["recordings_bytes"] < 1_000_000_000
    expected = found["recordings_bytes_per_step"] * 50_000_000
    assert found["recordings_bytes"] == pytest.approx(expected, rel=0.01)
    assert found["checkpoints_bytes"] > 5 * 4 * 1_600_000 * 4  # DQN has 1.7 million weights of 4 bytes
    assert found["fits"] == (found["total_bytes"] <= found["free_bytes"])
    assert not (tmp_path / "not yet there").exists()


def test_the_table_says_how_each_figure_was_found(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    args = ["--env", "CartPole-v1", "--algo", "ppo", "--seconds", "0.2", "--steps", "1_000_000"]
    assert main(["plan", "disk", *args, "--path", str(tmp_path), "--plain"]) == DONE
    out = capsys.readouterr().out
    assert out.startswith("1,000,000 steps of ppo on CartPole-v1\n")
    for words in (
        "recordings ",
        "measured: every episode",
        "checkpoints ",
        "replay memory ",
        "logs ",
        "in all",
    ):
        assert words in out
    assert " per episode, " in out
    assert f"free at {tmp_path}: " in out


def test_what_is_recorded_can_be_chosen(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--env", "CartPole-v1", "--seconds", "0.2", "--steps", "1_000_000"]
    kept = {record: plan(capsys, *args, "--record", record)["recordings_bytes"] for record in ("all", "10", "off")}
    assert kept["all"] > kept["10"] > kept["off"] == 0
    assert plan(capsys, *args, "--record-values")["recordings_bytes"] > kept["all"]


def test_a_setting_that_does_not_act_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--env", "redline/Catch-v0", "--env.size", "40", "--seconds", "0.1", "--replay.capacity", "5000"]
    assert main(["plan", "disk", *args, "--plain"]) == DONE
    out, err = capsys.readouterr()
    assert "requested → effective: env.size: 40 → native" in err
    assert "50,000,000 steps of dqn on redline/Catch-v0" in out


def test_help_shows_the_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--help"]) == DONE
    with pytest.raises(SystemExit) as stop:
        main(["plan", "disk", "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for flag in ("memory|disk", "--steps", "--record", "--record-values", "--replay.capacity", "--path", "--json"):
        assert flag in text

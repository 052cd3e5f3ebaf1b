"""`redline plan memory` as a user runs it."""

import json
from pathlib import Path
from typing import Any

import pytest

from redline.cli.main import DONE, main

BAD = [
    (["plan"], "plan needs a subject, memory or disk"),
    (["plan", "--plain"], "plan needs a subject"),
    (["plan", "foo"], "unknown subject of plan 'foo': known: disk, "),
    (["plan", "memry"], "did you mean memory"),
    (["plan", "memory", "--capacity", "0"], "capacity is 0: use 1_000 to"),
    (["plan", "memory", "--capacity", "-5"], "capacity is -5"),
    (["plan", "memory", "--capacity", "1e6"], "--capacity"),
    (["plan", "memory", "--capacity", "1_000_000_000_000_000"], "capacity is 1000000000000000"),
    (["plan", "memory", "--env", "pongg"], "unknown env 'pongg': did you mean pong"),
    (["plan", "memory", "--env.size", "0"], "env.size is 0: use 16 to 256"),
    (["plan", "memory", "--env.stack", "0"], "env.stack is 0"),
    (["plan", "memory", "--seconds", "0"], "seconds is 0.0: use 0.001 to 3_600"),
    (["plan", "memory", "--seconds", "nan"], "seconds is nan"),
    (["plan", "memory", "--seed", "-1"], "seed is -1"),
    (["plan", "memory", "--path", "/dev/null"], "is no folder"),
    (["plan", "memory", "--capcity", "5"], "did you mean --capacity"),
]


@pytest.mark.parametrize(("args", "message"), BAD, ids=[" ".join(args) for args, _ in BAD])
def test_bad_input_is_one_line_with_a_remedy(args: list[str], message: str, refused: Any) -> None:
    refused(args, message)


def test_the_table_shows_every_layout_and_ends_with_what_to_type(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "memory", "--seconds", "0.2", "--plain"]) == DONE
    out = capsys.readouterr().out
    assert "1,000,000 transitions of pong: frames 84 × 84 uint8, stack 4" in out
    for text in ("451.60 kB", "225.81 kB", "56.47 kB", "28.24 kB", "raw", "lz4", "zstd", "shm"):
        assert text in out
    assert "recommended: redline train --env pong --replay.capacity 1_" in out


def test_json_is_one_object_with_whole_bytes(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    args = ["--capacity", "20_000", "--env", "breakout", "--env.stack", "3", "--env.size", "40", "--seconds", "0.2"]
    assert main(["plan", "memory", *args, "--path", str(tmp_path / "not yet there"), "--json"]) == DONE
    out, err = capsys.readouterr()
    plan = json.loads(out)
    assert err == ""
    assert (plan["schema"], plan["env"], plan["stack"], plan["frame_shape"]) == (1, "breakout", 3, [40, 40])
    assert plan["layouts"]["uint8_two_stacks"]["bytes_per_transition"] == 2 * 3 * 40 * 40 + 20
    each = [plan["layouts"][f"frames_once_{codec}"]["bytes_per_transition"] for codec in ("raw", "lz4", "zstd")]
    assert each == sorted(each, reverse=True)
    assert all(type(count) is int for count in each)
    assert plan["recommended"]["command"].startswith("redline train --env breakout --env.size 40 --env.stack 3 ")
    assert not (tmp_path / "not yet there").exists()


def test_vector_envs_have_rows_of_their_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--json", "memory", "--env", "CartPole-v1", "--capacity", "5000", "--seconds", "0.1"]) == DONE
    plan = json.loads(capsys.readouterr().out)
    assert plan["layouts"].keys() == {"float64_stacks", "float32_stacks", "float32_one_stack", "frames_once_raw"}
    assert plan["recommended"]["command"] == "redline train --env CartPole-v1 --replay.capacity 5_000"


def test_a_setting_that_does_not_act_is_named_and_not_recommended(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--env", "redline/Catch-v0", "--env.size", "40", "--seconds", "0.1", "--capacity", "5000"]
    assert main(["plan", "memory", *args, "--plain"]) == DONE
    out, err = capsys.readouterr()
    assert "requested → effective: env.size: 40 → native" in err
    assert "redline train --env redline/Catch-v0 --replay.capacity 5_000 --replay.codec zstd" in out


def test_help_shows_the_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--help"]) == DONE
    with pytest.raises(SystemExit) as stop:
        main(["plan", "memory", "--help"])
    assert stop.value.code == 0
    text = capsys.readouterr().out
    for flag in ("--capacity", "--env.stack", "--env.size", "--seconds", "--path", "--json", "--plain"):
        assert flag in text

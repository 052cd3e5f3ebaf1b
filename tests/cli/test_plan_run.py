"""`redline plan run` as a user runs it."""

import json
from pathlib import Path
from typing import Any

import pytest

from redline.cli.main import DONE, FAILED, main

SMALL = ["--env", "CartPole-v1", "--seconds", "0.05"]
BAD = [
    (["pongg"], "unknown recipe or file of settings 'pongg': did you mean pong"),
    (["missing.toml"], "config file missing.toml can't be read"),
    (["pong", "--config", "a.toml"], "pong and --config both name settings: keep one"),
    ([*SMALL, "--rate", "0"], "rate is '0': use a number above 0"),
    ([*SMALL, "--rate", "-3"], "rate is '-3'"),
    ([*SMALL, "--rate", "500", "--measure"], "--rate and --measure both tell the speed: keep one"),
    (
        [*SMALL, "--rate", "500", "--price-per-hour", "-1"],
        "price-per-hour is -1: use 0 for no price, or a number above 0",
    ),
    ([*SMALL, "--from", "nowhere"], "nowhere"),
    ([*SMALL, "--from"], "--from names nothing"),
    ([*SMALL, "--model", "ppo", "--replay.capacity", "5000"], "ppo has no replay memory: leave --replay.capacity out"),
    ([*SMALL, "--seconds", "0"], "seconds is 0.0"),
    ([*SMALL, "--model", "all"], "one training is planned at a time"),
    ([*SMALL, "--num-envs", "0"], "num-envs is 0: use 1 to 1_024"),
    ([*SMALL, "--print-config"], "--print-config prints settings and plans nothing"),
]


@pytest.mark.parametrize(("args", "message"), BAD, ids=[" ".join(args) for args, _ in BAD])
def test_bad_input_is_one_line_with_a_remedy(args: list[str], message: str, refused: Any) -> None:
    refused(["plan", "run", *args], message)


def plan(capsys: pytest.CaptureFixture[str], *args: str, code: int = DONE) -> dict[str, Any]:
    capsys.readouterr()
    assert main(["plan", "run", *args, "--json"]) == code
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_a_file_and_flags_make_one_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('model = "dqn"\nmax_steps = 9_000_000\n[env]\nid = "CartPole-v1"\n[replay]\ncapacity = 5_000\n')
    args = ["--rate", "500", "--price-per-hour", "0.5", "--seconds", "0.05", "--log-dir", str(tmp_path / "runs")]
    found = plan(capsys, str(file), *args)
    assert (found["schema"], found["algorithm"], found["env"]) == (1, "dqn", "CartPole-v1")
    assert (found["time"]["hours"], found["time"]["cost"], found["time"]["rate_source"]) == (5, 2.5, "given")
    assert found["memory"]["needed_bytes"] == sum(found["memory"]["parts"].values())
    assert (found["fits"], found["does_not_fit"]) == (True, [])
    assert main(["plan", "run", str(file), *args, "--plain"]) == DONE
    page = capsys.readouterr().out
    assert page.startswith("dqn on CartPole-v1, 9,000,000 steps, 8 envs, inline, seed 1\n")
    for words in ("memory ", "disk ", "cores ", "5.00 h, 0.208 days", "2.50 at 0.5 an hour", "it fits this machine"):
        assert words in page
    assert not (tmp_path / "runs").exists()
    short = plan(capsys, str(file), *args, "--max-minutes", "10")  # of the five hours
    assert (short["time"]["ends_by"], short["time"]["cost"]) == ("10 minutes", 0.08)  # 0.167 h
    assert short["disk"]["parts"]["logs"] < found["disk"]["parts"]["logs"] / 20


def test_what_does_not_fit_is_named_with_the_largest_setting_that_does(capsys: pytest.CaptureFixture[str]) -> None:
    too_large = ["--replay.capacity", "1_000_000_000_000", "--learner.threads", "1000"]
    found = plan(capsys, *SMALL, *too_large, "--price-per-hour", "1", code=FAILED)
    assert (found["time"], found["price_per_hour"]) == (None, 1)  # nothing tells the speed
    misfits = {item["what"]: item["remedy"] for item in found["does_not_fit"]}
    assert misfits.keys() == {"memory", "disk"}
    cores = found["cores"]["usable"]
    assert found["cores"]["too_many"] == {"learner": f"--learner.threads {cores}"}
    capacity = misfits["memory"].removeprefix("--replay.capacity ")
    assert 0 < int(capacity) < 1_000_000_000_000
    smaller = plan(capsys, *SMALL, "--replay.capacity", str(int(capacity) // 20))
    assert smaller["memory"]["fits"]  # less, for the disk holds five of it, and free memory changes

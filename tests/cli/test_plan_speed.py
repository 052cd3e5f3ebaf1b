"""`redline plan speed` and `redline train --auto` as a user runs them."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from redline.cli import speed
from redline.cli.flags import read_config
from redline.cli.main import DONE, main
from redline.files import read_json_object
from redline.plan.knobs import KNOBS
from redline.runs.locating import locate_run
from redline.runtime.config import flag_of

CARTPOLE = ("--env", "CartPole-v1", "--model", "dqn")
MAX_BYTES = 1_000_000

BAD = [
    (["plan", "speed", "--seconds", "1"], "seconds is 1.0: use 10.0 to"),
    (["plan", "speed", "--vary", "some"], "--vary is 'some': use exact or nearly or all"),
    (["plan", "speed", "--write", "/nowhere/speed.toml"], "lies in no folder"),
    (["plan", "speed", "--seeds", "1-3"], "one training is measured at a time"),
    (["plan", "speed", "--auto"], "redline plan speed measures without it"),
    (["plan", "speed", "--print-config"], "use redline train --print-config"),
    (["plan", "speed", "--env", "pongg"], "unknown env 'pongg': did you mean pong"),
    (["train", "--auto", "--seeds", "1-3"], "measure once: redline plan speed --write speed.toml"),
    (["train", "--auto", "--print-config"], "redline plan speed --write speed.toml"),
    (["profile", "--auto"], "a profile takes settings as they are"),
]


@pytest.mark.parametrize(("args", "message"), BAD, ids=[" ".join(args) for args, _ in BAD])
def test_bad_input_is_one_line_with_a_remedy(args: list[str], message: str, refused: Any) -> None:
    refused(args, message)


def test_the_fastest_settings_are_measured_within_the_time_and_kept_in_a_file(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    target = tmp_path / "speed.toml"
    args = ["--seconds", "10", "--learner.threads", "1", "--log-dir", str(tmp_path / "runs"), "--write", str(target)]
    assert main(["plan", "speed", *CARTPOLE, *args, "--json"]) == DONE
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["env"], found["algorithm"], found["vary"]) == (1, "CartPole-v1", "dqn", "exact")
    rows = {row["setting"]: row for row in found["settings"]}
    assert set(rows) == {flag_of(key).removeprefix("--") for key in KNOBS if key != "epochs"}
    assert rows["learner.threads"]["why"] == "as you asked"
    assert found["candidates"][0]["name"] == "default"
    assert tomllib.loads(target.read_text()) == read_config(target)
    assert set(found["changes"]) <= {"replay.prefetch"}  # all that is left of the exact knobs for vectors
    assert not (tmp_path / "runs").exists()  # nothing of it is a run


def test_training_keeps_what_was_measured_before_it_and_a_resume_keeps_the_settings(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "SECONDS", 10.0)
    limits = ["--warmup-steps", "100", "--max-steps", "400", "--log-dir", str(tmp_path), "--plain"]
    assert main(["train", *CARTPOLE, "--auto", *limits]) == DONE
    said = capsys.readouterr().out
    assert "requested → effective: learner.threads: auto → " in said
    assert "chosen: " in said
    run = locate_run(str(tmp_path))
    before = read_json_object(run / "run.json", max_bytes=MAX_BYTES)
    settings = {row["setting"]: row["effective"] for row in before["auto"]["settings"]}
    config = before["config"]
    assert config["learner"]["threads"] == settings["learner.threads"]
    assert config["replay"]["prefetch"] == settings["replay.prefetch"]
    assert main(["resume", str(run), "--max-steps", "800", "--plain"]) == DONE
    after = read_json_object(run / "run.json", max_bytes=MAX_BYTES)
    assert after["auto"] == before["auto"]
    assert after["config"] == {**config, "max_steps": 800}

"""`redline plan speed` and `redline train --auto` as a user runs them."""

import json
import os
import signal
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from redline.cli.flags import TrainFlags, parse_train, read_config
from redline.cli.main import DONE, FAILED, RESUMABLE, main
from redline.cli.plan import speed
from redline.files import read_json_object
from redline.plan import speed_plan
from redline.plan.knobs import KNOBS, changed, name_of
from redline.plan.speed import Gain, Standing, Window
from redline.plan.speed_plan import SpeedPlan
from redline.runs.locating import locate_run
from redline.runtime.config import flag_of, flatten
from redline.runtime.resolve import resolve_job

CARTPOLE = ("--env", "CartPole-v1", "--model", "dqn")
MAX_BYTES = 1_000_000
SECONDS = 10.0
FASTER = {"replay.prefetch": 2}

BAD = [
    (["plan", "speed", "--seconds", "1"], "seconds is 1.0: use 10.0 to"),
    (["plan", "speed", "--vary", "some"], "--vary is 'some': use exact or nearly or all"),
    (["plan", "speed", "--write", "/nowhere/speed.toml"], "lies in no folder"),
    (["plan", "speed", "--seeds", "1-3"], "one training is measured at a time"),
    (["plan", "speed", "--auto"], "redline plan speed measures without it"),
    (["plan", "speed", "--print-config"], "use redline train --print-config"),
    (["plan", "speed", *CARTPOLE, "--topology", "async", "--pacing", "free"], "use --pacing held"),
    (["plan", "speed", "--env", "pongg"], "unknown env 'pongg': did you mean pong"),
    (["train", "--auto", "--seeds", "1-3"], "measure once: redline plan speed --write speed.toml"),
    (["train", "--auto", "--print-config"], "redline plan speed --write speed.toml"),
    (["profile", "--auto"], "a profile takes settings as they are"),
]


@pytest.mark.parametrize(("args", "message"), BAD, ids=[" ".join(args) for args, _ in BAD])
def test_bad_input_is_one_line_with_a_remedy(args: list[str], message: str, refused: Any) -> None:
    refused(args, message)


@pytest.fixture(scope="module")
def measured() -> SpeedPlan:
    """Return what a short measurement found: at most how to start, in so little time."""
    args = [*CARTPOLE, "--learner.threads", "1"]
    return speed.measure_speed(parse_train(args), args, vary="exact", seconds=3.5, progress=lambda _: None)


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch, measured: SpeedPlan) -> None:
    """Let the commands take what was measured before, and a faster way, for the training that they are asked for."""
    name = name_of(FASTER)
    standing = Standing([Window(steps=1_000, updates=250, seconds=1.0)] * 5, Gain(1.2, 1.1, 1.3), final_rounds=5)
    choice = replace(measured.choice, name=name, standings={**measured.choice.standings, name: standing})
    changes = {**measured.changes, name: FASTER}

    def as_measured(flags: TrainFlags, *_: object, **__: object) -> SpeedPlan:
        asked = replace(measured.asked, job=flags.job)
        after = resolve_job(changed(asked, FASTER))
        return replace(measured, asked=asked, after=after, choice=choice, changes=changes)

    monkeypatch.setattr(speed, "measure_speed", as_measured)


def test_a_measurement_keeps_its_time(measured: SpeedPlan) -> None:
    assert measured.measured["duration_s"] <= measured.seconds + 1.0  # to end processes on a busy machine
    assert set(measured.chosen) <= {"replay.prefetch"}  # all that is left of the exact knobs for vectors


@pytest.mark.slow
def test_the_default_and_one_other_start_however_late_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed_plan, "START_SHARE", 0.0)
    plan = speed.measure_speed(parse_train(CARTPOLE), CARTPOLE, vary="all", seconds=30.0, progress=lambda _: None)
    assert len(plan.changes) == 2
    assert all("no time" in why for why in plan.not_tried.values())


@pytest.mark.usefixtures("soon")
def test_the_fastest_settings_are_told_and_kept_in_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert plan_and_check(capsys, tmp_path) == FASTER


@pytest.mark.slow
def test_the_fastest_settings_are_measured_within_the_time(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    begun_s = time.monotonic()
    plan_and_check(capsys, tmp_path)
    assert time.monotonic() - begun_s < SECONDS + 5.0  # other tests may keep the machine busy


def plan_and_check(capsys: pytest.CaptureFixture[str], folder: Path) -> dict[str, Any]:
    """Return the changes in the file."""
    target = folder / "speed.toml"
    args = ["--seconds", str(SECONDS), "--learner.threads", "1", "--log-dir", str(folder / "runs")]
    assert main(["plan", "speed", *CARTPOLE, *args, "--write", str(target), "--json"]) == DONE
    found = json.loads(capsys.readouterr().out)
    assert (found["schema"], found["env"], found["algorithm"], found["vary"]) == (1, "CartPole-v1", "dqn", "exact")
    rows = {row["setting"]: row for row in found["settings"]}
    assert set(rows) == {flag_of(key).removeprefix("--") for key in KNOBS if key != "epochs"}
    assert rows["learner.threads"]["why"] == "as you asked"
    assert found["candidates"][0]["name"] == "default"
    written = {key: value for key, value in flatten(read_config(target)) if key in KNOBS}
    assert written == found["changes"]
    assert all(rows[flag_of(key).removeprefix("--")]["effective"] == value for key, value in written.items())
    assert not (folder / "runs").exists()  # nothing of it is a run
    return written


@pytest.mark.usefixtures("soon")
def test_training_keeps_what_was_measured_before_it_and_a_resume_keeps_the_settings(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert train_and_check(capsys, tmp_path) == FASTER


@pytest.mark.slow
def test_training_measures_before_it_begins(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "SECONDS", SECONDS)
    train_and_check(capsys, tmp_path)


def train_and_check(capsys: pytest.CaptureFixture[str], folder: Path) -> dict[str, Any]:
    """Return the changes that the run was trained with."""
    limits = ["--warmup-steps", "100", "--max-steps", "400", "--log-dir", str(folder), "--plain"]
    assert main(["train", *CARTPOLE, "--auto", *limits]) == DONE
    said = capsys.readouterr().out
    assert "requested → effective: learner.threads: " in said
    assert "chosen: " in said
    run = locate_run(str(folder))
    before = read_json_object(run / "run.json", max_bytes=MAX_BYTES)
    settings = {row["setting"]: row["effective"] for row in before["auto"]["settings"]}
    config, changes = before["config"], before["auto"]["changes"]
    assert config["learner"]["threads"] == settings["learner.threads"]
    assert config["replay"]["prefetch"] == settings["replay.prefetch"]
    assert changes.items() <= dict(flatten(config)).items()
    assert main(["resume", str(run), "--max-steps", "800", "--plain"]) == DONE
    after = read_json_object(run / "run.json", max_bytes=MAX_BYTES)
    assert after["auto"] == before["auto"]
    assert after["config"] == {**config, "max_steps": 800}
    return dict(changes)


TRAIN, PLAN = ("train", "--auto", "--plain"), ("plan", "speed")
STOPS = [
    (TRAIN, signal.SIGTERM, (RESUMABLE, "stopped by SIGTERM before the training began")),
    (TRAIN, signal.SIGINT, (FAILED, "interrupted")),
    (PLAN, signal.SIGTERM, (FAILED, "stopped by SIGTERM")),
]


@pytest.mark.parametrize(("words", "number", "ending"), STOPS)
def test_a_signal_while_it_measures_ends_it_with_one_line_and_leaves_nothing(
    words: tuple[str, ...],
    number: signal.Signals,
    ending: tuple[int, str],
    capsys: pytest.CaptureFixture[str],
    empty: Path,
) -> None:
    program, before = psutil.Process(), set(psutil.Process().children())
    started: list[psutil.Process] = []

    def stop_soon() -> None:
        while not list(empty.glob("*/candidate-1/errors.txt")):
            time.sleep(0.02)
        time.sleep(0.2)
        started.extend(set(program.children()) - before)
        os.kill(os.getpid(), number)

    stopping = threading.Thread(target=stop_soon)
    stopping.start()
    code = main([*words, *CARTPOLE, "--log-dir", str(empty / "runs")])
    stopping.join()
    assert (code, capsys.readouterr().err.splitlines()[-1]) == (ending[0], f"redline: {ending[1]}")
    assert started
    assert not any(process.is_running() for process in started)
    assert list(empty.iterdir()) == []


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder in which temporary files are made."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path

"""`redline tune` as a user runs it: what it refuses, and what it prints."""

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import redline.cli.tune
from redline.cli.flags import train_defaults
from redline.cli.main import BAD_INPUT, DONE, FAILED, RESUMABLE, main
from redline.cli.tune import TuneFlags, new_plan
from redline.cli.tune_display import render_line, render_search, short_names, shown
from redline.errors import UserError
from redline.tune.search import SearchView, TrialView
from redline.tune.training import Launch

CARTPOLE = ("tune", "--env", "CartPole-v1", "--model", "dqn", "--minutes-per-trial", "1")
SEARCH = (*CARTPOLE, "--minutes", "10")
TRAINER = Path(__file__).parents[1] / "tune" / "fake_trainer.py"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (CARTPOLE, "say how long to search: --minutes 10, --hours 2 or --trials 20"),
        ((*SEARCH, "--hours", "1"), "keep one of them"),
        ((*CARTPOLE, "--minutes", "0.5"), "longer than the search of 0.5 minutes"),
        ((*CARTPOLE, "--minutes", "1.9"), "--seeds-per-trial 2 is longer than the search of 1.9 minutes"),
        ((*CARTPOLE, "--minutes", "nan"), "the search's time is nan"),
        ((*CARTPOLE, "--hours", "-1"), "the search's time is -60.0"),
        ((*CARTPOLE, "--trials", "0"), "--trials is 0"),
        ((*SEARCH, "--minutes-per-trial", "inf"), "--minutes-per-trial is inf"),
        ((*SEARCH, "--seeds-per-trial", "0"), "--seeds-per-trial is 0"),
        ((*SEARCH, "--final-seeds", "0"), "--final-seeds is 0"),
        ((*SEARCH, "--side-by-side", "-1"), "--side-by-side is -1"),
        ((*SEARCH, "--window", "-1"), "--window is -1"),
        ((*SEARCH, "--seed", "-1"), "--seed is -1"),
        ((*SEARCH, "--pruning", "some"), "--pruning is 'some': use halving or off"),
        ((*SEARCH, "--goal", "steps"), "unknown goal 'steps'"),
        ((*SEARCH, "--goal", "steps-to-return"), "needs a number"),
        ((*SEARCH, "--model", "dqm"), "unknown algorithm 'dqm': did you mean dqn"),
        ((*SEARCH, "--env", "CartPole-v9"), "did you mean CartPole-v1"),
        ((*SEARCH, "--space", "nowhere.toml"), "search space nowhere.toml can't be read"),
        ((*SEARCH, "--write-recipe", "."), "is a folder: use --write-recipe best.toml"),
        ((*SEARCH, "--write-recipe", "/dev/null"), "/dev/null is a device or a socket"),
        ((*SEARCH, "--write-recipe", "/dev/null/best.toml"), "can't be written: /dev/null: file exists"),
        ((*SEARCH, "--trails", "3"), "did you mean --trials"),
        (("tune", "--resume", "nowhere"), "nowhere is not a study"),
        (("tune", "--resume", "nowhere", "--trials", "3"), "leave --trials out"),
        (("tune", "--resume", "nowhere", "--seed", "1"), "leave --seed out"),  # the default, but typed
        (("tune", "--resume", "nowhere", "--model=dqn"), "leave --model out"),
    ],
)
def test_bad_input_gets_one_line(
    args: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(args, said)
    assert list(tmp_path.iterdir()) == []


def test_a_bad_space_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("space.toml").write_text('"optimizer.lrr" = {low = 1e-4, high = 1e-3}')
    assert main([*SEARCH, "--space", "space.toml", "--json"]) == BAD_INPUT
    captured = capsys.readouterr()
    assert "unknown setting 'optimizer.lrr': did you mean optimizer.lr" in captured.err
    assert json.loads(captured.out)["error"] in captured.err
    assert not Path("studies").exists()


def test_a_short_search_without_minutes_per_trial_says_what_it_takes() -> None:
    plan = new_plan(TuneFlags(env="CartPole-v1", algo="ppo", minutes=10))
    assert plan.settings.minutes_per_trial == 1.0
    assert plan.adjustment == "--minutes-per-trial 5 → 1: the search is short"
    for long in (TuneFlags(env="CartPole-v1", hours=2), TuneFlags(env="CartPole-v1", trials=3)):
        assert (new_plan(long).settings.minutes_per_trial, new_plan(long).adjustment) == (5.0, "")


def test_a_missing_extra_is_told_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(redline.cli.tune, "find_spec", lambda name: None)
    assert main(list(SEARCH)) == BAD_INPUT
    assert capsys.readouterr().err == "redline: redline tune needs Optuna: pip install 'optuna>=5,<6'\n"


def test_a_screen_shows_the_best_those_under_way_and_the_newest() -> None:
    trials = [
        TrialView(number=n, state="running" if n in (7, 40) else "done", settings={"lr": 0.1}, told="1.0")
        for n in range(41)
    ]
    view = SearchView(phase="search", trials=trials, best=3, share=0.5, left_s=90.0)
    numbers = [trial.number for trial in shown(view)]
    assert len(numbers) == 16
    assert {3, 7, 40, 39, 38} <= set(numbers)
    assert render_line(view) == "50% | search, at most 1 min 30 s left | best 3: 1.0 | 7: 1.0; 40: 1.0"
    unknown = replace(view, best=None)
    assert render_line(unknown) == "50% | search, at most 1 min 30 s left | 7: 1.0; 40: 1.0"
    render_search("title", view)
    assert short_names(["optimizer.lr", "predict.low", "env.low"]) == ["lr", "predict.low", "env.low"]


@pytest.fixture
def pretended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let runs only pretend to train; return a search that takes a second or two."""

    def launch(program: tuple[str, ...], settings: dict[str, object]) -> Launch:
        assert program[1:3] == ("-m", "redline.cli.tune_trial")
        return Launch(program=(sys.executable, str(TRAINER)), settings=settings)

    monkeypatch.setattr(redline.cli.tune, "Launch", launch)
    monkeypatch.setattr("redline.tune.search.POLL_S", 0.05)
    monkeypatch.chdir(tmp_path)
    Path("space.toml").write_text("optimizer.lr = {low = 2e-3, high = 1e-2}")
    more = ("--space", "space.toml", "--seeds-per-trial", "1", "--final-seeds", "1", "--window", "1")
    return [*CARTPOLE, *more, "--trials", "3", "--side-by-side", "3"]


def test_a_search_prints_one_object_writes_a_recipe_and_goes_on_with_nothing_to_do(
    pretended: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*pretended, "--json", "--write-recipe", "best.toml"]) == DONE
    found = json.loads(capsys.readouterr().out)
    assert found["winner_is_better"]
    assert found["stopped"] is None
    assert [run["seed"] for run in found["winner"]["runs"]] == [2_000_000]
    assert {trial["state"] for trial in found["trials"]} <= {"done", "pruned"}
    lr = train_defaults(["--config", "best.toml"]).job.algorithm.optimizer.lr
    assert lr == found["winner"]["settings"]["optimizer.lr"]
    assert "that the search never used" in Path("best.toml").read_text()

    assert main(["tune", "--resume", found["study"], "--plain"]) == DONE
    out = capsys.readouterr().out
    assert "the winner is better" in out
    assert f"report {found['report']}" in out

    assert main(["tune", "--resume", found["study"], "--env", "pong"]) == BAD_INPUT
    assert "continues a study of env CartPole-v1: leave --env out" in capsys.readouterr().err

    assert main([*pretended[:-4], "--trials", "4", "--side-by-side", "3"]) == BAD_INPUT
    assert "is a study with trials 3, not 4: use another --study" in capsys.readouterr().err


def test_a_recipe_that_cannot_be_written_does_not_lose_what_was_found(
    pretended: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise UserError("cannot write best.toml: no space left on device")

    monkeypatch.setattr(redline.cli.tune, "write_settings", fail)
    assert main([*pretended, "--json", "--write-recipe", "best.toml"]) == BAD_INPUT
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["winner"] is not None
    assert found["recipe"] is None
    assert captured.err.endswith("redline: cannot write best.toml: no space left on device\n")


def test_a_signal_stops_the_runs_and_leaves_the_study_resumable(
    pretended: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    launch = redline.cli.tune.Launch

    def launch_and_stop(program: tuple[str, ...], settings: dict[str, object]) -> Launch:
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()  # by now somebody listens to it
        return launch(program=program, settings=settings)

    with monkeypatch.context() as patch:
        patch.setattr(redline.cli.tune, "Launch", launch_and_stop)
        assert main([*pretended, "--json"]) == RESUMABLE
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert found["stopped"] == "SIGTERM"
    assert f"continue with: redline tune --resume {found['study']}" in captured.err
    assert main(["tune", "--resume", found["study"], "--json"]) == DONE
    assert json.loads(capsys.readouterr().out)["winner"] is not None


def test_a_run_can_die_with_its_tuner_before_it_has_loaded_torch() -> None:
    script = "import sys, redline.cli.tune_trial; print('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout == b"False\n"


def test_a_run_whose_tuner_has_ended_trains_nothing(tmp_path: Path) -> None:
    args = ("-m", "redline.cli.tune_trial", str(os.getppid()), "train", "--log-dir", str(tmp_path))
    assert subprocess.run([sys.executable, *args], check=False).returncode == FAILED
    assert list(tmp_path.iterdir()) == []


def test_a_search_in_which_everything_fails_says_so(pretended: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    Path("space.toml").write_text("optimizer.lr = {choices = [0.95, 0.96]}")
    assert main([*pretended, "--json"]) == FAILED
    captured = capsys.readouterr()
    assert "no trial is done: the loss is not finite at step 7" in captured.err
    assert "no trial is done" in json.loads(captured.out)["error"]

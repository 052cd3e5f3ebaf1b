"""What a search promises: a kill loses the trials under way and nothing else, and the winner beats the default."""

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from redline.cli.main import DONE
from redline.tune.space import parse_space, shipped_space
from redline.tune.trials import TrialRecord, open_trials, read_trials

StartProgram = Callable[..., "subprocess.Popen[str]"]

CARTPOLE = ("tune", "--env", "CartPole-v1", "--model", "ppo", "--side-by-side", 2)
ENDED = ("done", "pruned", "failed")


def trials_of(study: Path) -> dict[int, TrialRecord]:
    """Read the trials of a study that nobody has open."""
    space = parse_space(*shipped_space("ppo", sees_pictures=False))
    return {trial.number: trial for trial in read_trials(open_trials(study, seed=1), space)}


def lines_that_end_trials(study: Path) -> int:
    """Count the trials that were told of as ended, without opening the journal."""
    journal = study / "journal.log"
    lines = journal.read_text().splitlines() if journal.exists() else []
    rows = [json.loads(line) for line in lines[:-1]]  # the last may be half written
    return sum(row.get("op_code") == 6 and row.get("state") in (1, 2) for row in rows)


def kill_after(process: "subprocess.Popen[str]", study: Path, ended: int) -> set[int]:
    """Kill a search once so many trials have ended and others are under way; return which pids it leaves behind."""
    deadline = time.monotonic() + 240
    while lines_that_end_trials(study) < ended:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "no trial ended"
        time.sleep(0.2)
    time.sleep(4.0)  # the next ones have begun
    children = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert children, "no trial was under way"
    _, alive = psutil.wait_procs(children, timeout=5.0)
    return {child.pid for child in alive}


@pytest.mark.slow
def test_two_kills_lose_at_most_the_trials_under_way(start_program: StartProgram, tmp_path: Path) -> None:
    study = tmp_path / "study"
    asked = (
        *CARTPOLE,
        *("--goal", "steps-to-return:60", "--minutes-per-trial", 0.15, "--trials", 6, "--seeds-per-trial", 1),
        *("--final-seeds", 1, "--study", study, "--json"),
    )
    assert kill_after(start_program(*asked), study, ended=1) == set()
    first = trials_of(study)
    assert kill_after(start_program("tune", "--resume", study, "--json"), study, ended=3) == set()
    second = trials_of(study)
    process = start_program("tune", "--resume", study, "--json")
    out, err = process.communicate(timeout=300)
    assert process.returncode == DONE, err[-3_000:]
    found: dict[str, Any] = json.loads(out)
    last = {trial["trial"]: trial for trial in found["trials"]}
    for before in (first, second):
        for number, trial in before.items():
            if trial.state in ENDED:
                assert last[number]["state"] == trial.state
                assert last[number]["score"] == trial.score
    states = [trial["state"] for trial in found["trials"]]
    assert states.count("interrupted") <= 4  # two at each kill
    assert sum(state in ENDED for state in states) == 6
    assert found["winner"]["runs"][0]["seed"] == 2_000_000
    assert (study / "report.html").is_file()


@pytest.mark.slow
def test_ten_minutes_find_settings_that_beat_the_default_on_unused_seeds(
    start_program: StartProgram, tmp_path: Path
) -> None:
    process = start_program(
        *CARTPOLE,
        *("--goal", "steps-to-return:400", "--minutes", 10, "--minutes-per-trial", 1, "--study", tmp_path / "study"),
        *("--write-recipe", tmp_path / "best.toml", "--json"),
    )
    out, err = process.communicate(timeout=1_800)
    assert process.returncode == DONE, err[-3_000:]
    found = json.loads(out)
    assert found["winner_is_better"], (found["winner"]["result"], found["default"]["result"])

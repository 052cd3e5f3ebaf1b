"""What a run with processes of its own does when one of them is killed, stopped or fails, or when all are told to end.

Every test starts `redline …` as a user does and sends real signals.
"""

import json
import os
import re
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from observed_run import (
    Records,
    WatchedRun,
    failing_variables,
    find_run,
    nothing_left_in_shm,
    said_object,
    wait_for,
)

from redline.cli.main import DONE, FAILED, RESUMABLE, main
from redline.runs.manifest import CHECKPOINTS, checkpoint_folders, steps_of

ASYNC = ("--topology", "async", "--actors", 2)
CARTPOLE = ("--env", "CartPole-v1", "--num-envs", 4, "--warmup-steps", 200, "--max-steps", 10_000_000)
OFTEN = ("--checkpoint-minutes", 0.01, "--evaluator.every-minutes", 0.01, "--evaluator.episodes", 1)
REPLACED_WITHIN_S = 10.0


def train(folder: Path, *args: object, **more: Any) -> WatchedRun:
    return WatchedRun(folder, "train", *CARTPOLE, *ASYNC, *OFTEN, "--log-dir", folder / "runs", *args, **more)


def train_failing(folder: Path, how: str, *args: object) -> WatchedRun:
    """Train with one actor and an env that fails."""
    one = ("--env", "test/Failing-v0", "--actors", 1, "--num-envs", 1, "--evaluator.every-minutes", 0, "--plain")
    return train(folder, *one, *args, variables=failing_variables(folder, how))


def wait_for_steps(records: Records, *, more_than: int = 0) -> int:
    wait_for(lambda: records.steps > more_than, f"there are more than {more_than} steps")
    return records.steps


def lanes_since(records: Records, steps: int) -> set[int]:
    """Return the lanes in which an episode began after so many steps."""
    return {row["lane"] for row in records.rows("actor") if row["steps"] - row["length_steps"] * 4 > steps}


def last_line(run: WatchedRun) -> str:
    """Return what it says in the end; stderr has no other line that is not the run's own."""
    *_, line = run.err.splitlines()
    assert "Traceback" not in run.err
    return line


def test_lost_actors_and_a_lost_evaluator_are_replaced_and_training_goes_on(tmp_path: Path) -> None:
    with nothing_left_in_shm(), train(tmp_path, "--json") as run:
        records = find_run(tmp_path / "runs")
        wait_for_steps(records, more_than=500)
        ways = {"actor-0": signal.SIGKILL, "actor-1": signal.SIGSTOP, "evaluator": signal.SIGKILL}
        lost = {role: run.wait_for_role(role) for role in ways}
        run.note_memories()
        for role, number in ways.items():
            os.kill(lost[role], number)
        begun_s = time.monotonic()
        new = {role: run.wait_for_role(role, other_than=pid) for role, pid in lost.items()}
        assert time.monotonic() - begun_s < REPLACED_WITHIN_S
        steps = records.steps
        wait_for(lambda: lanes_since(records, steps) == {0, 1, 2, 3}, "the new actors play")
        evaluations = len(records.rows("greedy"))
        wait_for(lambda: len(records.rows("greedy")) > evaluations + 1, "the new evaluator evaluates")
        whys = {row["role"]: (row["pid"], row["why"]) for row in records.events("process-lost")}
        assert whys == {
            "actor-0": (lost["actor-0"], "was killed by SIGKILL"),
            "actor-1": (lost["actor-1"], "was stopped for 3 s"),
            "evaluator": (lost["evaluator"], "was killed by SIGKILL"),
        }
        assert {row["role"]: row["pid"] for row in records.events("process", restarts=1)} == new
        run.signal_all(signal.SIGINT)
        assert run.wait() == DONE
        run.wait_until_gone()
        assert said_object(run)["reason"] == "SIGINT"
        assert said_object(run)["steps"] == records.saved_steps > steps
        assert records.check_counts() == said_object(run)["episodes"]
        assert records.check_evaluations(episodes=1) >= 2


def test_without_its_learner_a_run_ends_at_once_in_one_line_and_can_be_resumed(tmp_path: Path) -> None:
    with train(tmp_path, "--plain") as run:
        records = find_run(tmp_path / "runs")
        wait_for(lambda: records.saved_steps > 500, "there is a checkpoint")
        check_loss_of_learner(run, records, signal.SIGKILL, "was killed by SIGKILL")
    saved = records.saved_steps
    with WatchedRun(tmp_path, "resume", records.run, "--json") as run:
        wait_for(lambda: records.saved_steps > saved, "the run goes on")
        check_loss_of_learner(run, records, signal.SIGSTOP, "was stopped for 3 s")
        assert f"redline: {said_object(run)['error']}" == last_line(run)
    assert records.events("resume")[0]["checkpoint"] == str(saved)
    assert records.saved_steps > saved
    assert records.check_counts() > 0


def check_loss_of_learner(run: WatchedRun, records: Records, number: signal.Signals, why: str) -> None:
    os.kill(run.wait_for_role("learner"), number)
    assert run.wait(10.0) == RESUMABLE
    run.wait_until_gone()
    line = last_line(run)
    assert line.startswith(f"redline: the learner {why} at step ")
    assert line.endswith(f" stands: go on with redline resume {records.run}")
    assert line == f"redline: {records.events('error')[-1]['message']}"


def test_a_killed_supervisor_leaves_nothing_but_a_run_that_can_be_resumed_at_once(tmp_path: Path) -> None:
    with nothing_left_in_shm(), train(tmp_path, "--plain") as run:
        records = find_run(tmp_path / "runs")
        wait_for_steps(records, more_than=500)
        os.kill(run.wait_for_role("actor-1"), signal.SIGSTOP)  # what is stopped can't end by itself
        assert len(run.note_memories()) == 3
        run.program.kill()
        with WatchedRun(tmp_path, "resume", records.run, "--json") as resumed:
            run.wait_until_gone()
            wait_for(lambda: records.events("resume"), f"the run is resumed {resumed.err}")
            wait_for_steps(records, more_than=records.steps + 500)
            resumed.signal_all(signal.SIGTERM)
            assert resumed.wait() == RESUMABLE
            resumed.wait_until_gone()
            assert said_object(resumed)["reason"] == "SIGTERM"
            assert said_object(resumed)["steps"] == records.saved_steps
            assert records.check_counts() == said_object(resumed)["episodes"]


def test_an_actor_that_fails_is_replaced_until_it_fails_again_and_again_without_a_step(tmp_path: Path) -> None:
    with train_failing(tmp_path, "later each time") as run:
        assert run.wait() == FAILED
        run.wait_until_gone()
    records = find_run(tmp_path / "runs")
    whys = [row["why"] for row in records.events("process-lost", role="actor-0")]
    assert len(whys) == len(list((tmp_path / "lives").iterdir())) == 4
    for why in whys:
        assert re.search(r": EnvError: test/Failing-v0 failed in lane 0, seed \d+: .*inside", why)
    end = ", again and again: the run ends, its checkpoint stands"
    assert last_line(run) == f"redline: actor-0 {whys[-1]}{end}"


def test_an_error_of_the_learner_itself_is_told_and_is_no_reason_to_resume(tmp_path: Path) -> None:
    with train_failing(tmp_path, "nan") as run:
        assert run.wait() == FAILED
        run.wait_until_gone()
    assert re.search(r"^redline: .*(nan|not finite)", last_line(run))


def test_signals_to_all_while_the_first_processes_start_leave_runs_to_resume(tmp_path: Path) -> None:
    codes = {signal.SIGINT: DONE, signal.SIGTERM: RESUMABLE}
    folders = {number: tmp_path / number.name for number in codes}
    for folder in folders.values():
        folder.mkdir()
    with train(folders[signal.SIGINT], "--json") as interrupted, train(folders[signal.SIGTERM], "--json") as ended:
        runs = {signal.SIGINT: interrupted, signal.SIGTERM: ended}
        for number, run in runs.items():
            wait_for(lambda: run.find_process("forkserver"), "processes are being started")  # noqa: B023
            run.signal_all(number)
        for number, run in runs.items():
            assert run.wait() == codes[number], run.err
            assert said_object(run)["reason"] == number.name
            assert "Traceback" not in run.err
            assert find_run(folders[number] / "runs").saved_steps == said_object(run)["steps"]


@pytest.fixture
def play(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """Return what runs a command in this process, to its end, and returns what it says."""

    def run(*args: object) -> dict[str, Any]:
        assert main([*map(str, args), "--json"]) == DONE
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return run


def test_a_pace_that_was_free_leaves_no_debt_and_a_resume_that_saved_nothing_leaves_no_trace(
    tmp_path: Path, play: Callable[..., dict[str, Any]]
) -> None:
    before = play("train", *CARTPOLE[:-1], 1_000, *ASYNC, "--pacing", "free", "--log-dir", tmp_path / "runs")
    run = find_run(tmp_path / "runs").run
    resume = ("resume", run, "--topology", "inline", "--max-steps", before["steps"] + 400)
    for _ in range(2):
        told = play(*resume)
        assert told["updates"] - before["updates"] <= (told["steps"] - before["steps"]) * 32 // 64 + 1
        for folder in checkpoint_folders(run / CHECKPOINTS):  # as if it had been killed before it saved one
            if steps_of(folder) > before["steps"]:
                shutil.rmtree(folder)


def test_a_run_changes_its_topology_and_counts_on(tmp_path: Path, play: Callable[..., dict[str, Any]]) -> None:
    told = play("train", *CARTPOLE[:-1], 1_000, "--log-dir", tmp_path / "runs")
    records = find_run(tmp_path / "runs")
    for steps, args in ((1_600, ASYNC), (2_200, ("--topology", "inline"))):
        before, told = told, play("resume", records.run, "--max-steps", steps, *args)
        assert told["steps"] >= steps
        for key in ("steps", "updates", "episodes", "time_s", "replay_transitions"):
            assert told[key] > before[key]
        assert records.check_counts() == told["episodes"]
        assert any("all envs start anew" in reason for reason in records.events("resume")[-1]["inexact"])
    assert [row["changes"]["topology"] for row in records.events("resume")] == ["inline → async", "async → inline"]

"""What a run with processes of its own does when one of them is killed, stopped or fails, or when all are told to end.

Every test starts `redline …` as a user does and sends real signals.
"""

import os
import re
import signal
import time
from pathlib import Path
from typing import Any

from watched_run import Records, WatchedRun, find_run, nothing_left_in_shm, said_object, wait_for

from redline.cli.main import DONE, FAILED, RESUMABLE

ASYNC = ("--topology", "async", "--actors", 2)
CARTPOLE = ("--env", "CartPole-v1", "--num-envs", 4, "--warmup-steps", 200, "--max-steps", 10_000_000)
OFTEN = ("--checkpoint-minutes", 0.01, "--evaluator.every-minutes", 0.01, "--evaluator.episodes", 1)
REPLACED_WITHIN_S = 10.0


def train(folder: Path, *args: object, **more: Any) -> WatchedRun:
    return WatchedRun(folder, "train", *CARTPOLE, *ASYNC, *OFTEN, "--log-dir", folder / "runs", *args, **more)


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
        wait_for_steps(records, more_than=steps + 1_000)
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
        numbers = [row["evaluation"] for row in records.rows("greedy")]
        assert numbers == list(range(1, len(numbers) + 1))


def test_without_its_learner_a_run_ends_at_once_in_one_line_and_can_be_resumed(tmp_path: Path) -> None:
    with train(tmp_path, "--plain") as run:
        records = find_run(tmp_path / "runs")
        wait_for(lambda: records.saved_steps > 500, "there is a checkpoint")
        check_loss_of_learner(run, records, signal.SIGKILL, "was killed by SIGKILL")
    with WatchedRun(tmp_path, "resume", records.run, "--json") as run:
        wait_for(lambda: records.events("resume"), "the run is resumed")
        wait_for_steps(records, more_than=records.saved_steps + 200)
        check_loss_of_learner(run, records, signal.SIGSTOP, "was stopped for 3 s")
        assert f"redline: {said_object(run)['error']}" == last_line(run)
    saved = records.saved_steps
    with WatchedRun(tmp_path, "resume", records.run, "--max-steps", saved + 400, "--json") as run:
        assert run.wait() == DONE
        assert said_object(run)["steps"] >= saved + 400
        assert records.events("resume")[-1]["checkpoint"] == str(saved)
        assert records.check_counts() == said_object(run)["episodes"]


def check_loss_of_learner(run: WatchedRun, records: Records, number: signal.Signals, why: str) -> None:
    os.kill(run.wait_for_role("learner"), number)
    assert run.wait(10.0) == RESUMABLE
    run.wait_until_gone()
    line = last_line(run)
    assert line.startswith(f"redline: the learner {why} at step ")
    assert line.endswith(f"; checkpoint {records.saved_steps} stands: go on with redline resume {records.run}")
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


FAILING_ENV = '''
import os
from pathlib import Path
from redline.envs.probe import Endless

class Failing(Endless):
    """Fails in its 10th step, in the second life of its actor in the 200th, and from the third on at once."""

    def __init__(self):
        self._life = sum(1 for _ in Path(os.environ["LIVES"]).iterdir())
        self._t = 0

    def reset(self, *, seed=None, options=None):
        if self._t == 0:
            (Path(os.environ["LIVES"]) / str(os.getpid())).touch()
        return super().reset(seed=seed)

    def step(self, action):
        self._t += 1
        if self._life > 1 or self._t == (10, 200)[self._life]:
            raise ZeroDivisionError("inside")
        return super().step(action)
'''
# what Python runs first in every process; Gymnasium has no other way to know an env by itself
SITE = """
import sys

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "redline.envs.catalog":
            import gymnasium
            gymnasium.register("test/Failing-v0", entry_point="failing_env:Failing")

sys.meta_path.insert(0, Finder())
"""


def test_an_actor_that_fails_is_replaced_until_it_fails_again_and_again_without_a_step(tmp_path: Path) -> None:
    lives = tmp_path / "lives"
    lives.mkdir()
    (tmp_path / "failing_env.py").write_text(FAILING_ENV)
    (tmp_path / "sitecustomize.py").write_text(SITE)
    args = ("--env", "test/Failing-v0", "--actors", 1, "--num-envs", 1, "--evaluator.every-minutes", 0, "--plain")
    with train(tmp_path, *args, variables={"PYTHONPATH": str(tmp_path), "LIVES": str(lives)}) as run:
        records = find_run(tmp_path / "runs")
        assert run.wait() == FAILED
        run.wait_until_gone()
    whys = [row["why"] for row in records.events("process-lost", role="actor-0")]
    assert len(whys) == len(list(lives.iterdir())) == 4
    for why in whys:
        assert re.search(r": EnvError: test/Failing-v0 failed in lane 0, key seed \d+: .*inside", why)
    end = "; 3 times in a row without a step: the run ends, its checkpoints stand"
    assert last_line(run) == f"redline: actor-0 {whys[-1]}{end}"


def test_a_run_changes_its_topology_and_counts_on(tmp_path: Path) -> None:
    def play(*args: object) -> dict[str, Any]:
        with WatchedRun(tmp_path, *args, "--json") as run:
            assert run.wait() == DONE
            return said_object(run)

    told = play("train", *CARTPOLE[:-1], 1_000, "--log-dir", tmp_path / "runs")
    records = find_run(tmp_path / "runs")
    for steps, args in ((1_600, ASYNC), (2_200, ("--topology", "inline"))):
        before, told = told, play("resume", records.run, "--max-steps", steps, *args)
        assert told["steps"] >= steps
        for key in ("steps", "updates", "episodes", "time_s"):
            assert told[key] > before[key]
        assert told["replay_transitions"] == told["steps"]
        assert records.check_counts() == told["episodes"]
        assert any("all envs start anew" in reason for reason in records.events("resume")[-1]["inexact"])
    assert [row["changes"]["topology"] for row in records.events("resume")] == ["inline → async", "async → inline"]

"""A run belongs to its learner too: nobody else may have it before both that and the supervisor have let go."""

from __future__ import annotations

import os
import subprocess
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
from child_work import PATIENCE_S, StartChild, hold

from redline.errors import UserError
from redline.runs.directory import RunDirectory
from redline.runtime.processes.shared import Doorbell

OPEN = "import sys; from pathlib import Path; from redline.runs.directory import RunDirectory\n"
OPEN += "RunDirectory.open(Path(sys.argv[1]))"


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory.create(tmp_path, game="pong", algorithm="dqn", seed=7)
    run.write_run_json({"seed": 7})
    return run


def share_with_child(run: RunDirectory, start_child: StartChild) -> tuple[BaseProcess, Doorbell]:
    """Start a process that holds the lock too; return it and the bell that makes it let go."""
    taken, let_go = Doorbell(), Doorbell()
    lock = run.share_lock()
    child = start_child(hold, lock, taken, let_go)
    lock.close()
    taken.wait(PATIENCE_S)
    return child, let_go


def test_a_run_whose_learner_lives_is_in_use_although_the_supervisor_has_let_go(
    run: RunDirectory, start_child: StartChild
) -> None:
    child, let_go = share_with_child(run, start_child)
    run.close()
    with pytest.raises(UserError, match=f"{run.path} is in use by"):
        RunDirectory.open(run.path)
    program = subprocess.run([sys.executable, "-c", OPEN, run.path], capture_output=True, text=True, check=False)
    assert program.returncode == 1
    assert "is in use by" in program.stderr
    let_go.ring()
    child.join(PATIENCE_S)
    assert child.exitcode == 0
    RunDirectory.open(run.path).close()


def test_a_learner_that_is_killed_lets_the_run_go(run: RunDirectory, start_child: StartChild) -> None:
    child, _ = share_with_child(run, start_child)
    run.close()
    child.kill()
    child.join()
    RunDirectory.open(run.path).close()


def test_a_learner_that_ends_first_leaves_the_run_to_the_supervisor(run: RunDirectory, start_child: StartChild) -> None:
    child, let_go = share_with_child(run, start_child)
    let_go.ring()
    child.join(PATIENCE_S)
    with pytest.raises(UserError, match=f"is in use by process {os.getpid()} since 20"):
        RunDirectory.open(run.path)
    run.close()
    RunDirectory.open(run.path).close()


def test_a_share_that_was_given_back_holds_nothing(run: RunDirectory) -> None:
    shared = run.share_lock()
    run.close()
    with pytest.raises(UserError, match="is in use by"):
        RunDirectory.open(run.path)
    shared.close()
    RunDirectory.open(run.path).close()


def test_a_lock_that_was_released_can_not_be_shared(run: RunDirectory) -> None:
    run.close()
    with pytest.raises(ValueError, match="was released"):
        run.share_lock()

"""The script for sbatch, run by bash with the variables of a job, a made-up trainer, and a `scontrol` that notes."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from redline.errors import UserError
from redline.fleet import lease
from redline.fleet.engines import slurm
from redline.fleet.engines.slurm import is_to_go_on, slurm_script
from redline.fleet.lease import Lease, Watcher
from redline.fleet.listing import Listing, Part, Wishes, make_slots, new_listing, write_listing
from waiting import wait_for

Task = Callable[..., "subprocess.Popen[str]"]


def a_listing(**wishes: object) -> Listing:
    parts = [Part(("pong", "boxing"), ("dqn",), (1, 2), {"max-steps": 100})]
    return new_listing("few", Wishes(engine="slurm", **wishes), make_slots(parts), "typed")  # type: ignore[arg-type]


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    folder = tmp_path / "a fleet, 100%"
    folder.mkdir()
    write_listing(folder, a_listing())
    return folder


@pytest.fixture
def start_task(fleet: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Task:
    """Start a task of the array; its trainer is a script of the test, and `asked` says whether the slot goes on."""

    def start(trainer: str, *, is_over: bool = False, **variables: object) -> "subprocess.Popen[str]":
        for name, text in (
            ("trainer", trainer),
            ("python", f"exit {int(is_over)}"),
            ("scontrol", f'echo "$@" > {tmp_path}/scontrol.said'),
        ):
            program = tmp_path / name
            program.write_text(f"#!/bin/bash\n{text}\n")
            program.chmod(0o755)
        monkeypatch.setattr(slurm, "command_of", lambda folder, slot, threads: [str(tmp_path / "trainer"), slot])
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
        script = tmp_path / "job.sh"
        script.write_text(slurm_script(fleet, a_listing()))
        job = {"SLURM_ARRAY_JOB_ID": 7, "SLURM_ARRAY_TASK_ID": 1, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        return subprocess.Popen(
            ["bash", str(script)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **{name: str(value) for name, value in {**job, **variables}.items()}},
        )

    return start


def said(tmp_path: Path) -> str:
    note = tmp_path / "scontrol.said"
    return note.read_text().strip() if note.exists() else ""


def test_script_asks_for_a_task_per_slot_in_the_order_of_the_fleet(fleet: Path) -> None:
    lines = slurm_script(fleet, a_listing(concurrency=2, order="as-listed")).splitlines()
    assert {
        "#SBATCH --array=0-3%2",
        "#SBATCH --requeue",
        "#SBATCH --signal=B:TERM@60",
        "slots=(pong-dqn-s1 pong-dqn-s2 boxing-dqn-s1 boxing-dqn-s2)",
        f'#SBATCH --output="{fleet.parent}/a fleet, 100%%/logs/slurm-%a.log"',
    } <= set(lines)
    assert (fleet / "logs").is_dir()


def test_folder_that_slurm_cannot_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="use --dir with another name"):
        slurm_script(tmp_path / 'a"b', a_listing())


def test_task_trains_the_slot_of_its_number_with_the_cores_of_its_job(start_task: Task, tmp_path: Path) -> None:
    task = start_task(f'echo "$@" > {tmp_path}/trained', is_over=True, SLURM_CPUS_PER_TASK=3)
    out, _ = task.communicate(timeout=20)
    assert (task.returncode, out) == (0, "pong-dqn-s2: over, exit code 0\n")
    assert (tmp_path / "trained").read_text() == "pong-dqn-s2 --threads 3\n"
    assert said(tmp_path) == ""


def test_signal_is_passed_on_and_the_task_requeued_with_what_the_trainer_left(start_task: Task, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    task = start_task(f"trap 'sleep 0.2; exit 75' TERM; touch {ready}; while :; do sleep 0.02; done")
    wait_for(ready.exists, "the trainer runs")
    task.send_signal(signal.SIGTERM)
    out, _ = task.communicate(timeout=20)
    assert (task.returncode, out) == (0, "pong-dqn-s2: exit code 75, requeued\n")
    assert said(tmp_path) == "requeue 7_1"


def test_slot_that_is_over_keeps_its_exit_code_and_is_not_requeued(start_task: Task, tmp_path: Path) -> None:
    task = start_task("exit 2", is_over=True)
    out, _ = task.communicate(timeout=20)
    assert (task.returncode, out) == (2, "pong-dqn-s2: over, exit code 2\n")
    assert said(tmp_path) == ""


def test_requeues_end(start_task: Task, tmp_path: Path) -> None:
    task = start_task("exit 1", SLURM_RESTART_COUNT=slurm.MOST_REQUEUES)
    out, _ = task.communicate(timeout=20)
    assert task.returncode == 1
    assert "not requeued" in out
    assert said(tmp_path) == ""


def test_script_outside_of_slurm_says_how_to_submit_it(start_task: Task) -> None:
    task = start_task("exit 0", SLURM_ARRAY_TASK_ID="")
    out, _ = task.communicate(timeout=20)
    assert task.returncode != 0
    assert "submit this script with sbatch" in out


@pytest.mark.parametrize(
    ("facts", "goes_on"),
    [
        ({"exit_code": 75, "reason": "SIGTERM"}, True),
        ({"exit_code": 0, "reason": "max-steps"}, False),
        ({"exit_code": 2, "reason": "unknown option"}, False),
        ({"exit_code": 75, "is_stopped": True}, False),
    ],
)
def test_slot_goes_on_unless_it_is_over_or_was_asked_to_stop(fleet: Path, facts: dict[str, Any], goes_on: bool) -> None:
    before_s = time.time()
    Lease.take(fleet, "pong-dqn-s1", watcher=Watcher(fleet)).end(steps=5, **facts)
    assert is_to_go_on(fleet, "pong-dqn-s1", before_s) == goes_on


def test_trainer_that_never_took_its_lease_is_not_started_again(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not is_to_go_on(fleet, "pong-dqn-s1", time.time())
    Lease.take(fleet, "pong-dqn-s1", watcher=Watcher(fleet)).end(exit_code=75)
    assert not is_to_go_on(fleet, "pong-dqn-s1", time.time() + 60)
    assert lease.read_holder(fleet, "pong-dqn-s1") is not None

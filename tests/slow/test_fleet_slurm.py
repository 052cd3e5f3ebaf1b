"""The script that `redline fleet start --engine slurm` prints, under Debian's Slurm on one node, requeued twice."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from fleet_truth import PROGRAM, check_fleet, slots_of
from namespace_node import Machine
from slurm_cluster import HOST, Slurm, skip_without_slurm

from waiting import wait_for

STEPS = 40_000
SLOTS = ["cartpole-v1-ppo-s1", "cartpole-v1-ppo-s2"]
LIST = ("--games", "CartPole-v1", "--model", "ppo", "--seeds", "1-2", "--max-steps", STEPS)
RUNS = ("--checkpoint-minutes", 0.05, "--engine", "slurm")

pytestmark = pytest.mark.slow


def test_printed_script_trains_a_fleet_through_requeues_to_its_end(tmp_path: Path) -> None:
    skip_without_slurm()
    folder = tmp_path / "fleet"
    with Machine(HOST) as machine:
        slurm = Slurm(tmp_path / "slurm", machine, cores=2)
        started = machine.run(*PROGRAM, "start", *LIST, *RUNS, "--dir", folder)
        assert started.returncode == 0, started.stderr
        job = slurm.submit(started.stdout)
        # attempt by attempt, so that each is struck while it trains
        for task, strike in enumerate(("scancel --signal=TERM --batch", "scontrol requeue")):  # as the time limit does
            wait_for(lambda slot=SLOTS[task]: slots_of(folder)[slot]["steps"] > 1_000, "the task trains")
            assert slurm.call(*strike.split(), f"{job}_{task}").returncode == 0
        wait_for(lambda: not slurm.say("squeue", "--noheader").strip(), "the queue is empty", timeout_s=400)
        report = machine.run(*PROGRAM, "report", folder, "--plain")
    output = "".join((folder / "logs" / f"slurm-{task}.log").read_text() for task in range(2))
    assert check_fleet(folder, slots=SLOTS, max_steps=STEPS) == dict.fromkeys(SLOTS, 2)
    assert f"{SLOTS[0]}: exit code 75, requeued" in output
    assert f"{SLOTS[1]}: over, exit code 0" in output
    assert report.returncode == 0, report.stderr
    assert (folder / "report.html").exists()

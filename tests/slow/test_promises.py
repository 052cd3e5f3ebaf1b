"""The promises that take minutes to show: kills at random moments, and memory that stays flat."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def measure(script: str, *args: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(BENCHMARKS / script), "--no-record", *args]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("env", ["cartpole", "pong"])
def test_twenty_kills_at_random_moments_lose_and_double_nothing(env: str) -> None:
    done = measure("kill_resume.py", "--env", env)
    assert done.returncode == 0, done.stderr[-3_000:]


@pytest.mark.slow
def test_memory_stays_flat_once_the_replay_is_full() -> None:
    done = measure("memory_flat.py")
    assert done.returncode == 0, done.stderr[-3_000:]


@pytest.mark.slow
def test_kills_of_runs_and_supervisor_lose_and_double_nothing() -> None:
    done = measure("fleet_chaos.py", "--runs", "3", "--kills", "15")
    assert done.returncode == 0, done.stderr[-3_000:]

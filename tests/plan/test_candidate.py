"""Candidates as real processes: they train when asked, sleep in between, and end when they are told to."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from redline.algorithms.catalog import find_algorithm
from redline.envs.config import EnvConfig
from redline.plan.candidate_pool import CandidatePool
from redline.plan.knobs import measured_job
from redline.plan.window import CandidateLostError
from redline.runtime.config import Job
from redline.runtime.resolve import resolve_job

START_S = 300.0  # at most, on a busy machine
ASLEEP_S = 0.6
CARTPOLE = Job(env=EnvConfig(id="CartPole-v1", stack=1, skip=1), algorithm=find_algorithm("dqn").classic.algorithm)


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[CandidatePool]:
    with CandidatePool(tmp_path, lambda job: {}) as pool:
        yield pool


def start(pool: CandidatePool, name: str, job: Job, folder: Path) -> list[psutil.Process]:
    """Start a candidate, wait until it sleeps, and return its processes."""
    before = set(psutil.Process().children())
    pool.start(name, measured_job(job, resolve_job(job), folder), "dqn")
    pool.wait_ready(name, time.monotonic() + START_S)
    (root,) = set(psutil.Process().children()) - before
    return [root, *root.children(recursive=True)]


def cpu_s(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def test_a_candidate_trains_in_its_windows_and_sleeps_in_between(pool: CandidatePool, tmp_path: Path) -> None:
    processes = start(pool, "inline", CARTPOLE, tmp_path)
    for _ in range(2):
        window = pool.window("inline", 0.3, time.monotonic() + START_S)
        assert window.seconds >= 0.3
        assert window.steps > 0
        # 32 samples per step in batches of 64, counted over whole updates
        assert window.updates / window.steps == pytest.approx(0.5)
        # others may take the core between two readings of the clock
        assert sum(window.phases.values()) == pytest.approx(1.0, abs=0.3)
        assert 0.0 <= window.others_percent <= 100.0
        assert window.roles["inline"].memory_bytes > 0
    before_s = cpu_s(processes)
    time.sleep(ASLEEP_S)
    assert cpu_s(processes) - before_s < 0.1 * ASLEEP_S


def test_the_processes_of_an_asynchronous_candidate_sleep_too(pool: CandidatePool, tmp_path: Path) -> None:
    processes = start(pool, "async", replace(CARTPOLE, topology="async", actors=2), tmp_path)
    window = pool.window("async", 0.3, time.monotonic() + START_S)
    assert window.steps > 0
    assert {"supervisor", "learner", "actor-0", "actor-1"} <= window.roles.keys()
    assert {"learner", "actor-0", "actor-1"} <= window.waits.keys()
    before_s = cpu_s(processes)
    time.sleep(ASLEEP_S)
    assert cpu_s(processes) - before_s < 0.2 * ASLEEP_S
    pool.end("async")
    psutil.wait_procs(processes, timeout=10)
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)


def test_a_candidate_that_can_not_train_says_why(pool: CandidatePool, tmp_path: Path) -> None:
    job = replace(CARTPOLE, env=EnvConfig(id="CartPole-v9"))
    pool.start("wrong", replace(job, log_dir=tmp_path), "dqn")
    with pytest.raises(CandidateLostError, match="did you mean CartPole-v1"):
        pool.wait_ready("wrong", time.monotonic() + START_S)
    assert pool.ready == []
    with pytest.raises(CandidateLostError, match="CartPole-v1"):
        pool.window("wrong", 0.3, time.monotonic() + START_S)


def test_a_candidate_can_start_after_another_has_ended(pool: CandidatePool, tmp_path: Path) -> None:
    job = measured_job(CARTPOLE, resolve_job(CARTPOLE), tmp_path)
    pool.start("first", job, "dqn")
    pool.start("second", job, "dqn")
    pool.end("first")
    pool.start("third", job, "dqn")
    assert len(list(tmp_path.glob("candidate-*"))) == 3

"""Candidates as real processes: they train when asked, sleep in between, and end when they are told to."""

import time
from collections.abc import Iterator
from dataclasses import replace

import psutil
import pytest

from redline.algorithms.catalog import find_algorithm
from redline.envs.config import EnvConfig
from redline.plan.candidate_pool import CandidatePool
from redline.plan.knobs import measured_job
from redline.plan.speed import CandidateLostError
from redline.runtime.config import Job
from redline.runtime.resolve import resolve_job

START_S = 300.0  # at most, on a busy machine
WINDOW_S, ASLEEP_S = 0.2, 0.3
CARTPOLE = Job(env=EnvConfig(id="CartPole-v1", stack=1, skip=1), algorithm=find_algorithm("dqn").classic.algorithm)
ASYNC = replace(CARTPOLE, topology="async", actors=2)

Roots = dict[str, psutil.Process]  # the process that was started for each candidate


@pytest.fixture(scope="module")
def roots() -> Roots:
    return {}


@pytest.fixture(scope="module")
def pool(roots: Roots, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CandidatePool]:
    """Return a pool with a candidate that is ready, one that has failed, and one in processes that is starting."""
    folder, noisy = tmp_path_factory.mktemp("pool"), tmp_path_factory.mktemp("noisy")
    (noisy / "sitecustomize.py").write_text("print('what libraries print is no answer')\n")

    def start(name: str, job: Job) -> None:
        before = set(psutil.Process().children())
        pool.start(name, job, "dqn")
        (roots[name],) = set(psutil.Process().children()) - before

    with CandidatePool(folder, lambda job: {"PYTHONPATH": str(noisy)}) as pool:
        start("inline", measured_job(CARTPOLE, resolve_job(CARTPOLE), folder))
        start("wrong", replace(CARTPOLE, env=EnvConfig(id="CartPole-v9")))
        assert {pool.ready_one(time.monotonic() + START_S) for _ in range(2)} == {"inline", "wrong"}
        start("async", measured_job(ASYNC, resolve_job(ASYNC), folder))
        yield pool


def cpu_s(processes: list[psutil.Process]) -> float:
    return sum(sum(process.cpu_times()[:2]) for process in processes)


def test_a_candidate_trains_in_its_windows_and_sleeps_in_between(pool: CandidatePool, roots: Roots) -> None:
    for _ in range(2):
        window = pool.window("inline", WINDOW_S, time.monotonic() + START_S)
        assert window.seconds >= WINDOW_S
        assert window.steps > 0
        # 32 samples per step in batches of 64, counted over whole updates
        assert window.updates / window.steps == pytest.approx(0.5)
        # others may take the core between two readings of the clock
        assert sum(window.phases.values()) == pytest.approx(1.0, abs=0.3)
        assert 0.0 <= window.others_percent <= 100.0
        assert window.roles["inline"].memory_bytes > 0
    before_s = cpu_s([roots["inline"]])
    time.sleep(ASLEEP_S)
    assert cpu_s([roots["inline"]]) - before_s < 0.1 * ASLEEP_S


def test_a_candidate_that_can_not_train_says_why(pool: CandidatePool) -> None:
    assert "did you mean CartPole-v1" in pool.why_lost["wrong"]
    assert "wrong" not in pool.ready
    with pytest.raises(CandidateLostError, match="CartPole-v1"):
        pool.window("wrong", WINDOW_S, time.monotonic() + START_S)


def test_the_processes_of_an_asynchronous_candidate_sleep_too_and_end_with_it(
    pool: CandidatePool, roots: Roots
) -> None:
    pool.wait_ready("async", time.monotonic() + START_S)
    processes = [roots["async"], *roots["async"].children(recursive=True)]
    window = pool.window("async", WINDOW_S, time.monotonic() + START_S)
    assert window.steps > 0
    assert {"supervisor", "learner", "actor-0", "actor-1"} <= window.roles.keys()
    assert {"learner", "actor-0", "actor-1"} <= window.waits.keys()
    before_s = cpu_s(processes)
    time.sleep(ASLEEP_S)
    assert cpu_s(processes) - before_s < 0.2 * ASLEEP_S
    pool.end("async")
    psutil.wait_procs(processes, timeout=10)
    assert not any(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in processes)


def test_a_candidate_that_is_killed_is_lost_and_says_so(pool: CandidatePool, roots: Roots) -> None:
    roots["inline"].kill()
    with pytest.raises(CandidateLostError, match="exit code -9"):
        pool.window("inline", WINDOW_S, time.monotonic() + START_S)
    assert "inline" not in pool.ready

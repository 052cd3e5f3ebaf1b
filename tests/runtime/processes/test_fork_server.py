"""The fork server: what it loads, what it outlives, and what its processes need of the machine."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from contextlib import suppress
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import child_work
import psutil
import pytest
from child_work import PATIENCE_S, look_until
from pool_work import find_loss, find_losses, is_there, start, start_living, wait_for_steps

from redline.errors import UserError
from redline.runtime.config import Job
from redline.runtime.processes import process_pool as pool_module
from redline.runtime.processes.process_pool import PRELOAD, ProcessPool, check_room
from redline.runtime.processes.shared import EVALUATOR, FIRST_ACTOR, SharedStatus

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def test_signals_meant_for_the_supervisor_end_no_process(pool: ProcessPool) -> None:
    member = start_living(pool)
    for number in SIGNALS:
        os.kill(member.pid, number)
        wait_for_steps(pool, member)
    assert pool.find_lost() == []


def test_the_fork_server_has_one_thread_and_outlives_signals(pool: ProcessPool) -> None:
    member = start_living(pool)
    server = psutil.Process(member.pid).ppid()
    assert server != os.getpid()
    assert len(list(Path(f"/proc/{server}/task").iterdir())) == 1
    for number in SIGNALS:
        os.kill(server, number)
    other = start_living(pool, name="actor-1", slot=FIRST_ACTOR + 1)
    assert psutil.Process(other.pid).ppid() == server
    wait_for_steps(pool, member)
    assert pool.find_lost() == []


def test_what_the_fork_server_loads_starts_no_thread() -> None:
    code = f"import os, {PRELOAD}; print(len(os.listdir('/proc/self/task')))"
    variables = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", code], env=variables, capture_output=True, text=True, check=True)
    assert done.stdout == "1\n"  # a lock that a thread holds while a process is forked is never released there


def test_a_process_has_everything_loaded_when_it_starts(pool: ProcessPool) -> None:
    start(pool, child_work.tell_modules)
    loss = find_loss(pool)
    assert "redline.runtime.processes.roles" in loss.messages[0]["names"]


def test_a_pool_tells_the_server_what_to_load(monkeypatch: pytest.MonkeyPatch) -> None:
    server: Any = forkserver._forkserver
    monkeypatch.setattr(server, "_preload_modules", ["__main__"])
    ProcessPool(SharedStatus(1))
    assert server._preload_modules == [PRELOAD]


def test_a_process_of_the_largest_crew_that_a_job_may_ask_for_can_be_started() -> None:
    def is_allowed(actors: int) -> bool:
        with suppress(UserError):
            return Job(actors=actors, num_envs=actors).actors == actors
        return False

    pool = ProcessPool(SharedStatus(max(filter(is_allowed, (2**power for power in range(11))))))
    try:
        start(pool, child_work.end_at_once)
        assert find_loss(pool).why == "ended with exit code 0"
    finally:
        pool.close()


def test_processes_bear_the_names_of_their_roles(pool: ProcessPool) -> None:
    member = start_living(pool, name="evaluator", slot=EVALUATOR)
    assert Path(f"/proc/{member.pid}/comm").read_text().strip() == "redline-evaluator"[:15]


def test_processes_that_are_replaced_again_and_again_leave_no_descriptor_and_no_zombie(pool: ProcessPool) -> None:
    def replace_some(count: int) -> int:
        for _ in range(count):
            os.kill(start(pool, child_work.never_begin).pid, signal.SIGKILL)
            find_loss(pool)
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir()))

    before = replace_some(2)
    assert replace_some(10) <= before
    names = [child.name() for child in psutil.Process().children(recursive=True)]
    assert not any(name.startswith("redline-") for name in names)


def test_the_fork_server_and_the_resource_tracker_count_as_a_part_of_the_run(pool: ProcessPool) -> None:
    member = start(pool, child_work.never_begin)
    server = psutil.Process(member.pid).ppid()
    own = {child.pid for child in psutil.Process().children()}
    helpers = pool.helper_pids()
    assert server in helpers
    assert len(helpers) == 2
    assert helpers <= own


def test_a_pool_whose_supervisor_is_the_first_process_of_a_container_starts_like_any_other() -> None:
    first = ["unshare", "--pid", "--fork", "--mount-proc"]
    if subprocess.run([*first, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user cannot make a process the first of its kind")
    code = """
import os, sys, child_work
from functools import partial
from redline.runtime.processes.process_pool import ProcessPool
from redline.runtime.processes.shared import SharedStatus
pool = ProcessPool(SharedStatus(1))
member = pool.start("actor-0", 2, partial(child_work.end_at_once, (pool.status, 2)))
member.process.join()
print(os.getpid(), pool.find_lost()[0].why)
"""
    folders = [str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    command = [*first, sys.executable, "-c", code]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.stdout == "1 ended with exit code 0\n", done.stderr


def test_a_fork_server_that_is_stopped_is_ended_with_all_that_it_forked_and_another_takes_its_place(
    pool: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "STOPPED_S", 0.5)
    monkeypatch.setattr(pool_module, "SILENT_S", 10 * PATIENCE_S)
    members = [start_living(pool), start_living(pool, name="actor-1", slot=FIRST_ACTOR + 1)]
    server = psutil.Process(members[0].pid).ppid()
    os.kill(server, signal.SIGSTOP)
    losses = find_losses(pool, 2)
    assert {loss.why for loss in losses} == {"ended with the fork server"}
    assert all(loss.was_killed for loss in losses)
    look_until(lambda: not any(is_there(member.pid) for member in members))
    assert psutil.Process(start_living(pool).pid).ppid() != server


FEW_DESCRIPTORS = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (32, int(sys.argv[1])))
from redline.errors import UserError
from redline.runtime.processes.process_pool import check_room
try:
    check_room(actors=2, learner_threads=1)
    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
except UserError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("allowed", "said"), [(32, "2 actors need 64 open files, 32 are allowed: ulimit -n 64"), (256, "64")]
)
def test_descriptors_are_asked_for_before_anything_starts(allowed: int, said: str) -> None:
    done = subprocess.run([sys.executable, "-c", FEW_DESCRIPTORS, str(allowed)], check=True, capture_output=True)
    assert done.stdout.decode().strip() == said


def test_a_pids_limit_that_is_too_low_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "_pids_left", lambda: 18)
    with pytest.raises(UserError, match="2 actors need about 19 processes and threads, the pids limit leaves 18"):
        check_room(actors=2, learner_threads=1)

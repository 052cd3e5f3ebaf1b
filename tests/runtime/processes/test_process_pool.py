"""The pool: whoever is lost is found and said why, and nobody is left behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from multiprocessing import forkserver
from pathlib import Path
from typing import Any

import child_work
import psutil
import pytest
from child_work import PATIENCE_S, look_until

from redline.errors import UserError
from redline.runtime.config import Job
from redline.runtime.processes import process_pool as pool_module
from redline.runtime.processes.process_pool import PRELOAD, Loss, Member, Message, Outbox, ProcessPool, check_room
from redline.runtime.processes.shared_status import EVALUATOR, FIRST_ACTOR, LEARNER, SharedStatus

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


Work = Callable[[tuple[SharedStatus, int], Outbox], None]


def start(pool: ProcessPool, work: Work, *, name: str = "actor-0", slot: int = FIRST_ACTOR) -> Member:
    return pool.start(name, slot, partial(work, (pool.status, slot)))


def start_living(pool: ProcessPool, *, name: str = "actor-0", slot: int = FIRST_ACTOR) -> Member:
    """Start a process that plays, and return when it does."""
    member = start(pool, child_work.live, name=name, slot=slot)
    wait_for_steps(pool, member)
    return member


def wait_for_steps(pool: ProcessPool, member: Member) -> None:
    """Return when a process has played more than it has now: it is there, and goes on."""
    now = int(pool.status.steps[member.slot])
    look_until(lambda: int(pool.status.steps[member.slot]) > now + 1)


def find_losses(pool: ProcessPool, count: int) -> list[Loss]:
    """Look for processes that are lost until there are so many, and return them."""
    found: list[Loss] = []

    def are_found() -> bool:
        found.extend(pool.find_lost())
        return len(found) >= count

    look_until(are_found)
    assert len(found) == count
    return found


def find_loss(pool: ProcessPool) -> Loss:
    """Look for processes that are lost until there is one, and return it."""
    return find_losses(pool, 1)[0]


def is_there(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_a_process_that_lives_is_not_lost(pool: ProcessPool) -> None:
    members = [start_living(pool), start_living(pool, name="evaluator", slot=EVALUATOR)]
    end_s = time.monotonic() + 0.3
    while time.monotonic() < end_s:
        assert pool.find_lost() == []
    assert list(pool.members) == ["actor-0", "evaluator"]
    assert all(is_there(member.pid) for member in members)


def test_a_process_that_ends_is_lost_with_its_last_messages(pool: ProcessPool) -> None:
    member = start(pool, child_work.end_at_once)
    loss = find_loss(pool)
    assert (loss.member, loss.why, loss.was_killed) == (member, "ended with exit code 0", False)
    assert loss.messages == [{"kind": "last", "number": 1}, {"kind": "last", "number": 2}]
    assert pool.members == {}
    assert pool.find_lost() == []  # it is told once


def test_messages_that_were_received_before_are_not_given_again(pool: ProcessPool) -> None:
    start(pool, child_work.end_at_once)
    received: list[Message] = []

    def have_come() -> bool:
        received.extend(pool.receive(0.1))
        return len(received) >= 2

    look_until(have_come)
    assert received == [{"kind": "last", "number": 1}, {"kind": "last", "number": 2}]
    assert find_loss(pool).messages == []


def test_a_process_that_ends_wakes_the_pool(pool: ProcessPool) -> None:
    start(pool, child_work.end_at_once)
    begun_s = time.monotonic()
    while not pool.find_lost():
        pool.receive(10 * PATIENCE_S)
    assert time.monotonic() - begun_s < PATIENCE_S


def test_an_exit_code_is_told(pool: ProcessPool) -> None:
    start(pool, child_work.exit_with_3)
    loss = find_loss(pool)
    assert (loss.why, loss.was_killed) == ("ended with exit code 3", False)


def test_a_process_that_raises_tells_its_error(pool: ProcessPool) -> None:
    start(pool, child_work.fail)
    loss = find_loss(pool)
    last, error = loss.messages
    assert (loss.why, loss.was_killed) == ("ended with exit code 1", False)
    assert last == {"kind": "last", "number": 1}
    assert {key: error[key] for key in ("kind", "type", "message")} == {
        "kind": "error",
        "type": "ValueError",
        "message": "no such thing",
    }
    assert "in fail" in error["trace"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_process_that_is_killed_is_lost_and_the_signal_named(number: signal.Signals, pool: ProcessPool) -> None:
    other = start_living(pool, name="actor-1", slot=FIRST_ACTOR + 1)
    member = start_living(pool)
    os.kill(member.pid, number)
    loss = find_loss(pool)
    assert (loss.member, loss.why, loss.was_killed) == (member, f"was killed by {number.name}", True)
    assert [message["kind"] for message in loss.messages] == ["living"]
    assert list(pool.members) == ["actor-1"]
    wait_for_steps(pool, other)


def test_a_process_that_is_stopped_for_too_long_is_lost_and_ended(
    pool: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "STOPPED_S", 0.5)
    member = start_living(pool)
    os.kill(member.pid, signal.SIGSTOP)
    loss = find_loss(pool)
    assert (loss.member, loss.was_killed) == (member, True)
    assert loss.why.startswith("was stopped for")
    assert [message["kind"] for message in loss.messages] == ["living"]
    assert not is_there(member.pid)
    assert pool.members == {}


def test_a_process_that_is_stopped_for_a_moment_is_not_lost(pool: ProcessPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "STOPPED_S", 10 * PATIENCE_S)
    member = start_living(pool)
    os.kill(member.pid, signal.SIGSTOP)
    look_until(lambda: psutil.Process(member.pid).status() == psutil.STATUS_STOPPED)
    assert pool.find_lost() == []
    assert member.stopped_since_s is not None
    os.kill(member.pid, signal.SIGCONT)
    wait_for_steps(pool, member)
    assert pool.find_lost() == []
    assert member.stopped_since_s is None  # the next stop is counted from its own beginning


def test_a_process_that_falls_silent_is_lost_and_ended(pool: ProcessPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "SILENT_S", 0.3)
    monkeypatch.setattr(pool_module, "LEARNER_SILENT_S", 10 * PATIENCE_S)
    learner = start(pool, child_work.fall_silent, name="learner", slot=LEARNER)
    patient = start(pool, child_work.announce_silence, name="evaluator", slot=EVALUATOR)
    look_until(lambda: bool(pool.status.beat_s[[LEARNER, EVALUATOR]].all()))
    member = start(pool, child_work.fall_silent)
    loss = find_loss(pool)
    assert (loss.member, loss.was_killed) == (member, False)
    assert loss.why.startswith("showed no sign of life for")
    assert loss.messages == [{"kind": "last", "number": 1}]  # and no part of what it did not live to send
    assert not is_there(member.pid)
    # the learner is given more time, and whoever announced a long silence is given that
    assert pool.members == {"learner": learner, "evaluator": patient}


def test_a_learner_that_falls_silent_is_lost_after_its_own_time(
    pool: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "SILENT_S", 10 * PATIENCE_S)
    monkeypatch.setattr(pool_module, "LEARNER_SILENT_S", 0.3)
    start(pool, child_work.fall_silent)
    learner = start(pool, child_work.fall_silent, name="learner", slot=LEARNER)
    assert find_loss(pool).member is learner


def test_a_process_that_shows_no_sign_of_life_at_all_is_lost(
    pool: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "STARTING_S", 0.5)
    monkeypatch.setattr(pool_module, "SILENT_S", 10 * PATIENCE_S)
    member = start(pool, child_work.never_begin)
    pool.status.beat_s[EVALUATOR] = 1.0  # somebody else's
    loss = find_loss(pool)
    assert loss.member is member
    assert loss.why.startswith("showed no sign of life for")
    assert not is_there(member.pid)


def test_a_sign_of_life_of_a_predecessor_is_not_its_successors(pool: ProcessPool) -> None:
    member = start_living(pool)
    pool.end(member)
    assert pool.status.beat_s[FIRST_ACTOR] > 0.0
    start(pool, child_work.never_begin)
    assert pool.status.beat_s[FIRST_ACTOR] == 0.0  # it has the time of a process that starts


def test_nobody_is_lost_because_the_supervisor_itself_was_stopped(
    pool: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "STOPPED_S", 0.2)
    monkeypatch.setattr(pool_module, "SILENT_S", 0.2)
    silent = start(pool, child_work.fall_silent)
    stopped = start_living(pool, name="actor-1", slot=FIRST_ACTOR + 1)
    look_until(lambda: bool(pool.status.beat_s[FIRST_ACTOR]))
    os.kill(stopped.pid, signal.SIGSTOP)
    stopped.stopped_since_s = time.monotonic()
    time.sleep(0.5)  # nobody looks
    assert pool.find_lost() == []
    assert silent.name in pool.members
    assert {loss.member.name for loss in find_losses(pool, 2)} == {"actor-0", "actor-1"}  # but now they are


def test_a_process_that_starts_keeps_its_time_when_the_supervisor_itself_was_stopped(
    pool: ProcessPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "STOPPED_S", 0.2)
    monkeypatch.setattr(pool_module, "SILENT_S", 0.2)
    monkeypatch.setattr(pool_module, "STARTING_S", 10 * PATIENCE_S)
    start(pool, child_work.never_begin)
    time.sleep(0.3)  # nobody looks
    end_s = time.monotonic() + 0.6
    while time.monotonic() < end_s:
        assert pool.find_lost() == []
        time.sleep(0.01)


def test_closing_lets_processes_end_by_themselves(pool: ProcessPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "ENDING_S", PATIENCE_S)
    members = [start_living(pool), start_living(pool, name="learner", slot=LEARNER)]
    pool.close()
    assert pool.status.is_stopped
    assert [member.process.exitcode for member in members] == [0, 0]
    assert pool.members == {}


def test_closing_leaves_no_process(pool: ProcessPool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "ENDING_S", 0.2)
    stubborn = start(pool, child_work.live_for_ever, name="learner", slot=LEARNER)
    starting = start(pool, child_work.never_begin, name="evaluator", slot=EVALUATOR)
    silent = start(pool, child_work.fall_silent)
    stopped = start_living(pool, name="actor-1", slot=FIRST_ACTOR + 1)
    os.kill(stopped.pid, signal.SIGSTOP)
    members = [stubborn, starting, silent, stopped]
    assert all(is_there(member.pid) for member in members)
    pool.close()
    assert not any(is_there(member.pid) for member in members)
    assert pool.members == {}
    pool.close()  # closing twice is harmless


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
    roles = {f"redline.runtime.processes.{roles}" for roles in ("playing_roles", "learner_role")}
    assert roles <= set(loss.messages[0]["names"])


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
from redline.runtime.processes.shared_status import SharedStatus
from redline.runtime.processes.process_pool import ProcessPool
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

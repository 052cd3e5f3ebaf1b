"""The pool: a lost process is found and the reason told, and no process is left behind."""

from __future__ import annotations

import os
import signal
import time

import child_work
import psutil
import pytest
from child_work import PATIENCE_S, look_until
from pool_work import find_loss, find_losses, is_there, start, start_living, wait_for_steps

from redline.runtime.processes import process_pool as pool_module
from redline.runtime.processes.process_pool import Message, ProcessPool
from redline.runtime.processes.shared import EVALUATOR, FIRST_ACTOR, LEARNER


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

"""The status: what one process shows, the others see; and a process that waits says for what, and that it lives."""

from __future__ import annotations

import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from child_work import PATIENCE_S, StartChild, answer, answer_status, play_when_it_waits, stop_when_it_waits

from redline.runtime.counters import Counters, Scores
from redline.runtime.processes import shared as status_module
from redline.runtime.processes.message_log import RoleReadings
from redline.runtime.processes.shared import EVALUATOR, FIRST_ACTOR, LEARNER, WAITS, Doorbell, SharedStatus, Slot


def never() -> bool:
    return False


def waited(status: SharedStatus, index: int) -> dict[str, float]:
    """Return the waits of a slot that are not 0."""
    return {name: seconds for name, seconds in zip(WAITS, status.waited_s[index].tolist(), strict=True) if seconds}


def test_what_one_process_shows_another_sees(start_child: StartChild) -> None:
    status = SharedStatus(3)
    child = start_child(answer_status, status, FIRST_ACTOR + 1)
    status.answer_sync(4, is_safe=False)
    status.answer_sync(5, is_safe=True)
    status.show_progress(steps=1_000, updates=70)
    status.show_evaluations(Counters(evaluations=3, evaluated_steps=900, solved_s=60.0), Scores(greedy_return=12.5))
    status.order_save()
    status.order_save()
    status.bells[FIRST_ACTOR + 1].ring()
    learner = Slot(status, LEARNER)
    assert learner.wait_until(lambda: "envs" in waited(status, FIRST_ACTOR + 1), on="actors", timeout_s=PATIENCE_S)
    assert status.steps.tolist() == [0, 0, 0, 16, 0]
    assert status.age_updates[:, :2].tolist() == [[0, 0], [0, 0], [0, 0], [10, 1], [0, 0]]
    status.stop()
    child.join(PATIENCE_S)
    assert child.exitcode == 0  # it saw what was shown here
    assert np.flatnonzero(status.beat_s).tolist() == [LEARNER, FIRST_ACTOR + 1]
    assert status.beat_s[FIRST_ACTOR + 1] <= time.monotonic()


def test_nothing_is_ordered_and_nothing_shown_at_first() -> None:
    status = SharedStatus(1)
    assert not status.is_stopped
    assert (status.saves_ordered, status.sync_answered, status.sync_failed) == (0, 0, 0)
    assert (status.run_steps, status.run_updates) == (0, 0)
    counters, scores = Counters(), Scores()
    status.read_evaluations(counters, scores)
    assert (counters, scores) == (Counters(), Scores())


def test_a_wait_counts_for_what_it_waited() -> None:
    status = SharedStatus(1)
    slot = Slot(status, FIRST_ACTOR)
    assert not slot.wait_until(never, on="learner", timeout_s=0.1)
    once = status.waited_s[FIRST_ACTOR, WAITS.index("learner")]
    assert 0.09 < once < PATIENCE_S
    assert not slot.wait_until(never, on="learner", timeout_s=0.1)
    assert not slot.wait_until(never, on="envs", timeout_s=0.05)
    shares = waited(status, FIRST_ACTOR)
    assert shares.keys() == {"learner", "envs"}
    assert shares["learner"] > once + 0.09
    assert 0.04 < shares["envs"] < PATIENCE_S
    assert waited(status, LEARNER) == waited(status, EVALUATOR) == {}


def test_what_is_true_already_is_not_waited_for() -> None:
    status = SharedStatus(1)
    assert Slot(status, LEARNER).wait_until(lambda: True, on="actors")
    status.stop()
    assert Slot(status, LEARNER).wait_until(lambda: True, on="actors")
    assert waited(status, LEARNER) == {}


def test_a_process_that_waits_shows_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_module, "BEAT_INTERVAL_S", 0.01)
    status = SharedStatus(1)
    beats: list[float] = []

    def note_beat() -> bool:
        beats.append(float(status.beat_s[LEARNER]))
        return False

    begun_s = time.monotonic()
    Slot(status, LEARNER).wait_until(note_beat, on="actors", timeout_s=0.3)
    assert beats[0] == 0.0
    assert len(set(beats)) == len(beats) > 3  # a new sign of life between two looks
    assert begun_s < beats[1] < beats[-1] <= time.monotonic()
    assert 0.29 < status.waited_s[LEARNER].sum() <= time.monotonic() - begun_s  # each moment is counted once


def test_a_wait_ends_by_the_ring_of_another_process(start_child: StartChild, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_module, "BEAT_INTERVAL_S", 10 * PATIENCE_S)  # nothing but a ring ends it in time
    status = SharedStatus(1)
    slot = Slot(status, EVALUATOR)
    slot.beat()
    start_child(play_when_it_waits, status, EVALUATOR)
    begun_s = time.monotonic()
    assert slot.wait_until(lambda: bool(status.steps[EVALUATOR + 1]), on="actors")
    assert time.monotonic() - begun_s < PATIENCE_S


def test_a_wait_ends_when_the_run_does(start_child: StartChild, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_module, "BEAT_INTERVAL_S", 10 * PATIENCE_S)
    status = SharedStatus(1)
    slot = Slot(status, FIRST_ACTOR)
    slot.beat()
    start_child(stop_when_it_waits, status, FIRST_ACTOR)
    begun_s = time.monotonic()
    assert not slot.wait_until(never, on="learner")
    assert time.monotonic() - begun_s < PATIENCE_S
    assert not slot.wait_until(never, on="learner", timeout_s=PATIENCE_S)  # nor does one begin
    assert time.monotonic() - begun_s < PATIENCE_S


def test_a_beat_may_announce_silence() -> None:
    status = SharedStatus(1)
    Slot(status, LEARNER).beat(500.0)
    assert 400.0 < status.beat_s[LEARNER] - time.monotonic() < 500.1


def test_a_block_that_waits_is_counted_also_when_it_fails() -> None:
    status = SharedStatus(1)

    def fail_slowly() -> None:
        with Slot(status, FIRST_ACTOR).waiting("envs"):
            time.sleep(0.05)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail_slowly()
    assert waited(status, FIRST_ACTOR).keys() == {"envs"}
    assert status.waited_s[FIRST_ACTOR].sum() > 0.04


def test_the_age_of_weights_is_how_many_updates_they_lag_behind() -> None:
    status = SharedStatus(1)
    slot = Slot(status, FIRST_ACTOR)
    status.show_progress(steps=1, updates=10)
    for weights_updates in (10, 7, 12):  # newer than what the learner has shown: as young as can be
        slot.acted_with(weights_updates)
    assert status.age_updates[FIRST_ACTOR, :2].tolist() == [3, 3]


def test_a_reading_has_the_mean_age_of_the_weights_since_the_one_before() -> None:
    status = SharedStatus(2)
    status.show_progress(steps=1, updates=10)
    first, second = Slot(status, FIRST_ACTOR), Slot(status, FIRST_ACTOR + 1)
    actors = {
        f"actor-{i}": SimpleNamespace(name=f"actor-{i}", slot=FIRST_ACTOR + i, pid=os.getpid(), restarts=0)
        for i in range(2)
    }
    pool: Any = SimpleNamespace(status=status, members=actors)
    first.acted_with(0)
    second.acted_with(5)
    readings = RoleReadings(pool)
    for weights_updates in (8, 9):
        first.acted_with(weights_updates)
    assert [role.weights_age_updates for role in readings.read()] == [None, 1.5, None]  # the second did not act


def seconds_waited(bell: Doorbell, timeout_s: float) -> float:
    begun_s = time.monotonic()
    bell.wait(timeout_s)
    return time.monotonic() - begun_s


def num_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def test_a_ring_before_the_wait_is_kept() -> None:
    bell = Doorbell()
    bell.ring()
    assert seconds_waited(bell, PATIENCE_S) < PATIENCE_S / 2


def test_a_wait_answers_all_rings_before_it() -> None:
    bell = Doorbell()
    for _ in range(3):
        bell.ring()
    bell.wait(PATIENCE_S)
    assert seconds_waited(bell, 0.05) > 0.04


def test_a_wait_without_a_ring_ends_when_its_time_is_over() -> None:
    bell = Doorbell()
    assert 0.19 < seconds_waited(bell, 0.2) < PATIENCE_S
    assert seconds_waited(bell, 0.0) < PATIENCE_S


def test_a_bell_that_nobody_answers_can_be_rung_for_ever() -> None:
    bell = Doorbell()
    os.eventfd_write(bell._descriptor, 2**64 - 2)  # as many rings as the kernel counts
    bell.ring()
    assert seconds_waited(bell, PATIENCE_S) < PATIENCE_S / 2
    assert seconds_waited(bell, 0.05) > 0.04


@pytest.mark.parametrize("method", ["forkserver", "spawn"])
def test_processes_wake_each_other(method: str, start_child: StartChild) -> None:
    question, reply = Doorbell(), Doorbell()
    child = start_child(answer, question, reply, 50, method=method)
    for _ in range(50):
        question.ring()
        assert seconds_waited(reply, PATIENCE_S) < PATIENCE_S / 2
    child.join(PATIENCE_S)
    assert child.exitcode == 0


def test_bells_that_are_gone_leave_no_descriptor() -> None:
    before = num_descriptors()
    bells = [Doorbell() for _ in range(20)]
    assert num_descriptors() == before + 20
    bells[0].close()
    bells.clear()
    assert num_descriptors() == before

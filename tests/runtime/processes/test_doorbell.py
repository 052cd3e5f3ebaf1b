"""Bells: no ring is lost, and none is waited for that came already."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from child_work import PATIENCE_S, StartChild, answer

from redline.runtime.processes.shared_status import Doorbell


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

"""Writers in other processes, which may die at any moment, and a memory that never holds anything but whole steps."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import deque
from typing import Any

import numpy as np
import pytest
from stamped_play import FRAME_SHAPE, check_all_rows, play, write_some

from redline.errors import UserError
from redline.experience import ReplayLayout, ReplayMemory, take_snapshot
from redline.experience.shared_lanes import LaneWriter, SharedLanes

LANES_PER_WRITER = 2
WRITERS = 2


def memory_for(lanes: int, capacity: int = 600) -> ReplayMemory:
    return ReplayMemory(
        ReplayLayout(capacity=capacity, frame_shape=FRAME_SHAPE, frame_dtype="uint8", stack=4, lanes=lanes)
    )


def snapshot_of(memory: ReplayMemory) -> tuple[dict[str, Any], dict[str, bytes], list[bytes]]:
    blocks: list[bytes] = []
    snapshot = take_snapshot(memory, blocks.append)
    return snapshot.manifest, {name: rows.tobytes() for name, rows in snapshot.arrays.items()}, blocks


class DirectWriter:
    """Has the calls of a lane writer, and no ring."""

    def __init__(self, memory: ReplayMemory) -> None:
        self.memory = memory

    def begin(self, first_frames: Any, *, wait_s: float | None = None) -> None:
        self.memory.begin(self.memory.lanes, first_frames)

    def append(self, *, wait_s: float | None = None, **step: Any) -> None:
        self.memory.append(self.memory.lanes, **step)


def test_a_memory_filled_through_rings_is_the_memory_filled_by_calls() -> None:
    lanes = np.arange(3)
    direct, through_rings = memory_for(3), memory_for(3)
    shared = SharedLanes(3, FRAME_SHAPE, "uint8", depth=5)
    steps = play(DirectWriter(direct), lanes, 0), play(LaneWriter(shared, lanes), lanes, 0)  # type: ignore[arg-type]
    for _ in range(500):
        for step in steps:
            next(step)
        shared.drain(through_rings)
    assert snapshot_of(through_rings) == snapshot_of(direct)
    assert check_all_rows(through_rings) > 400


def test_drain_returns_the_steps_taken_and_leaves_nothing() -> None:
    memory, shared = memory_for(2), SharedLanes(2, FRAME_SHAPE, "uint8")
    steps = play(LaneWriter(shared, np.arange(2)), np.arange(2), 0)
    for _ in range(10):
        next(steps)
    assert shared.drain(memory) == 20
    assert shared.drain(memory) == 0
    assert memory.num_transitions == 20


def test_lanes_are_independent() -> None:
    memory, shared = memory_for(2), SharedLanes(2, FRAME_SHAPE, "uint8")
    only = np.array([1])
    steps = play(LaneWriter(shared, only), only, 0)
    for _ in range(30):
        next(steps)
    assert shared.drain(memory) == 30
    assert check_all_rows(memory) == 30


def test_a_full_ring_makes_its_writer_wait_and_no_other() -> None:
    shared = SharedLanes(2, FRAME_SHAPE, "uint8", depth=8)
    waiting, other = (play(LaneWriter(shared, np.array([lane])), np.array([lane]), 0, wait_s=0.05) for lane in (0, 1))
    with pytest.raises(TimeoutError, match="taken no steps"):
        deque(waiting, maxlen=0)  # on and on
    next(other)
    memory = memory_for(2)
    shared.drain(memory)
    assert check_all_rows(memory) >= 4


def test_an_unpublished_step_does_not_exist() -> None:
    memory, shared = memory_for(1), SharedLanes(1, FRAME_SHAPE, "uint8")
    steps = play(LaneWriter(shared, np.array([0])), np.array([0]), 0)
    next(steps)
    published = int(shared.head[0])
    next(steps)
    shared.head[0] = published  # as if the writer had died before it moved the head
    assert shared.drain(memory) == 1
    successor = play(LaneWriter(shared, np.array([0])), np.array([0]), 1)
    for _ in range(10):
        next(successor)
    shared.drain(memory)
    assert check_all_rows(memory) == 11


def test_a_shorter_ring_than_a_step_needs_is_refused() -> None:
    with pytest.raises(ValueError, match="room for 2 records"):
        SharedLanes(1, FRAME_SHAPE, "uint8", depth=1)


def test_other_processors_are_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(UserError, match="Linux x86-64 only, not on linux aarch64: use --topology inline"):
        SharedLanes(1, FRAME_SHAPE, "uint8")


def test_a_process_that_is_started_afresh_writes_into_the_same_rings() -> None:
    memory, shared = memory_for(2), SharedLanes(2, FRAME_SHAPE, "uint8")
    process = multiprocessing.get_context("spawn").Process(target=write_some, args=(shared, 200))
    process.start()
    while process.is_alive():
        shared.drain(memory)
    shared.drain(memory)
    assert process.exitcode == 0
    assert memory.num_transitions == 400
    check_all_rows(memory)


def start_writer(shared: SharedLanes, writer: int, number: int) -> int:
    """Fork a process that plays for ever on the lanes of a writer; return its id."""
    pid = os.fork()
    if pid:
        return pid
    try:
        lanes = np.arange(LANES_PER_WRITER) + writer * LANES_PER_WRITER
        for _ in play(LaneWriter(shared, lanes), lanes, number, wait_s=20.0):
            pass
    finally:
        os._exit(1)


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def kill_writers(times: int, seed: int) -> int:
    """Kill writers at random moments, let others follow them, and check every row; return the rows checked."""
    rng = np.random.default_rng(seed)
    lanes = WRITERS * LANES_PER_WRITER
    memory, shared = memory_for(lanes), SharedLanes(lanes, FRAME_SHAPE, "uint8", depth=16)
    pids = [start_writer(shared, writer, 0) for writer in range(WRITERS)]
    checked = 0
    try:
        for number in range(1, times + 1):
            end_s = time.monotonic() + float(rng.uniform(0.0, 0.02))
            while time.monotonic() < end_s:
                shared.drain(memory)
            victim = int(rng.integers(WRITERS))
            kill(pids[victim])
            if rng.random() < 0.5:
                shared.drain(memory)
            pids[victim] = start_writer(shared, victim, number)
            if number % 10 == 0:
                checked += check_all_rows(memory)
    finally:
        for pid in pids:
            kill(pid)
    shared.drain(memory)
    assert memory.num_transitions > 0
    return checked + check_all_rows(memory)


def test_killed_writers_leave_whole_steps_only() -> None:
    assert kill_writers(30, seed=0) > 500


@pytest.mark.slow
def test_hundreds_of_killed_writers_leave_whole_steps_only() -> None:
    assert kill_writers(500, seed=1) > 10_000

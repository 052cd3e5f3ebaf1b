"""Writers in other processes, which may die at any moment, and a memory that never holds anything but whole steps."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import deque
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from stamped_play import (
    FRAME_SHAPE,
    MAIL_BYTES,
    Moment,
    check_all_rows,
    letter_of,
    play,
    read_letter,
    take_all,
    write_some,
)

from redline.errors import UserError
from redline.replay import ReplayLayout, ReplayMemory, take_snapshot
from redline.replay.backing import ReplayError
from redline.replay.shared_lanes import (
    BY_EPISODE,
    IN_CHUNKS,
    LOCKSTEP,
    STEP_BY_STEP,
    LaneWriter,
    PushRule,
    SharedLanes,
)

SHORT = PushRule(records=1, records_ahead=3)
WIDE = PushRule(records=1, records_ahead=60)
LANES_PER_WRITER = 2
WRITERS = 2


def memory_for(lanes: int, capacity: int = 600) -> ReplayMemory:
    return ReplayMemory(
        ReplayLayout(capacity=capacity, frame_shape=FRAME_SHAPE, frame_dtype="uint8", stack=4, lanes=lanes)
    )


def rings_for(lanes: int, rule: PushRule) -> SharedLanes:
    return SharedLanes(lanes, FRAME_SHAPE, "uint8", rule=rule, mail_bytes=MAIL_BYTES)


def snapshot_of(memory: ReplayMemory) -> tuple[dict[str, Any], dict[str, bytes], list[bytes]]:
    blocks: list[bytes] = []
    snapshot = take_snapshot(memory, blocks.append)
    return snapshot.manifest, {name: rows.tobytes() for name, rows in snapshot.arrays.items()}, blocks


class DirectWriter:
    """Has the calls of a lane writer, and no ring."""

    def __init__(self, memory: ReplayMemory) -> None:
        self.memory = memory

    may_begin = may_step = True

    def begin(self, first_frames: Any) -> None:
        self.memory.begin(self.memory.lanes, first_frames)

    def append(self, *, letters: Any, **step: Any) -> None:
        self.memory.append(self.memory.lanes, **step)


def test_a_memory_filled_through_rings_is_the_memory_filled_by_calls() -> None:
    lanes = np.arange(3)
    direct, through_rings = memory_for(3), memory_for(3)
    shared = rings_for(3, SHORT)
    steps = play(DirectWriter(direct), lanes, 0), play(LaneWriter(shared, lanes), lanes, 0)  # type: ignore[arg-type]
    for _ in range(500):
        for step in steps:
            next(step)
        take_all(shared, through_rings)
    assert snapshot_of(through_rings) == snapshot_of(direct)
    assert check_all_rows(through_rings) > 400


def test_drain_returns_the_steps_taken_and_leaves_nothing() -> None:
    memory, shared = memory_for(2), rings_for(2, WIDE)
    steps = play(LaneWriter(shared, np.arange(2)), np.arange(2), 0)
    for _ in range(10):
        next(steps)
    assert take_all(shared, memory) == 20
    assert take_all(shared, memory) == 0
    assert memory.num_transitions == 20


def test_lanes_are_independent() -> None:
    memory, shared = memory_for(2), rings_for(2, WIDE)
    only = np.array([1])
    steps = play(LaneWriter(shared, only), only, 0)
    for _ in range(30):
        next(steps)
    assert take_all(shared, memory) == 30
    assert check_all_rows(memory) == 30


def test_a_full_ring_makes_its_writer_wait_and_no_other() -> None:
    shared = rings_for(2, SHORT)
    waiting, other = (play(LaneWriter(shared, np.array([lane])), np.array([lane]), 0, wait_s=0.05) for lane in (0, 1))
    with pytest.raises(TimeoutError, match="taken no steps"):
        deque(waiting, maxlen=0)  # on and on
    next(other)
    memory = memory_for(2)
    take_all(shared, memory)
    assert check_all_rows(memory) >= 2


def test_an_unpublished_step_does_not_exist() -> None:
    memory, shared = memory_for(1), rings_for(1, WIDE)
    steps = play(LaneWriter(shared, np.array([0])), np.array([0]), 0)
    next(steps)
    published = int(shared.head[0])
    next(steps)
    shared.head[0] = published  # as if the writer had died before it moved the head
    assert take_all(shared, memory) == 1
    successor = play(LaneWriter(shared, np.array([0])), np.array([0]), 1)
    for _ in range(10):
        next(successor)
    take_all(shared, memory)
    assert check_all_rows(memory) == 11


def test_a_take_is_one_step_of_each_lane_and_its_room_comes_back_when_it_is_released() -> None:
    memory, shared = memory_for(2), rings_for(2, WIDE)
    writer = LaneWriter(shared, np.arange(2))
    steps = play(writer, np.arange(2), 0)
    next(steps)
    next(steps)
    assert shared.take(memory).steps == 2
    assert (shared.tail == 0).all()
    shared.release()
    assert shared.tail.tolist() == [4, 3]  # a cut, a beginning and a step, which ended an episode in lane 0
    assert shared.take(memory).steps == 2
    assert shared.take(memory).steps == 0


def test_in_lockstep_no_step_may_follow_before_the_last_was_taken_and_released() -> None:
    memory, shared = memory_for(1), rings_for(1, LOCKSTEP)
    writer = LaneWriter(shared, np.arange(1))
    steps = play(writer, np.arange(1), 0, wait_s=0.0)
    with pytest.raises(TimeoutError):
        next(steps)  # the beginning was not taken
    take_all(shared, memory)
    assert writer.may_step
    writer.append(**a_step(1))
    with pytest.raises(ValueError, match="rings are full"):
        writer.append(**a_step(1))


def letters_of(episodes: int, lane: int = 0) -> list[bytes]:
    """Return the letters of a lane's first episodes."""
    moments = [Moment(lane, 0, episode, 0) for episode in range(episodes)]
    return [letter_of(replace(moment, step=moment.length - 1)) for moment in moments]


def take_letters(shared: SharedLanes, memory: ReplayMemory) -> list[bytes]:
    """Take everything that was published; return the letters."""
    letters = []
    while shared.has_steps:
        letters += shared.take(memory).letters
        shared.release()
    return letters


@pytest.mark.parametrize("rule", [SHORT, IN_CHUNKS, BY_EPISODE])
def test_letters_come_with_the_steps_that_end_episodes_and_wrap_around_their_ring(rule: PushRule) -> None:
    memory, shared = memory_for(1), rings_for(1, rule)
    steps = play(LaneWriter(shared, np.arange(1)), np.arange(1), 0, wait_s=0.0)
    letters: list[bytes] = []
    for _ in range(400):
        next(steps)
        letters += take_letters(shared, memory)
    assert len(letters) > 30
    assert letters == letters_of(len(letters))
    assert int(shared.mail_tail[0]) == sum(map(len, letters)) > 5 * MAIL_BYTES


def test_a_letter_is_there_when_its_step_is_taken_and_its_room_comes_back_with_the_step() -> None:
    memory, shared = memory_for(1), rings_for(1, WIDE)
    steps = play(LaneWriter(shared, np.arange(1)), np.arange(1), 0)
    next(steps)  # an episode of one step
    taken = shared.take(memory)
    assert (taken.lanes.tolist(), taken.letters) == ([0], letters_of(1))
    assert shared.mail_tail[0] == 0
    shared.release()
    assert shared.mail_tail[0] == len(letters_of(1)[0])


def test_a_letter_that_was_not_published_is_gone_with_its_writer() -> None:
    memory, shared = memory_for(1), rings_for(1, IN_CHUNKS)
    steps, published = play(LaneWriter(shared, np.arange(1)), np.arange(1), 0), []
    for _ in range(19):  # episodes of 1 and 18 steps, of which 16 records are published at once
        next(steps)
        published += take_letters(shared, memory)
    assert published == letters_of(1)
    successor = play(LaneWriter(shared, np.arange(1)), np.arange(1), 1)
    letters: list[bytes] = []
    for _ in range(100):
        next(successor)
        letters += take_letters(shared, memory)
    found = [(moment.writer, moment.episode) for moment in map(read_letter, letters)]
    assert found == [(1, episode) for episode in range(len(found))]
    assert len(found) > 5
    check_all_rows(memory)


@pytest.mark.parametrize("rule", [IN_CHUNKS, PushRule(records=1_000, records_ahead=2_000)])
def test_mail_that_waits_for_the_rest_of_a_chunk_is_published_before_it_stops_its_writer(rule: PushRule) -> None:
    memory, shared = memory_for(2), rings_for(2, rule)
    writer = LaneWriter(shared, np.arange(2))
    steps = play(writer, np.arange(2), 0, wait_s=0.0)
    for _ in range(500):
        next(steps)
        if not writer.may_step:
            assert take_all(shared, memory) > 0
            assert writer.may_step
    assert check_all_rows(memory) > 100


def test_mail_without_room_for_a_largest_letter_makes_its_writer_wait() -> None:
    memory, shared = memory_for(1), rings_for(1, WIDE)
    writer = LaneWriter(shared, np.arange(1))
    writer.begin(np.zeros((1, *FRAME_SHAPE), np.uint8))
    last = {**a_step(1), "episode_ends": np.array([True])}
    writer.append(**last, letters=[bytes(95)])
    assert writer.may_step
    writer.append(**last, letters=[b"x"])
    assert not writer.may_step
    with pytest.raises(ValueError, match="rings are full"):
        writer.append(**last)
    assert [len(letter) for letter in take_letters(shared, memory)] == [95, 1]
    assert writer.may_step


def test_a_letter_too_large_is_refused() -> None:
    writer = LaneWriter(rings_for(1, WIDE), np.arange(1))
    writer.begin(np.zeros((1, *FRAME_SHAPE), np.uint8))
    with pytest.raises(ValueError, match="a letter of 96 bytes: the largest has 95"):
        writer.append(**{**a_step(1), "episode_ends": np.array([True])}, letters=[bytes(96)])


def test_a_letter_that_nobody_wrote_is_never_taken_for_one() -> None:
    memory, shared = memory_for(1), rings_for(1, WIDE)
    next(play(LaneWriter(shared, np.arange(1)), np.arange(1), 0))
    shared.mail_end[0] = 96
    with pytest.raises(ReplayError, match="a letter that no actor wrote"):
        shared.take(memory)


def test_an_episode_is_published_as_a_whole_if_asked_for() -> None:
    memory, shared = memory_for(1), rings_for(1, BY_EPISODE)
    steps = play(LaneWriter(shared, np.arange(1)), np.arange(1), 0)
    published = []
    for _ in range(40):
        next(steps)
        published.append(take_all(shared, memory))
    lengths = [Moment(0, 0, episode, 0).length for episode in range(10)]
    assert [count for count in published if count] == lengths[: np.count_nonzero(published)]


def test_an_episode_longer_than_its_ring_is_published_in_parts() -> None:
    rule = PushRule(records=None, records_ahead=2)
    memory, shared = memory_for(1), rings_for(1, rule)
    steps = play(LaneWriter(shared, np.arange(1)), np.arange(1), 1)  # episodes of 9, 3, 20 … steps
    for _ in range(60):
        next(steps)
        take_all(shared, memory)
    assert check_all_rows(memory) > 50


def test_what_nobody_wrote_is_never_taken_for_a_record() -> None:
    memory, shared = memory_for(1), rings_for(1, WIDE)
    next(play(LaneWriter(shared, np.arange(1)), np.arange(1), 0))
    shared.head[0] += 1
    take_once = shared.take(memory)
    assert take_once.steps == 1
    with pytest.raises(ReplayError, match="no actor wrote"):
        shared.take(memory)


def test_room_given_back_holds_poison() -> None:
    memory, shared = memory_for(1), rings_for(1, SHORT)
    steps = play(LaneWriter(shared, np.arange(1)), np.arange(1), 0)
    for _ in range(9):
        next(steps)
        take_all(shared, memory)
    assert (shared.kind == 0).all()
    assert np.isnan(shared.reward).all()


def test_other_processors_are_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: "aarch64")
    with pytest.raises(UserError, match="Linux x86-64 only, not on linux aarch64: use --topology inline"):
        rings_for(1, WIDE)


def test_a_process_that_is_started_afresh_writes_into_the_same_rings() -> None:
    memory, shared = memory_for(2), rings_for(2, WIDE)
    process = multiprocessing.get_context("spawn").Process(target=write_some, args=(shared, 200))
    process.start()
    while process.is_alive():
        take_all(shared, memory)
    take_all(shared, memory)
    assert process.exitcode == 0
    assert memory.num_transitions == 400
    check_all_rows(memory)


def a_step(lanes: int) -> dict[str, Any]:
    frames = np.zeros((lanes, *FRAME_SHAPE), np.uint8)
    ends = np.zeros(lanes, np.bool_)
    reward = np.zeros(lanes, np.float32)
    actions = np.zeros(lanes, np.int64)
    return {
        "actions": actions,
        "reward": reward,
        "return_ends": ends,
        "episode_ends": ends,
        "frames": frames,
        "first_frames": frames,
    }


def start_writer(shared: SharedLanes, writer: int, number: int) -> int:
    """Fork a process that plays forever on the lanes of a writer; return its id."""
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


def kill_writers(times: int, seed: int, rule: PushRule = STEP_BY_STEP) -> int:
    """Kill writers at random moments, let others follow them, check rows and letters; return the rows checked."""
    rng = np.random.default_rng(seed)
    lanes = WRITERS * LANES_PER_WRITER
    memory, shared = memory_for(lanes), rings_for(lanes, rule)
    pids = [start_writer(shared, writer, 0) for writer in range(WRITERS)]
    checked = 0
    try:
        for number in range(1, times + 1):
            end_s = time.monotonic() + float(rng.uniform(0.0, 0.02))
            while time.monotonic() < end_s:
                take_all(shared, memory)
            victim = int(rng.integers(WRITERS))
            kill(pids[victim])
            if rng.random() < 0.5:
                take_all(shared, memory)
            pids[victim] = start_writer(shared, victim, number)
            if number % 10 == 0:
                checked += check_all_rows(memory)
    finally:
        for pid in pids:
            kill(pid)
    take_all(shared, memory)
    assert memory.num_transitions > 0
    return checked + check_all_rows(memory)


@pytest.mark.parametrize("rule", [STEP_BY_STEP, IN_CHUNKS])
def test_killed_writers_leave_whole_steps_and_letters_only(rule: PushRule) -> None:
    assert kill_writers(30, seed=0, rule=rule) > 500


@pytest.mark.slow
def test_hundreds_of_killed_writers_leave_whole_steps_only() -> None:
    assert kill_writers(500, seed=1) > 10_000

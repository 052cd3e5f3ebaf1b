"""Any history of any memory, however small, against the obvious implementation."""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from replay_oracle import FRAME_SHAPE, LARGE_FRAME_SHAPE, Player, poison_what_leaves

from redline.replay import (
    BatchBuffers,
    ReplayLayout,
    ReplayMemory,
    UniformSampler,
    restore_memory,
    take_snapshot,
)
from redline.replay.chunks import StoredBlocks
from redline.types import Handles

ENDINGS = ["", "", "", "life", "terminated", "truncated"]


@st.composite
def layouts(draw: st.DrawFn, folder: Path) -> ReplayLayout:
    """Memories down to the smallest that can be, of every codec and backing; some with fewer bytes than capacity."""
    sizes = {
        "stack": draw(st.integers(1, 4)),
        "lanes": draw(st.integers(1, 3)),
        "horizon_steps": draw(st.sampled_from([0, 0, 1, 2, 5])),
        "max_n_steps": draw(st.integers(1, 4)),
        "chunk_frames": draw(st.integers(1, 5)),
    }
    shape = draw(st.sampled_from([FRAME_SHAPE, LARGE_FRAME_SHAPE]))
    codec = draw(st.sampled_from(["zstd", "zstd", "lz4", "raw"]))
    path = folder if draw(st.integers(0, 3)) == 0 else None
    huge = ReplayLayout(capacity=10_000, frame_shape=shape, frame_dtype="uint8", codec=codec, path=path, **sizes)
    capacity = huge.min_capacity + draw(st.sampled_from([0, 0, 1, 7, 40]))
    if draw(st.booleans()):
        return replace(huge, capacity=capacity)
    plenty = replace(huge, capacity=capacity + 500)
    return replace(plenty, budget_bytes=plenty.min_bytes + draw(st.sampled_from([0, 0, 10_000])))


class Ahead(NamedTuple):
    """A batch that was drawn and planned, and is gathered later."""

    time: int  # in vector steps
    handles: Handles
    plan: Any
    buffers: BatchBuffers


class ReplayAgainstOracle(RuleBasedStateMachine):
    """Steps, cuts and new lanes in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()

    def teardown(self) -> None:
        if hasattr(self, "player"):
            self.player.memory.close()
        self.folder.cleanup()

    @initialize(data=st.data())
    def build(self, data: st.DataObject) -> None:
        self.player = Player(data.draw(layouts(Path(self.folder.name))))
        self.drawn: list[tuple[int, Handles]] = []  # vector step, rows sampleable then
        self.ahead: list[Ahead] = []
        self.time = 0
        self.last_cut = -1

    @rule(data=st.data(), steps=st.integers(1, 12))
    def step(self, data: st.DataObject, steps: int) -> None:
        lanes = len(self.player.memory.lanes)
        for _ in range(steps):
            endings = data.draw(st.lists(st.sampled_from(ENDINGS), min_size=lanes, max_size=lanes))
            rewards = [(self.time * 3 + lane) % 7 / 2 - 1.5 for lane in range(lanes)]
            self.player.step(endings, rewards)
            self.time += 1
            self.draw_now_and_read_what_is_due()

    @rule(every=st.sampled_from([1, 2, 3, 0]), steps=st.integers(5, 40))
    def play_on(self, every: int, steps: int) -> None:
        """Many steps at once, so that memories wrap: episodes of `every` steps, or one long one."""
        lanes = len(self.player.memory.lanes)
        for i in range(steps):
            ending = "truncated" if every and i % every == 0 else ""
            self.player.step([ending] * lanes, [0.5] * lanes)
            self.time += 1
            self.draw_now_and_read_what_is_due()

    @rule(lane=st.integers(0, 2), steps=st.integers(1, 30))
    def play_one_lane(self, lane: int, steps: int) -> None:
        """Leave the other lanes behind."""
        lanes = self.player.memory.lanes
        for _ in range(steps):
            self.player.step([""], [0.25], ids=lanes[[lane % len(lanes)]])
            self.time += 1
            self.draw_now_and_read_what_is_due()

    @rule(data=st.data())
    def cut(self, data: st.DataObject) -> None:
        lanes = self.player.memory.lanes.tolist()
        self.player.cut(data.draw(st.lists(st.sampled_from(lanes), unique=True)))
        if data.draw(st.booleans()):
            self.player.begin()
        # of two cuts within the horizon nothing is promised
        self.drawn = [(time, handles) for time, handles in self.drawn if time > self.last_cut]
        self.ahead = [batch for batch in self.ahead if batch.time > self.last_cut]
        self.last_cut = self.time

    @precondition(lambda self: self.time > 0)
    @rule()
    def open_lanes(self) -> None:
        self.player.open_lanes()
        self.drawn.clear()
        self.ahead.clear()

    @precondition(lambda self: self.time > 0)
    @rule()
    def save_and_restore(self) -> None:
        """Go on in another memory, with what was drawn before."""
        old = self.player.memory
        blocks: list[bytes] = []
        old.chunks.stored = StoredBlocks()  # a store of its own
        snapshot = take_snapshot(old, lambda block: (blocks.append(block), len(blocks) - 1)[1])
        memory = ReplayMemory(old.layout)
        restore_memory(memory, json.loads(json.dumps(snapshot.manifest)), snapshot.arrays, blocks.__getitem__)
        poison_what_leaves(memory)
        before = self.player.sampleable()
        self.player.memory = memory
        after = self.player.sampleable()
        assert np.array_equal(before.lane, after.lane)
        assert np.array_equal(before.number, after.number)
        self.ahead.clear()
        old.close()

    def draw_now_and_read_what_is_due(self) -> None:
        """Draw everything, and read what was drawn `horizon_steps` vector steps ago."""
        layout = self.player.memory.layout
        self.drawn.append((self.time, self.player.sampleable()))
        while self.drawn and self.drawn[0][0] <= self.time - layout.horizon_steps:
            _, handles = self.drawn.pop(0)
            assert self.player.memory.is_resident(handles).all()
            if self.time % 4 == 0:
                self.player.check_rows(handles, n_steps=layout.max_n_steps)
        self.plan_a_batch()
        while self.ahead and self.ahead[0].time <= self.time - layout.horizon_steps:
            batch = self.ahead.pop(0)
            self.player.poison_free_slots()
            self.player.memory.frames.read(batch.plan, batch.buffers.frames)
            self.player.check_batch(
                batch.buffers.batch, batch.handles, n_steps=layout.max_n_steps, gamma=0.9, clip=False
            )

    def plan_a_batch(self) -> None:
        """Draw a few rows, as a prefetching learner does: their bytes are moved `horizon_steps` vector steps later."""
        memory = self.player.memory
        if memory.num_sampleable == 0 or self.time % 2:
            return
        draw = UniformSampler(memory).draw(np.random.default_rng(self.time), 4)
        buffers = BatchBuffers(memory.layout, batch_size=4, n_steps=memory.layout.max_n_steps)
        plan = buffers.plan(memory, draw, gamma=0.9, clip_rewards=False)
        self.ahead.append(Ahead(self.time, draw.handles, plan, buffers))

    @invariant()
    def every_row_equals_the_oracle(self) -> None:
        layout = self.player.memory.layout
        handles = self.player.sampleable()
        self.player.check_rows(handles, n_steps=layout.max_n_steps)
        if self.time % 3 == 0:
            self.player.check_rows(handles, n_steps=1, clip=True)

    @invariant()
    def every_complete_step_that_is_held_is_readable(self) -> None:
        memory = self.player.memory
        for lane in memory.lanes.tolist():
            complete = self.player.oracle.num_complete(lane, memory.layout.max_n_steps)
            sampleable = self.player.sampleable()
            numbers = sampleable.number[sampleable.lane == lane]
            if len(numbers):
                assert numbers[-1] == complete - 1
            row = lane - memory.table.first_lane
            floor = int(memory.table.floor_frame[row])
            expected = self.whole_stacks_above(lane, floor)
            assert numbers.tolist() == expected[expected < complete].tolist()

    @invariant()
    def exactly_what_is_whole_and_complete_is_resident(self) -> None:
        memory, oracle = self.player.memory, self.player.oracle
        table = memory.table
        for lane in range(int(memory.lanes[-1]) + 2):
            count = len(oracle.transitions(lane)) + 2
            handles = Handles(np.full(count, lane), np.arange(count))
            found = np.flatnonzero(memory.is_resident(handles)).tolist()
            row = lane - table.first_lane
            if not 0 <= row < len(table):
                assert found == []
                continue
            expected = self.whole_stacks_above(lane, int(table.first_chunk[row]) * table.frames_per_chunk)
            complete = oracle.num_complete(lane, memory.layout.max_n_steps)
            assert found == expected[expected < complete].tolist()

    def whole_stacks_above(self, lane: int, floor: int) -> np.ndarray:
        """Return the numbers of transitions whose stack needs no frame below the floor."""
        stack = self.player.memory.layout.stack
        first_frame, numbers, number = 0, [], 0
        for episode in self.player.oracle.episodes.get(lane, []):
            for t in range(len(episode.steps)):
                if first_frame + max(t - stack + 1, 0) >= floor:
                    numbers.append(number)
                number += 1
            first_frame += len(episode.frames)
        return np.array(numbers, np.int64)

    @invariant()
    def no_more_is_kept_than_asked_for(self) -> None:
        memory = self.player.memory
        assert memory.num_transitions <= memory.layout.capacity
        assert memory.num_sampleable <= memory.num_transitions

    @invariant()
    def nothing_leaves_before_it_must(self) -> None:
        layout, pool = self.player.memory.layout, self.player.memory.pool
        written = sum(len(self.player.oracle.transitions(lane)) for lane in self.player.oracle.episodes)
        kept = self.player.memory.num_transitions
        is_full = kept > layout.capacity - layout.frames_per_chunk
        assert kept == written or is_full or len(pool.free) <= 2 * layout.lanes or self.is_out_of_bytes()

    def is_out_of_bytes(self) -> bool:
        memory = self.player.memory
        budget = memory.frames.budget_bytes
        held = sum(memory.frames.sealed_bytes(slot) for slot in memory.retention.order)
        return memory.full_at is not None and budget is not None and held > budget - 3 * memory.layout.max_blob_bytes

    @invariant()
    def no_more_bytes_are_taken_than_the_budget(self) -> None:
        memory = self.player.memory
        assert memory.frames.reserved_bytes <= memory.layout.frame_space_bytes
        if memory.layout.budget_bytes is not None:
            assert memory.layout.num_bytes <= memory.layout.budget_bytes
            if len(memory.table) == memory.layout.lanes:  # lanes of before have tables of their own
                assert memory.used_bytes <= memory.layout.budget_bytes


ReplayAgainstOracle.TestCase.settings = settings(
    max_examples=250,
    stateful_step_count=8,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestReplayAgainstOracle = ReplayAgainstOracle.TestCase

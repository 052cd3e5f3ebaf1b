"""Any history of any memory, however small, against the obvious implementation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from replay_oracle import FRAME_SHAPE, LARGE_FRAME_SHAPE, Player

from redline.experience import ReplayLayout
from redline.types import Handles

ENDINGS = ["", "", "", "life", "terminated", "truncated"]


@st.composite
def layouts(draw: st.DrawFn) -> ReplayLayout:
    """Memories down to the smallest that can be."""
    sizes = {
        "stack": draw(st.integers(1, 4)),
        "lanes": draw(st.integers(1, 3)),
        "horizon_steps": draw(st.sampled_from([0, 0, 1, 2, 5])),
        "max_n_steps": draw(st.integers(1, 4)),
        "chunk_frames": draw(st.integers(1, 5)),
    }
    shape = draw(st.sampled_from([FRAME_SHAPE, LARGE_FRAME_SHAPE]))
    huge = ReplayLayout(capacity=10_000, frame_shape=shape, frame_dtype="uint8", **sizes)
    capacity = huge.min_capacity + draw(st.sampled_from([0, 0, 1, 7, 40]))
    return replace(huge, capacity=capacity)


class ReplayAgainstOracle(RuleBasedStateMachine):
    """Steps, cuts and new lanes in any order."""

    @initialize(layout=layouts())
    def build(self, layout: ReplayLayout) -> None:
        self.player = Player(layout)
        self.drawn: list[tuple[int, Handles]] = []  # vector step, rows sampleable then
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
        self.last_cut = self.time

    @precondition(lambda self: self.time > 0)
    @rule()
    def open_lanes(self) -> None:
        self.player.open_lanes()
        self.drawn.clear()

    def draw_now_and_read_what_is_due(self) -> None:
        """Draw everything, and read what was drawn `horizon_steps` vector steps ago."""
        layout = self.player.memory.layout
        self.drawn.append((self.time, self.player.sampleable()))
        while self.drawn and self.drawn[0][0] <= self.time - layout.horizon_steps:
            _, handles = self.drawn.pop(0)
            assert self.player.memory.is_resident(handles).all()
            if self.time % 4 == 0:
                self.player.check_rows(handles, n_steps=layout.max_n_steps)

    @invariant()
    def every_row_equals_the_oracle(self) -> None:
        layout = self.player.memory.layout
        handles = self.player.sampleable()
        for n_steps in {1, layout.max_n_steps}:
            self.player.check_rows(handles, n_steps=n_steps, clip=n_steps == 1)

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
        assert kept == written or is_full or len(pool.free) <= 2 * layout.lanes


ReplayAgainstOracle.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
TestReplayAgainstOracle = ReplayAgainstOracle.TestCase

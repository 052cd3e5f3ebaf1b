"""The replay memory: lanes of transitions in a pool of chunks, each frame stored once.

A lane is the history of one environment. Its frames and its transitions are numbered; a transition points at the frame
where it starts. Frames run ahead of transitions by one per episode, because no transition starts at a final frame. A
chunk is C consecutive frames of a lane and the transitions that start at them. Frame number → address is then the only
arithmetic, chunks have one size whatever the length of the episodes, and an evicted or saved chunk takes its
transitions along.

The transitions of a lane that may be drawn are one interval: from the first whose whole stack stays for the horizon, to
the last whose window is complete.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from redline.replay.chunks import EPISODE_ENDS, RETURN_ENDS, STARTS, ChunkLife, WithdrawalListener
from redline.replay.lane_table import Bounds
from redline.replay.layout import ReplayLayout
from redline.types import Array, BoolArray, Draw, FloatArray, Handles, IntArray


class Located(NamedTuple):
    """Where transitions are."""

    rows: IntArray  # [B] of the lane table
    frame: IntArray  # [B] number of the frame at which the transition starts
    address: IntArray  # [B, W] of the frames around it; of some other frame where there is none
    step: npt.NDArray[np.int32]  # [B] in the episode


class ReplayMemory:
    """The newest `capacity` transitions, or as many as the byte budget holds.

    One process owns a memory and samples from it. Others write through rings (`shared_lanes`).
    """

    chunks: ChunkLife

    def __init__(self, layout: ReplayLayout) -> None:
        self.withdrawal_listeners: list[WithdrawalListener] = []
        self.allocate(layout)
        self.open_lanes()

    def allocate(self, layout: ReplayLayout) -> None:
        """Start empty, without lanes, in the sizes of `layout`."""
        if hasattr(self, "chunks"):
            self.chunks.frames.close()
        self.layout = layout
        self.chunks = ChunkLife(layout, self.withdrawal_listeners)
        self.pool, self.frames, self.table = self.chunks.pool, self.chunks.frames, self.chunks.table
        self.retention = self.chunks.retention
        self.write_to(np.zeros(0, np.int64))

    @property
    def num_transitions(self) -> int:
        """Transitions held."""
        return self.retention.num_transitions

    @property
    def full_at(self) -> int | None:
        """Size when bytes, not capacity, first forced an eviction; None: never."""
        return self.chunks.full_at

    @property
    def num_sampleable(self) -> int:
        """Transitions that may be drawn now."""
        return int(self.intervals()[1].sum())

    @property
    def used_bytes(self) -> int:
        """Bytes in use: frames as stored, and the tables beside them."""
        return self.frames.used_bytes + self.pool.num_bytes + self.table.num_bytes + self.retention.num_bytes

    def close(self) -> None:
        """Free memory and disk; nothing can be read afterwards."""
        self.frames.close()

    # Writing

    def open_lanes(self) -> IntArray:
        """Open new lanes in place of those being written, which stay readable; return the new ids.

        Rows drawn before may leave before the horizon: check `is_resident`.
        """
        self.cut(self.lanes)
        self.chunks.seal_all(self._rows)  # those written so far are data only from now on
        table = self.table
        held = table.num_chunks > table.first_chunk
        table.drop(int(held.argmax()) if held.any() else len(table))
        first = table.first_lane + len(table)
        table.add(self.layout.lanes)
        self.write_to(np.arange(first, first + self.layout.lanes))
        self.chunks.balance()
        return self.lanes

    def begin(self, lanes: IntArray, first_frames: Array) -> None:
        """Begin an episode in each of `lanes` with its first frame [N, *frame]."""
        rows = self._rows_of(lanes)
        self._check_frames(rows, first_frames)
        if self.table.is_open[rows].any():
            raise ValueError("an episode is running: cut it before another begins")
        self.table.is_open[rows] = 1
        self.chunks.write_frames(rows, first_frames, np.zeros(len(rows), np.int64))
        self.chunks.balance()

    def append(
        self,
        lanes: IntArray,
        *,
        actions: IntArray,  # [N]
        reward: FloatArray,  # [N] unclipped
        return_ends: BoolArray,  # [N] terminated, or a life lost
        episode_ends: BoolArray,  # [N] terminated or truncated
        frames: Array,  # [N, *frame] after the action
        first_frames: Array,  # [N, *frame] of the next episode; read where one ended
    ) -> None:
        """Add one step of each of `lanes`, and begin the next episode where one ended."""
        rows = self._rows_of(lanes)
        self._check_frames(rows, frames)
        table, pool = self.table, self.pool
        if not table.is_open[rows].all():
            raise ValueError("no episode is running: begin one before appending")
        table.bounds = None
        at = table.head[rows]
        pool.action[at] = actions
        pool.reward[at] = reward
        pool.flags[at] = STARTS + return_ends * np.uint8(RETURN_ENDS) + episode_ends * np.uint8(EPISODE_ENDS)
        number = table.num_transitions[rows]
        table.frame_of.write(rows, number, table.num_frames[rows] - 1)
        number += 1
        table.num_transitions[rows] = number
        table.ended_before[rows] = np.where(return_ends | episode_ends, number, table.ended_before[rows])
        self.retention.count(len(rows))
        self.chunks.write_frames(rows, frames, table.step[rows] + 1)
        if episode_ends.any():
            over = np.flatnonzero(episode_ends)
            self._check_frames(rows, first_frames)
            self.chunks.write_frames(rows[over], first_frames[over], np.zeros(len(over), np.int64))
        self.chunks.balance()

    def cut(self, lanes: IntArray) -> None:
        """End the running episodes of `lanes`; the last step of each bootstraps from the newest frame."""
        table = self.table
        rows = self._rows_of(lanes)
        begun = rows[(table.is_open[rows] == 1) & (table.step[rows] > 0)]
        last = table.num_frames[begun] - 2  # where the last transition starts
        held = last >= table.first_chunk[begun] * table.frames_per_chunk
        self.pool.flags[table.address(begun[held], last[held])] |= EPISODE_ENDS
        table.ended_before[begun] = table.num_transitions[begun]
        table.is_open[rows] = 0
        table.bounds = None

    # Reading

    def bounds(self) -> Bounds:
        """Return what may be drawn; the same object until the next write."""
        table = self.table
        if table.bounds is None:
            # a window is complete if it ended, or if n steps follow its start
            complete = np.maximum(table.ended_before, table.num_transitions - self.layout.max_n_steps + 1)
            size = np.maximum(complete - table.first_whole, 0)
            table.bounds = Bounds(table.first_whole.copy(), size, complete)
        return table.bounds

    def intervals(self) -> tuple[IntArray, IntArray]:
        """Return, for each lane from `table.first_lane` on, the first transition that may be drawn and how many."""
        first, size, _ = self.bounds()
        return first, size

    def locate(self, draw: Draw, *, back: int = 0, ahead: int = 0) -> Located:
        """Locate drawn transitions and the frames around them; raise LookupError if one has left."""
        if draw.bounds is not self.bounds():
            is_readable = self.is_resident(draw.handles)
            if not is_readable.all():
                raise LookupError(f"{np.count_nonzero(~is_readable)} of the rows drawn are no longer held")
        return self._look_up(draw.handles.lane - self.table.first_lane, draw.handles.number, back, ahead)

    def is_resident(self, handles: Handles) -> BoolArray:
        """Tell which transitions are readable: stack held, window complete."""
        table = self.table
        rows = handles.lane - table.first_lane
        is_known = (rows >= 0) & (rows < len(table))
        rows, frame, _, step = self._look_up(np.where(is_known, rows, 0), handles.number)
        stack_start = frame - np.minimum(step, self.layout.stack - 1)
        resident: BoolArray = (
            is_known
            & (handles.number >= table.first_number[rows])
            & (handles.number < self.bounds().complete_before[rows])
            & (stack_start >= table.first_chunk[rows] * table.frames_per_chunk)
        )
        return resident

    def _look_up(self, rows: IntArray, numbers: IntArray, back: int = 0, ahead: int = 0) -> Located:
        """Locate transitions of known lanes; one that is not resident gets some valid address."""
        table = self.table
        frame = table.frame_of.read(rows, numbers)
        address = table.address(rows[:, None], frame[:, None] + np.arange(-back, ahead + 1))
        return Located(rows, frame, address, self.pool.step[address[:, back]])

    # Lanes

    def write_to(self, lanes: IntArray) -> None:
        """Make `lanes` the ones being written."""
        self.lanes = lanes  # ids
        self._rows = lanes - self.table.first_lane
        self.chunks.written_lanes = frozenset(lanes.tolist())
        self.table.bounds = None

    def _rows_of(self, lanes: IntArray) -> IntArray:
        if lanes is self.lanes:
            return self._rows
        if not np.isin(lanes, self.lanes).all() or len(np.unique(lanes)) != len(lanes):
            raise ValueError(f"lanes {lanes.tolist()} are not {len(lanes)} of those being written")
        return lanes - self.table.first_lane

    def _check_frames(self, rows: IntArray, frames: Array) -> None:
        expected = (len(rows), *self.layout.frame_shape)
        if frames.shape != expected or frames.dtype != self.layout.frame_dtype:
            raise ValueError(f"frames must be {expected} {self.layout.frame_dtype}, got {frames.shape} {frames.dtype}")

"""The replay memory: lanes of transitions in a pool of chunks, each frame stored once.

A lane is the history of one environment. Its frames are numbered, and so are its transitions; a transition points at
the frame it starts at. Frames run ahead of transitions by one per episode, because no transition starts at a final
frame. A chunk is C consecutive frames of a lane together with the transitions that start at them: frame number →
address is then the only arithmetic there is, for pictures and for everything else (see `chunk_pool`), chunks have a
fixed size whatever the length of the episodes, and an evicted or saved chunk takes its transitions along.

The transitions of a lane that may be drawn are one interval: from the first whose whole stack is held, and will be for
the horizon, to the last whose window is complete.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from redline.experience.backing import ReplayError
from redline.experience.chunk_pool import EPISODE_ENDS, RETURN_ENDS, STARTS, ChunkPool
from redline.experience.flat_frames import FlatFrames
from redline.experience.frame_store import FrameStore
from redline.experience.lane_table import LaneTable
from redline.experience.layout import ReplayLayout
from redline.experience.packed_frames import PackedFrames
from redline.experience.retention import Retention
from redline.experience.stored_blocks import StoredBlocks
from redline.types import Array, BoolArray, Draw, FloatArray, Handles, IntArray

# told while they can still be located: transitions first … end − 1 of a lane will not be offered any more
WithdrawalListener = Callable[[int, int, int], None]  # lane, first, end


class Located(NamedTuple):
    """Where transitions are."""

    rows: IntArray  # [B] of the lane table
    frame: IntArray  # [B] number of the frame at which the transition starts
    address: IntArray  # [B, W] of the frames around it; of some other frame where there is none
    step: npt.NDArray[np.int32]  # [B] in the episode


class Bounds(NamedTuple):
    """What may be drawn from each lane of the table."""

    first: IntArray  # first transition
    size: IntArray  # how many
    complete_before: IntArray  # the first transition whose window is not complete yet


class ReplayMemory:
    """What was experienced: the newest `capacity` transitions, or as many as the byte budget holds.

    One process owns a memory and samples from it. Others write through an inbox (`shared_lanes`).
    """

    def __init__(self, layout: ReplayLayout) -> None:
        self.withdrawal_listeners: list[WithdrawalListener] = []
        self.allocate(layout)
        self.open_lanes()

    def allocate(self, layout: ReplayLayout) -> None:
        """Start afresh without lanes, sized as `layout` says."""
        if hasattr(self, "frames"):
            self.frames.close()
        self.layout = layout
        self.pool = ChunkPool(layout)
        self.frames: FrameStore = PackedFrames(layout) if layout.is_packed else FlatFrames(layout)
        self.table = LaneTable(layout)
        self.retention = Retention(layout, self.pool, self.frames)
        self.stored = StoredBlocks()
        self.full_at: int | None = None  # transitions held when something else than the capacity made one leave
        self._bounds: Bounds | None = None  # until something is written
        self._unsettled: set[int] = set()  # lanes whose first whole stack is yet to be written
        self.write_to(np.zeros(0, np.int64))

    @property
    def lanes(self) -> IntArray:
        """Ids of the lanes that are being written."""
        return self._lanes

    @property
    def num_transitions(self) -> int:
        """Transitions kept."""
        return self.retention.num_transitions

    @property
    def num_sampleable(self) -> int:
        """Transitions that may be drawn now."""
        return int(self.intervals()[1].sum())

    @property
    def num_bytes(self) -> int:
        """Bytes that may be taken at most, wherever they are."""
        return self.layout.num_bytes

    @property
    def used_bytes(self) -> int:
        """Bytes taken now: frames as they are stored, and everything that is noted beside them."""
        return self.frames.used_bytes + self.pool.num_bytes + self.table.num_bytes + self.retention.num_bytes

    def close(self) -> None:
        """Give memory and disk back; nothing can be read afterwards."""
        self.frames.close()

    # Writing

    def open_lanes(self) -> IntArray:
        """Open new lanes in place of those being written, which stay readable; return the new ids.

        Rows drawn before may leave sooner than the horizon: look at `is_resident`.
        """
        self.retire_lanes()
        table = self.table
        held = table.num_chunks > table.first_chunk
        table.drop(int(held.argmax()) if held.any() else len(table))
        first = table.next_lane
        table.add(self.layout.lanes)
        self.write_to(np.arange(first, first + self.layout.lanes))
        self.balance()
        return self._lanes

    def begin(self, lanes: IntArray, first_frames: Array) -> None:
        """Begin an episode in each of `lanes` with its first frame [N, *frame]."""
        rows = self._rows_of(lanes)
        self._check_frames(rows, first_frames)
        if self.table.is_open[rows].any():
            raise ValueError("an episode is under way: cut it before another begins")
        self.table.is_open[rows] = 1
        self._write_frames(rows, first_frames, np.zeros(len(rows), np.int64))
        self.balance()

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
            raise ValueError("no episode is under way: begin one before appending to it")
        self._bounds = None
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
        self._write_frames(rows, frames, table.step[rows] + 1)
        if episode_ends.any():
            over = np.flatnonzero(episode_ends)
            self._check_frames(rows, first_frames)
            self._write_frames(rows[over], first_frames[over], np.zeros(len(over), np.int64))
        self.balance()

    def cut(self, lanes: IntArray) -> None:
        """End the episodes under way in `lanes`; the last step of each bootstraps from the newest frame."""
        table = self.table
        rows = self._rows_of(lanes)
        begun = rows[(table.is_open[rows] == 1) & (table.step[rows] > 0)]
        last = table.num_frames[begun] - 2  # where the last transition starts
        held = last >= table.first_chunk[begun] * table.frames_per_chunk
        self.pool.flags[table.address(begun[held], last[held])] |= EPISODE_ENDS
        table.ended_before[begun] = table.num_transitions[begun]
        table.is_open[rows] = 0
        self._bounds = None

    # Reading

    def bounds(self) -> Bounds:
        """Return what may be drawn; the same object until something is written."""
        if self._bounds is None:
            table = self.table
            # a window is complete if it ended, or if n steps follow its start
            complete = np.maximum(table.ended_before, table.num_transitions - self.layout.max_n_steps + 1)
            size = np.maximum(complete - table.first_whole, 0)
            self._bounds = Bounds(table.first_whole.copy(), size, complete)
        return self._bounds

    def intervals(self) -> tuple[IntArray, IntArray]:
        """Return, for each lane from `table.first_lane` on, the first transition that may be drawn and how many."""
        first, size, _ = self.bounds()
        return first, size

    def locate(self, draw: Draw, *, back: int = 0, ahead: int = 0) -> Located:
        """Find the transitions that were drawn and the frames around them; raise LookupError if one has left."""
        if draw.bounds is not self.bounds():
            is_readable = self.is_resident(draw.handles)
            if not is_readable.all():
                raise LookupError(f"{np.count_nonzero(~is_readable)} of the rows drawn are no longer held")
        return self._look_up(draw.handles.lane - self.table.first_lane, draw.handles.number, back, ahead)

    def is_resident(self, handles: Handles) -> BoolArray:
        """Tell which transitions can be read: stack held, window complete."""
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
        """Find transitions of known lanes; those that are not resident are found anywhere."""
        table = self.table
        frame = table.frame_of.read(rows, numbers)
        address = table.address(rows[:, None], frame[:, None] + np.arange(-back, ahead + 1))
        return Located(rows, frame, address, self.pool.step[address[:, back]])

    # The life of a chunk: opened, sealed, doomed, evicted

    def _write_frames(self, rows: IntArray, frames: Array, step: IntArray) -> None:
        table = self.table
        number = table.num_frames[rows]
        table.num_frames[rows] = number + 1
        table.head[rows] += 1
        if (number % table.frames_per_chunk).min() <= 1:
            for row, new in zip(rows.tolist(), number.tolist(), strict=True):
                self._turn_chunk(row, new)
        at = table.head[rows]
        self.frames.write(at, frames)
        self.pool.step[at] = step
        table.step[rows] = step

    def _turn_chunk(self, row: int, frame: int) -> None:
        chunk, place = divmod(frame, self.table.frames_per_chunk)
        if place == 0:
            self._open_chunk(row, chunk)
        # one frame later than full: a cut may still mark the transition that led to the newest frame
        while (self.table.num_sealed[row] + 1) * self.table.frames_per_chunk < frame:
            self._seal_oldest(row)

    def _open_chunk(self, row: int, chunk: int) -> None:
        table = self.table
        self.find_free_slot()
        table.make_room(row)
        slot = self.pool.take(lane=table.first_lane + row, chunk=chunk, first_number=int(table.num_transitions[row]))
        self.frames.open(slot)
        table.slots.write(row, chunk, slot)
        table.head[row] = slot * table.frames_per_chunk

    def find_free_slot(self) -> None:
        """Make sure that there is a slot for one more chunk."""
        pool, frames = self.pool, self.frames
        is_placed = bool(pool.free) and frames.has_place_for(pool.free[-1])
        if frames.is_short and pool.free and not frames.has_place_for(pool.free[0]):  # the last that would be taken
            pool.free = [slot for slot in pool.free if frames.has_place_for(slot)]
            is_placed = bool(pool.free)
        if not is_placed:
            self._evict_for_room()

    def _seal_oldest(self, row: int) -> None:
        table, pool = self.table, self.pool
        chunk = int(table.num_sealed[row])
        slot, following = (int(table.slots.values[row, c & (table.slots.width - 1)]) for c in (chunk, chunk + 1))
        is_last = chunk + 1 == table.num_chunks[row]
        end = table.num_transitions[row] if is_last else pool.first_number[following]
        pool.num_transitions[slot] = end - pool.first_number[slot]
        pool.num_frames[slot] = min(table.frames_per_chunk, int(table.num_frames[row]) - chunk * table.frames_per_chunk)
        table.num_sealed[row] += 1
        self.keep_sealed(slot, lambda: self.frames.seal(slot, int(pool.num_frames[slot])))

    def keep_sealed(self, slot: int, seal: Callable[[], int]) -> None:
        """Make room for a chunk, let `seal` keep its frames, and queue it as the newest."""
        while not self.frames.has_room():
            self._evict_for_room()
        self.retention.add(slot, seal())

    def balance(self) -> None:
        """Evict what is too much, and withdraw what could be evicted within the horizon."""
        self.evict_surplus()
        while self.retention.is_doom_due:
            self._doom_oldest()
        for lane in tuple(self._unsettled):
            self.settle(lane - self.table.first_lane)

    def evict_surplus(self) -> None:
        """Evict what is beyond the capacity."""
        while self.retention.is_overfull:
            self._evict_oldest()

    def _evict_for_room(self) -> None:
        """Evict because bytes are short, or places for frames."""
        if self.retention.num_evicted == self.retention.num_sealed:
            raise ReplayError("the replay has no room for even one chunk: free some memory first")
        if self.full_at is None:
            self.full_at = self.num_transitions
        self._evict_oldest()

    def _evict_oldest(self) -> None:
        if self.retention.num_doomed == self.retention.num_evicted:
            self._doom_oldest()
        slot = self.retention.evict_oldest()
        self.stored.forget_oldest()
        self.frames.drop(slot)
        row = int(self.pool.lane[slot]) - self.table.first_lane
        self.table.first_chunk[row] = self.pool.chunk[slot] + 1
        self.table.first_number[row] = self.pool.first_number[slot] + self.pool.num_transitions[slot]
        self.pool.release(slot)

    def _doom_oldest(self) -> None:
        slot = self.retention.doom_oldest()
        row = int(self.pool.lane[slot]) - self.table.first_lane
        self.table.floor_frame[row] = (self.pool.chunk[slot] + 1) * self.table.frames_per_chunk
        self.table.floor_number[row] = self.pool.first_number[slot] + self.pool.num_transitions[slot]
        self.settle(row)

    def settle(self, row: int) -> None:
        """Find the first transition of a lane whose whole stack lies above the floor."""
        table = self.table
        lane = table.first_lane + row
        end = int(table.num_transitions[row])
        first = int(table.floor_number[row])
        numbers = np.arange(first, min(first + self.layout.stack, end))  # K frames on, a stack is whole at the latest
        at_row = np.full(len(numbers), row)
        frame = table.frame_of.read(at_row, numbers)
        step = self.pool.step[table.address(at_row, frame)]
        whole = frame - np.minimum(step, self.layout.stack - 1) >= table.floor_frame[row]
        if whole.any():
            first_whole = first + int(whole.argmax())
            self._unsettled.discard(lane)
        else:
            first_whole = end
            if lane in self._lanes:
                self._unsettled.add(lane)
        for listener in self.withdrawal_listeners:
            listener(lane, int(table.first_whole[row]), first_whole)
        table.first_whole[row] = first_whole
        self._bounds = None

    # Lanes

    def write_to(self, lanes: IntArray) -> None:
        """Make `lanes` those that are being written."""
        self._lanes = lanes
        self._rows = lanes - self.table.first_lane
        self._bounds = None

    def retire_lanes(self) -> None:
        """Cut and seal the lanes being written, so that they are data only."""
        self.cut(self._lanes)
        for row in self._rows.tolist():
            while self.table.num_sealed[row] < self.table.num_chunks[row]:
                self._seal_oldest(row)
        self._unsettled.clear()

    def _rows_of(self, lanes: IntArray) -> IntArray:
        if lanes is self._lanes:
            return self._rows
        if not np.isin(lanes, self._lanes).all() or len(np.unique(lanes)) != len(lanes):
            raise ValueError(f"lanes {lanes.tolist()} are not {len(lanes)} of those being written")
        return lanes - self.table.first_lane

    def _check_frames(self, rows: IntArray, frames: Array) -> None:
        expected = (len(rows), *self.layout.frame_shape)
        if frames.shape != expected or frames.dtype != self.layout.frame_dtype:
            raise ValueError(f"frames must be {expected} {self.layout.frame_dtype}, got {frames.shape} {frames.dtype}")

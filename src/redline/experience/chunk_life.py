"""The life of a chunk: opened, sealed, doomed, evicted; and what that leaves of each lane to be drawn."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from redline.experience.backing import ReplayError
from redline.experience.chunk_pool import ChunkPool
from redline.experience.flat_frames import FlatFrames
from redline.experience.frame_store import FrameStore
from redline.experience.lane_table import LaneTable
from redline.experience.layout import ReplayLayout
from redline.experience.packed_frames import PackedFrames
from redline.experience.retention import Retention
from redline.experience.stored_blocks import StoredBlocks
from redline.types import Array, IntArray

# told while they can still be located: transitions first … end − 1 of a lane will not be offered any more
WithdrawalListener = Callable[[int, int, int], None]  # lane, first, end


class ChunkLife:
    """The parts that hold chunks, and the steps that a chunk takes through them."""

    def __init__(self, layout: ReplayLayout, withdrawal_listeners: list[WithdrawalListener]) -> None:
        self._stack = layout.stack
        self._withdrawal_listeners = withdrawal_listeners
        self.pool = ChunkPool(layout)
        self.frames: FrameStore = PackedFrames(layout) if layout.is_packed else FlatFrames(layout)
        self.table = LaneTable(layout)
        self.retention = Retention(layout, self.pool, self.frames)
        self.stored = StoredBlocks()
        self.full_at: int | None = None  # transitions held when something else than the capacity made one leave
        self.written_lanes: frozenset[int] = frozenset()
        self._unsettled: set[int] = set()  # lanes whose first whole stack is yet to be written

    def write_frames(self, rows: IntArray, frames: Array, step: IntArray) -> None:
        """Write the next frame [N, *frame] of each lane of the table in `rows`; `step` is its place in the episode."""
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

    def seal_all(self, rows: IntArray) -> None:
        """Seal every chunk of some lanes, which are not written any more."""
        for row in rows.tolist():
            while self.table.num_sealed[row] < self.table.num_chunks[row]:
                self._seal_oldest(row)
        self._unsettled.clear()

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
            self.full_at = self.retention.num_transitions
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
        numbers = np.arange(first, min(first + self._stack, end))  # K frames on, a stack is whole at the latest
        at_row = np.full(len(numbers), row)
        frame = table.frame_of.read(at_row, numbers)
        step = self.pool.step[table.address(at_row, frame)]
        whole = frame - np.minimum(step, self._stack - 1) >= table.floor_frame[row]
        if whole.any():
            first_whole = first + int(whole.argmax())
            self._unsettled.discard(lane)
        else:
            first_whole = end
            if lane in self.written_lanes:
                self._unsettled.add(lane)
        for listener in self._withdrawal_listeners:
            listener(lane, int(table.first_whole[row]), first_whole)
        table.first_whole[row] = first_whole
        table.bounds = None

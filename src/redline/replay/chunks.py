"""Chunks: C consecutive frames of a lane and the transitions that start at them; opened, sealed, withdrawn, evicted.

A transition is stored at the frame where it starts, so one address serves the frame, the action and its outcome. Inside
an episode the frames of a window have consecutive numbers. A final frame is a row without a transition. The frames
themselves are in a frame store, at the same addresses.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from redline.replay.backing import ReplayError
from redline.replay.frames import FlatFrames, PackedFrames
from redline.replay.lane_table import LaneTable
from redline.replay.layout import ReplayLayout
from redline.types import Array, IntArray

STARTS = 1  # a transition starts at this frame
RETURN_ENDS = 2  # it ended a return: terminated, or a life was lost
EPISODE_ENDS = 4  # it ended an episode: terminated, truncated or cut

FrameStore = FlatFrames | PackedFrames  # frames by their address in the pool
Location = Any  # what the store returned: a JSON value
Count = Annotated[int, msgspec.Meta(ge=0, le=2**40)]
# called with lane, first, end while the transitions first … end − 1 can still be located: they are no longer offered
WithdrawalListener = Callable[[int, int, int], None]


class ChunkPool:
    """Slots, each for one chunk: rows without their frames in flat arrays. Padding is read from slot 0, never used."""

    def __init__(self, layout: ReplayLayout) -> None:
        self.frames_per_chunk = layout.frames_per_chunk
        slots = layout.num_slots + 1
        rows = slots * self.frames_per_chunk
        self.action = np.zeros(rows, np.int32)  # zeros: untouched pages
        self.reward = np.zeros(rows, np.float32)
        self.step = np.zeros(rows, np.int32)  # in the episode
        self.flags = np.zeros(rows, np.uint8)
        self.free = list(range(slots - 1, 0, -1))
        self.lane: IntArray = np.zeros(slots, np.int64)
        self.chunk: IntArray = np.zeros(slots, np.int64)  # index within the lane
        self.first_number: IntArray = np.zeros(slots, np.int64)  # of the first transition that starts here
        self.num_transitions: npt.NDArray[np.int32] = np.zeros(slots, np.int32)  # set when sealed
        self.num_frames: npt.NDArray[np.int32] = np.zeros(slots, np.int32)  # set when sealed

    @property
    def columns(self) -> dict[str, Array]:
        """The arrays of rows by name."""
        return {"action": self.action, "reward": self.reward, "step": self.step, "flags": self.flags}

    @property
    def num_bytes(self) -> int:
        """Bytes of all rows and of the columns of chunks."""
        chunks = (self.lane, self.chunk, self.first_number, self.num_transitions, self.num_frames)
        return sum(column.nbytes for column in (*self.columns.values(), *chunks))

    def rows(self, slot: int, count: int) -> slice:
        """Return the addresses of the first `count` rows of a slot."""
        start = slot * self.frames_per_chunk
        return slice(start, start + count)

    def take(self, *, lane: int, chunk: int, first_number: int) -> int:
        """Take a free slot for a chunk whose rows hold no transitions yet."""
        slot = self.free.pop()
        self.lane[slot] = lane
        self.chunk[slot] = chunk
        self.first_number[slot] = first_number
        rows = self.rows(slot, self.frames_per_chunk)
        for column in (self.action, self.reward, self.step, self.flags):
            column[rows] = 0  # the same bytes whatever was here before
        return slot

    def release(self, slot: int) -> None:
        """Give a slot back."""
        self.free.append(slot)


class Retention:
    """Sealed chunks, oldest first across lanes: the order in which they leave.

    The front of the queue is *doomed*: it could be evicted within the horizon, so none of its rows is offered. Rows
    drawn from the rest stay readable for `horizon_steps` vector steps, because the writes of so many steps evict
    only doomed chunks.
    """

    def __init__(self, layout: ReplayLayout, pool: ChunkPool, frames: FrameStore) -> None:
        self._capacity = layout.capacity
        self._reserve_slots = layout.chunks_opened_within_horizon
        self._reserve_transitions = layout.lanes * layout.horizon_steps
        self._reserve_bytes = layout.chunks_opened_within_horizon * layout.max_blob_bytes
        self._pool = pool
        self._frames = frames
        self._queue: npt.NDArray[np.int32] = np.zeros(layout.num_slots + 1, np.int32)  # a ring of slots
        self.num_sealed = 0  # chunks ever sealed
        self.num_doomed = 0  # of those, withdrawn; the oldest
        self.num_evicted = 0  # of those, gone
        self.num_transitions = 0  # kept, in chunks of any kind
        self._safe_transitions = 0  # kept, and not doomed
        self._safe_bytes = 0  # of sealed frames, not doomed

    @property
    def num_bytes(self) -> int:
        """Bytes of the queue."""
        return self._queue.nbytes

    @property
    def order(self) -> list[int]:
        """Slots of all sealed chunks that are held, oldest first."""
        return self.slots(self.num_evicted, self.num_sealed)

    def slots(self, start: int, stop: int) -> list[int]:
        """Return the slots of chunks that were sealed as number `start` … `stop` − 1."""
        found: list[int] = self._queue[np.arange(start, stop) % len(self._queue)].tolist()
        return found

    @property
    def is_doom_due(self) -> bool:
        """Whether another chunk could be evicted within the horizon."""
        budget = self._frames.budget_bytes
        return self.num_doomed < self.num_sealed and (
            self._safe_transitions + self._reserve_transitions > self._capacity
            or len(self._pool.free) + self.num_doomed - self.num_evicted < self._reserve_slots
            or (budget is not None and self._safe_bytes + self._reserve_bytes > budget)
        )

    def count(self, transitions: int) -> None:
        """Count transitions just completed."""
        self.num_transitions += transitions
        self._safe_transitions += transitions

    def add(self, slot: int, num_bytes: int) -> None:
        """Append a chunk that was just sealed."""
        self._queue[self.num_sealed % len(self._queue)] = slot
        self.num_sealed += 1
        self._safe_bytes += num_bytes

    def doom_oldest(self) -> int:
        """Withdraw the oldest chunk that is not doomed yet; return its slot."""
        slot = int(self._queue[self.num_doomed % len(self._queue)])
        self.num_doomed += 1
        self._safe_transitions -= int(self._pool.num_transitions[slot])
        self._safe_bytes -= self._frames.sealed_bytes(slot)
        return slot

    def evict_oldest(self) -> int:
        """Remove the oldest doomed chunk; return its slot."""
        slot = int(self._queue[self.num_evicted % len(self._queue)])
        self.num_evicted += 1
        self.num_transitions -= int(self._pool.num_transitions[slot])
        return slot


class StoredBlock(msgspec.Struct, frozen=True):
    """Consecutive sealed chunks that were stored together, as a saved memory lists them."""

    chunks: Count
    transitions: Count
    location: Location  # the store checks what it is given


class StoredBlocks:
    """The sealed chunks that are on disk: blocks, oldest first; the first chunks of the first block may have left."""

    def __init__(self) -> None:
        self.blocks: deque[StoredBlock] = deque()
        self.num_gone = 0  # chunks of the first block that are no longer in the memory

    @property
    def num_chunks(self) -> int:
        """Chunks of the memory that are stored: the oldest."""
        return sum(block.chunks for block in self.blocks) - self.num_gone

    def forget_oldest(self) -> None:
        """Note that the oldest chunk has left the memory."""
        if not self.blocks:
            return
        self.num_gone += 1
        if self.num_gone == self.blocks[0].chunks:
            self.blocks.popleft()
            self.num_gone = 0


class ChunkLife:
    """The parts that hold chunks, the steps of a chunk through them, and what each lane may offer as a result."""

    def __init__(self, layout: ReplayLayout, withdrawal_listeners: list[WithdrawalListener]) -> None:
        self.capacity = layout.capacity
        self._stack = layout.stack
        self._withdrawal_listeners = withdrawal_listeners
        self.pool = ChunkPool(layout)
        self.frames: FrameStore = PackedFrames(layout) if layout.is_packed else FlatFrames(layout)
        self.table = LaneTable(layout)
        self.retention = Retention(layout, self.pool, self.frames)
        self.stored = StoredBlocks()
        self.full_at: int | None = None  # size when bytes or places, not capacity, first forced an eviction
        self.written_lanes: frozenset[int] = frozenset()
        self._unsettled: set[int] = set()  # lanes whose first whole stack is yet to be written

    def write_frames(self, rows: IntArray, frames: Array, step: IntArray) -> None:
        """Write the next frame [N, *frame] of the lanes in `rows`; `step` is its place in the episode."""
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
        # one frame late: a cut may still mark the transition that led to the newest frame
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
        """Ensure a free slot for one more chunk."""
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
        """Seal every chunk of lanes that are no longer written."""
        for row in rows.tolist():
            while self.table.num_sealed[row] < self.table.num_chunks[row]:
                self._seal_oldest(row)
        self._unsettled.clear()

    def keep_sealed(self, slot: int, seal: Callable[[], int]) -> None:
        """Make room for a chunk, let `seal` store its frames, and queue it as the newest."""
        while not self.frames.has_room():
            self._evict_for_room()
        self.retention.add(slot, seal())

    def balance(self) -> None:
        """Evict beyond the capacity, and withdraw what could be evicted within the horizon."""
        self.evict_surplus()
        while self.retention.is_doom_due:
            self._doom_oldest()
        for lane in tuple(self._unsettled):
            self.settle(lane - self.table.first_lane)

    def evict_surplus(self) -> None:
        """Evict down to the capacity."""
        while self.retention.num_transitions > self.capacity:
            self._evict_oldest()

    def _evict_for_room(self) -> None:
        """Evict for want of bytes or of places for frames."""
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

"""Prioritised replay: transitions that surprised the learner are drawn more often (Schaul et al., 2016).

The proportional variant: P(i) = p_i^α / Σ p^α with p = |δ| + ε; a new transition enters with the largest p so far. A
draw divides the sum into B equal strata and takes one point of each. The weights (N · P(i))^−β are divided by the
largest of the batch; N and the sum cancel out, and (smallest p^α of the batch / p_i^α)^β is left.

The sampler owns the priorities; the memory knows nothing of them. A withdrawn transition leaves the tree at once: the
memory notifies the sampler. Newly sampleable transitions enter at the next draw or update.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np

from redline.replay.layout import ReplayLayout
from redline.replay.memory import ReplayMemory
from redline.replay.sum_tree import DoubleArray, SumTree
from redline.types import Array, Draw, FloatArray, Handles, IntArray

FIRST_PRIORITY = 1.0  # of new transitions, until an update brings a larger one


class PrioritizedSampler:
    """Draws transitions in proportion to p^α, with replacement."""

    wants_priorities = True
    tree: SumTree  # p^α of the transitions in it, 0 elsewhere
    _maximum: float  # the largest p seen
    _first_lane: int
    _end: IntArray  # of each lane from the first: what is offered below this number is in the tree

    def __init__(self, memory: ReplayMemory, *, alpha: float = 0.6, epsilon: float = 1e-6) -> None:
        if not 0 < alpha <= 1:
            raise ValueError(f"alpha must lie above 0 and not above 1, got {alpha}: 0 would be the uniform sampler")
        if not 0 < epsilon < np.inf:
            raise ValueError(
                f"epsilon must be positive, got {epsilon}: a transition of priority 0 is never drawn again"
            )
        self._memory = memory
        self._alpha = alpha
        self._epsilon = epsilon
        self._start_afresh()
        memory.withdrawal_listeners.append(self._withdraw)

    @property
    def num_bytes(self) -> int:
        """Bytes of the tree and of what maps its leaves to transitions."""
        return self.tree.num_bytes + self._blocks.num_bytes

    def draw(self, rng: np.random.Generator, batch_size: int, *, beta: float = 1.0) -> Draw:
        """Draw `batch_size` rows; one call of the generator whatever the memory holds."""
        if not 0 <= beta <= 1:
            raise ValueError(f"beta must lie between 0 and 1, got {beta}")
        self._enter_new()
        if self.tree.total == 0:
            raise LookupError("no transition can be drawn yet: append more steps first")
        share = (np.arange(batch_size) + rng.random(batch_size)) / batch_size  # [B] one in each stratum
        leaves = self.tree.find(share * self.tree.total)
        scaled = self.tree.get(leaves)
        weight = (scaled.min() / scaled) ** beta
        return Draw(self._blocks.handles(leaves), weight.astype(np.float32), bounds=self._memory.bounds())

    def update(self, handles: Handles, priorities: Array) -> None:
        """Set new priorities: errors of either sign, or any other measure of surprise.

        Transitions that are no longer offered are skipped. Where one is named twice, the last value counts.
        """
        sizes = np.abs(np.asarray(priorities, np.float64)) + self._epsilon  # [B]
        if sizes.shape != handles.lane.shape:
            raise ValueError(f"{len(handles.lane)} handles need as many priorities, got {sizes.shape}")
        if not np.isfinite(sizes).all():
            raise ValueError("a priority is not finite: the loss has diverged")
        self._enter_new()
        rows = handles.lane - self._first_lane
        is_known = (rows >= 0) & (rows < len(self._end))
        rows = np.where(is_known, rows, 0)
        first, _ = self._memory.intervals()
        is_offered = is_known & (handles.number >= first[rows]) & (handles.number < self._end[rows])
        if not is_offered.any():
            return
        sizes = sizes[is_offered]
        self.tree.set(self._leaves(rows[is_offered], handles.number[is_offered]), sizes**self._alpha)
        self._maximum = max(self._maximum, float(sizes.max()))

    def priorities(self) -> FloatArray:
        """Return p of every transition that is offered, in the order of lanes and numbers."""
        self._follow_lanes()
        rows, numbers = _enumerate(*self._memory.intervals())
        priorities = np.full(len(rows), self._maximum, np.float32)
        has_entered = numbers < self._end[rows]
        scaled = self.tree.get(self._leaves(rows[has_entered], numbers[has_entered]))
        priorities[has_entered] = scaled ** (1 / self._alpha)
        return priorities

    # Saving

    def state(self) -> dict[str, Array]:
        """Return what `load_state` needs to continue with the same draws; saving changes nothing."""
        self._follow_lanes()
        first, _ = self._memory.intervals()
        size = np.maximum(self._end - first, 0)
        rows, numbers = _enumerate(first, size)
        slots = self._slots(rows, numbers)
        block, block_first = self._blocks.places(slots)
        return {
            "lane": np.arange(len(first)) + self._first_lane,
            "first": first.copy(),  # [lanes] transitions in the tree: first of a lane, and how many
            "size": size,
            "scaled": self.tree.get(self._blocks.leaves(slots, numbers)),  # p^α of each
            "block": block,  # [chunks] where they are in the tree
            "block_first": block_first,
            "maximum": np.array([self._maximum]),
            "alpha": np.array([self._alpha]),
        }

    def load_state(self, arrays: dict[str, Array]) -> None:
        """Load saved priorities, once the memory is restored; transitions without a saved priority count as new."""
        scaled, maximum = _check(arrays)
        if arrays["alpha"][0] != self._alpha:
            scaled = scaled ** (self._alpha / arrays["alpha"][0])
        self._start_afresh()
        self._maximum = maximum
        self._follow_lanes()
        saved_first, saved_size, saved_at = self._by_row(arrays)
        first, size = self._memory.intervals()
        end = np.where(saved_size > 0, np.minimum(saved_first + saved_size, first + size), 0)
        rows, numbers = _enumerate(first, np.maximum(end - first, 0))
        index = numbers - saved_first[rows]
        is_saved = index >= 0
        values = np.full(len(rows), maximum**self._alpha)
        values[is_saved] = scaled[(saved_at[rows] + index)[is_saved]]
        slots = self._slots(rows, numbers)
        if is_saved.all() and len(rows) == len(scaled) and self._blocks.fits(arrays["block"], slots):
            self._blocks.restore(slots, rows + self._first_lane, arrays["block"], arrays["block_first"])
        else:
            self._blocks.enter(slots, rows + self._first_lane, numbers)
        self.tree.set(self._blocks.leaves(slots, numbers), values)
        self._end = end

    def _by_row(self, arrays: dict[str, Array]) -> tuple[IntArray, IntArray, IntArray]:
        """Return first number, count and position of the saved priorities of each lane; count 0 if there are none."""
        found: IntArray = np.zeros((3, len(self._end)), np.int64)
        rows = arrays["lane"] - self._first_lane
        known = (rows >= 0) & (rows < len(self._end))
        at = np.cumsum(arrays["size"]) - arrays["size"]
        found[:, rows[known]] = np.stack([arrays["first"], arrays["size"], at])[:, known]
        return found[0], found[1], found[2]

    # Following the memory

    def _start_afresh(self) -> None:
        self._table = self._memory.table  # another one after a restore
        self._blocks = _LeafBlocks(self._memory.layout)
        self.tree = SumTree(self._blocks.num_leaves)
        self._maximum = FIRST_PRIORITY
        self._first_lane = self._table.first_lane
        self._end = np.zeros(0, np.int64)

    def _follow_lanes(self) -> None:
        table = self._memory.table
        if table is not self._table:
            self._start_afresh()
        gone, self._first_lane = table.first_lane - self._first_lane, table.first_lane
        if gone or len(table) != len(self._end):
            kept = self._end[gone:]
            self._end = np.concatenate([kept, np.zeros(len(table) - len(kept), np.int64)])

    def _enter_new(self) -> None:
        self._follow_lanes()
        first, size = self._memory.intervals()
        end = first + size
        start = np.maximum(self._end, first)
        count = np.maximum(end - start, 0)
        if not count.any():
            return
        rows, numbers = _enumerate(start, count)
        slots = self._slots(rows, numbers)
        self._blocks.enter(slots, rows + self._first_lane, numbers)
        self.tree.set(self._blocks.leaves(slots, numbers), self._maximum**self._alpha)
        self._end = np.where(count > 0, end, self._end)

    def _withdraw(self, lane: int, first: int, end: int) -> None:
        self._follow_lanes()
        row = lane - self._first_lane
        numbers = np.arange(first, min(end, int(self._end[row])))
        if not len(numbers):
            return
        slots = self._slots(np.full(len(numbers), row), numbers)
        self.tree.set(self._blocks.leaves(slots, numbers), 0.0)
        self._blocks.leave(slots)

    def _slots(self, rows: IntArray, numbers: IntArray) -> IntArray:
        table = self._memory.table
        return table.address(rows, table.frame_of.read(rows, numbers)) // self._memory.layout.frames_per_chunk

    def _leaves(self, rows: IntArray, numbers: IntArray) -> IntArray:
        return self._blocks.leaves(self._slots(rows, numbers), numbers)


class _LeafBlocks:
    """Which leaf belongs to which transition: a block of C leaves for each chunk in the tree.

    Memory addresses would not do: a restored memory puts its chunks elsewhere, and the order of the leaves decides what
    is drawn. Blocks depend only on what entered and left: the lowest free one is taken.
    """

    def __init__(self, layout: ReplayLayout) -> None:
        self._block_size = layout.frames_per_chunk
        self._num_blocks = layout.num_slots
        self.num_leaves = self._num_blocks * self._block_size
        self._of_slot: IntArray = np.full(layout.num_slots + 1, -1, np.int64)
        self._lane: IntArray = np.zeros(self._num_blocks, np.int64)
        self._first: IntArray = np.zeros(self._num_blocks, np.int64)  # number of the transition at the first leaf
        self._count: IntArray = np.zeros(self._num_blocks, np.int64)  # transitions in the tree
        self._released: list[int] = []  # a heap
        self._next = 0  # blocks from here on were never taken

    @property
    def num_bytes(self) -> int:
        """Bytes of all columns."""
        return sum(column.nbytes for column in (self._of_slot, self._lane, self._first, self._count))

    def leaves(self, slots: IntArray, numbers: IntArray) -> IntArray:
        """Return the leaves of transitions that have entered."""
        block = self._of_slot[slots]
        return block * self._block_size + numbers - self._first[block]

    def handles(self, leaves: IntArray) -> Handles:
        """Return the transitions at leaves."""
        block, rank = np.divmod(leaves, self._block_size)
        return Handles(lane=self._lane[block], number=self._first[block] + rank)

    def enter(self, slots: IntArray, lanes: IntArray, numbers: IntArray) -> None:
        """Make room for transitions, given in the order of lanes and numbers."""
        starts = _chunk_starts(slots)
        for i in starts[self._of_slot[slots[starts]] < 0].tolist():
            block = heappop(self._released) if self._released else self._next
            self._next = max(self._next, block + 1)
            self._of_slot[slots[i]] = block
            self._lane[block] = lanes[i]
            self._first[block] = numbers[i]
        np.add.at(self._count, self._of_slot[slots], 1)

    def leave(self, slots: IntArray) -> None:
        """Remove transitions of these slots, one for each time a slot is named."""
        blocks = self._of_slot[slots]
        np.subtract.at(self._count, blocks, 1)
        is_empty = self._count[blocks] == 0
        self._of_slot[slots[is_empty]] = -1
        for block in set(blocks[is_empty].tolist()):
            heappush(self._released, block)

    def places(self, slots: IntArray) -> tuple[IntArray, IntArray]:
        """Return, for each chunk, its block and the number at the block's first leaf."""
        block = self._of_slot[slots[_chunk_starts(slots)]]
        return block, self._first[block]

    def fits(self, block: IntArray, slots: IntArray) -> bool:
        """Tell whether chunks can be put where they were when these blocks were saved."""
        return len(block) == len(_chunk_starts(slots)) and int(block.max(initial=-1)) < self._num_blocks

    def restore(self, slots: IntArray, lanes: IntArray, block: IntArray, block_first: IntArray) -> None:
        """Put chunks where they were; nothing has entered yet."""
        starts = _chunk_starts(slots)
        self._of_slot[slots[starts]] = block
        self._lane[block] = lanes[starts]
        self._first[block] = block_first
        np.add.at(self._count, self._of_slot[slots], 1)
        self._next = int(block.max(initial=-1)) + 1
        self._released = np.flatnonzero(self._count[: self._next] == 0).tolist()
        heapify(self._released)


def _enumerate(first: IntArray, count: IntArray) -> tuple[IntArray, IntArray]:
    """Return row and number of the transitions of intervals, one interval after the other."""
    rows = np.repeat(np.arange(len(count)), count)
    before = np.cumsum(count) - count
    return rows, np.arange(len(rows)) + np.repeat(first - before, count)


def _chunk_starts(slots: IntArray) -> IntArray:
    """Return the positions at which another chunk begins."""
    return np.flatnonzero(np.diff(slots, prepend=-1))


def _check(arrays: dict[str, Array]) -> tuple[DoubleArray, float]:
    scaled, maximum = arrays["scaled"], float(arrays["maximum"][0])
    is_sound = (
        len(arrays["lane"]) == len(arrays["first"]) == len(arrays["size"])
        and arrays["size"].sum() == len(scaled)
        and len(arrays["block"]) == len(arrays["block_first"])
        and bool((np.isfinite(scaled) & (scaled > 0)).all())
        and 0 < maximum < np.inf
    )
    if not is_sound:
        raise ValueError("the saved priorities are damaged: they do not match each other")
    return scaled, maximum

"""A sum tree: weights at its leaves, and a search for the leaf at which their running sum reaches a value.

A node has 32 children, because a call of numpy costs as much for 32 numbers as for two: a million leaves are two levels
of nodes below the root, where a binary tree has twenty, and takes twice the memory. The root has up to 4,096 children
and keeps their running sums.

A parent is always computed from its children, never adjusted by a difference, so that no error builds up: the tree is
a function of its leaves, whatever the order in which they were set.
"""

from __future__ import annotations

import sys
from heapq import heapify, heappop, heappush
from math import nextafter

import numpy as np
import numpy.typing as npt

from redline.replay.layout import ReplayLayout
from redline.types import Handles, IntArray

DoubleArray = npt.NDArray[np.float64]

WIDTH_BITS = 5
WIDTH = 1 << WIDTH_BITS  # children of a node
MAX_ROOT_WIDTH = 4_096


class SumTree:
    """Weights that are finite and not negative; everything takes and returns arrays of leaves."""

    def __init__(self, num_leaves: int) -> None:
        if num_leaves < 1:
            raise ValueError(f"a sum tree needs a leaf at least, got {num_leaves}")
        self.num_leaves = num_leaves
        self.total = 0.0  # the sum of all leaves
        self._max_value = np.array([sys.float_info.max / (2 * num_leaves)])  # so that no sum is infinite
        self._levels = [_zeros(num_leaves)]  # leaves first, the children of the root last
        while len(self._levels[-1]) > MAX_ROOT_WIDTH:
            self._levels.append(_zeros(len(self._levels[-1]) // WIDTH))
        self._families = [level.reshape(-1, WIDTH) for level in self._levels[:-1]]  # [parents, children]
        self._running: DoubleArray = np.zeros(len(self._levels[-1]) + 1)  # sums of the root's children before each
        self._scratch = _Scratch(0)

    def get(self, leaves: IntArray) -> DoubleArray:
        """Return the values of leaves."""
        self._check_leaves(leaves)
        return self._levels[0].take(leaves)

    def set(self, leaves: IntArray, values: DoubleArray | float) -> None:
        """Set leaves and the sums above them; where a leaf is named twice, the last value counts."""
        if not len(leaves):
            return
        self._check_leaves(leaves)
        values = np.add(values, 0.0, dtype=np.float64)  # −0 becomes 0
        if not _all_within(values, self._max_value):
            raise ValueError(f"values must be finite, not negative and at most {self._max_value[0]:.3g}")
        self._levels[0][leaves] = values
        node = leaves
        for families, parents in zip(self._families, self._levels[1:], strict=True):
            if len(leaves) >= len(families):
                np.add.reduce(families, axis=1, out=parents[: len(families)])
            else:
                node = node >> WIDTH_BITS
                parents[node] = np.add.reduce(families.take(node, axis=0), axis=1)
        np.add.accumulate(self._levels[-1], out=self._running[1:])
        self.total = float(self._running[-1])

    def find(self, masses: DoubleArray) -> IntArray:
        """Return the leaves at which the running sum of all leaves passes `masses`, which lie in [0, total].

        A leaf of zero is never returned, whatever rounding makes of a mass; `total` gives the last that is not zero.
        """
        if self.total == 0:
            raise LookupError("every leaf is zero: set some before searching")
        left = np.add(masses, 0.0, dtype=np.float64)  # [B] a copy, with 0 for −0: what is not passed yet
        if not _all_within(left, self._running[-1:]):
            raise ValueError(f"masses must lie between 0 and {self.total:.6g}")
        # A mass below the sum of a family is passed by one of its running sums, first at a child that is not zero.
        # What is left of the mass may be too much for that child, by rounding: then it is made smaller.
        np.minimum(left, nextafter(self.total, 0.0), out=left)
        node: IntArray = self._running[1:].searchsorted(left, side="right")
        if self._scratch.count != len(left):
            self._scratch = _Scratch(len(left))
        family = self._scratch
        left_column = left[:, None]
        sums, at = self._running, node  # the sums that were passed are sums[at]
        for families in reversed(self._families):
            left -= sums.take(at)
            np.add.accumulate(families.take(node, axis=0), axis=1, out=family.through)
            np.minimum(left, (family.sum_bits - 1).view(np.float64), out=left)  # the next smaller double
            child = (family.through > left_column).argmax(axis=1)
            node = (node << WIDTH_BITS) + child
            sums, at = family.before, family.row_start + child
        return node

    def _check_leaves(self, leaves: IntArray) -> None:
        if len(leaves) and leaves.astype(np.uint64).max() >= self.num_leaves:  # negative ones become large
            raise IndexError(f"leaves must lie between 0 and {self.num_leaves - 1}")


class _Scratch:
    """Running sums of the families that `count` masses are in; kept, because the next batch is mostly of that size."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.before: DoubleArray = np.zeros((count, WIDTH + 1))  # [B, 1 + children] sums before each child, and of all
        self.through = self.before[:, 1:]  # [B, children] sums that include the child
        self.sum_bits = self.before.view(np.int64)[:, -1]  # [B]
        self.row_start = np.arange(count) * (WIDTH + 1)


def _zeros(at_least: int) -> DoubleArray:
    """Return whole families of zeros; those beyond what is needed are never set."""
    return np.zeros(-(-at_least // WIDTH) * WIDTH)


def _all_within(values: DoubleArray, limit: DoubleArray) -> bool:
    """Tell whether all values lie between 0 (not −0) and the limit [1]; NaN does not."""
    # doubles from 0 up are ordered as their bits are, and those of all others are larger if they have no sign
    return not values.size or bool(values.view(np.uint64).max() <= limit.view(np.uint64)[0])


class LeafBlocks:
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


def _chunk_starts(slots: IntArray) -> IntArray:
    """Return the positions at which another chunk begins."""
    return np.flatnonzero(np.diff(slots, prepend=-1))

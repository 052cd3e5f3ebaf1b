"""Which transitions an update learns from: uniform or prioritised.

Prioritised: transitions that surprised the learner are drawn more often (Schaul et al. 2016, the proportional variant).
P(i) = p_i^α / Σ p^α with p = |δ| + ε; a new transition enters with the largest p so far. A draw divides the sum into B
equal strata and takes one point of each. The weights (N · P(i))^−β are divided by the largest of the batch; N and the
sum cancel out, and (smallest p^α of the batch / p_i^α)^β is left.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np

from redline.errors import UserError, check_positive
from redline.replay.lane_table import Bounds
from redline.replay.memory import ReplayMemory
from redline.replay.sum_tree import DoubleArray, LeafBlocks, SumTree
from redline.schedules import Linear
from redline.types import Array, Draw, FloatArray, Handles, IntArray

FIRST_PRIORITY = 1.0  # of new transitions, until an update brings a larger one


class Sampler(Protocol):
    """Draws transitions; may adapt to their priorities."""

    wants_priorities: bool  # whether `update` has any effect

    def draw(self, rng: np.random.Generator, batch_size: int, *, beta: float = 1.0) -> Draw:
        """Draw rows; `beta` is how fully their weights correct for the choice."""

    def update(self, handles: Handles, priorities: Array) -> None:
        """Set how surprising each transition was."""

    def state(self) -> dict[str, Array]:
        """Return what `load_state` needs to continue with the same draws."""

    def load_state(self, arrays: dict[str, Array]) -> None:
        """Load a saved state, once the memory is restored."""


class UniformSampler:
    """Draws every sampleable transition with the same probability, with replacement."""

    wants_priorities = False

    def __init__(self, memory: ReplayMemory) -> None:
        self._memory = memory
        self._bounds: Bounds | None = None

    def draw(self, rng: np.random.Generator, batch_size: int, *, beta: float = 1.0) -> Draw:
        """Draw `batch_size` rows of weight 1; one call of the generator whatever the memory holds."""
        bounds = self._memory.bounds()
        if bounds is not self._bounds:
            self._bounds = bounds
            self._ends = np.cumsum(bounds.size)
            self._base = bounds.first - (self._ends - bounds.size)
        total = int(self._ends[-1])
        if total == 0:
            raise LookupError("no transition can be drawn yet: append more steps first")
        position = (rng.random(batch_size) * total).astype(np.int64)  # integers() takes twice as long
        row = self._ends.searchsorted(position, side="right")
        handles = Handles(lane=row + self._memory.table.first_lane, number=self._base[row] + position)
        return Draw(handles, weight=np.ones(batch_size, np.float32), bounds=bounds)

    def update(self, handles: Handles, priorities: Array) -> None:
        """Ignore priorities: all transitions are alike."""

    def state(self) -> dict[str, Array]:
        """Return nothing: the memory holds all state."""
        return {}

    def load_state(self, arrays: dict[str, Array]) -> None:
        """Load nothing."""


class PrioritizedSampler:
    """Draws transitions in proportion to p^α, with replacement.

    It owns the priorities; the memory knows nothing of them. A withdrawn transition leaves the tree at once: the memory
    notifies the sampler. Newly sampleable transitions enter at the next draw or update.
    """

    wants_priorities = True
    tree: SumTree  # p^α of the transitions in it, 0 elsewhere
    _maximum: float  # the largest p seen
    _first_lane: int
    _end: IntArray  # of each lane from the first: what is offered below this number is in the tree

    def __init__(self, memory: ReplayMemory, *, alpha: float = 0.6, epsilon: float = 1e-6) -> None:
        if not 0 < alpha <= 1:
            raise ValueError(f"alpha must lie above 0 and not above 1, got {alpha}: 0 would be the uniform sampler")
        if not 0 < epsilon < np.inf:
            raise ValueError(f"epsilon must be above 0 and finite, got {epsilon}: at 0 a row may never be drawn again")
        self._memory = memory
        self._alpha = alpha
        self._epsilon = epsilon
        self._start_afresh()
        memory.withdrawal_listeners.append(self._withdraw)

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
        self._blocks = LeafBlocks(self._memory.layout)
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


def _enumerate(first: IntArray, count: IntArray) -> tuple[IntArray, IntArray]:
    """Return row and number of the transitions of intervals, one interval after the other."""
    rows = np.repeat(np.arange(len(count)), count)
    before = np.cumsum(count) - count
    return rows, np.arange(len(rows)) + np.repeat(first - before, count)


def _check(arrays: dict[str, Array]) -> tuple[DoubleArray, float]:
    scaled, maximum = arrays["scaled"], float(arrays["maximum"][0])
    is_sound = (
        len(arrays["lane"]) == len(arrays["first"]) == len(arrays["size"])
        and arrays["size"].sum() == len(scaled)
        and len(arrays["block"]) == len(arrays["block_first"])
        and bool((np.isfinite(scaled) & (scaled > 0)).all())
        and 0 < maximum < np.inf
        and 0 < arrays["alpha"][0] <= 1
    )
    if not is_sound:
        raise ValueError("the saved priorities are damaged: they do not match each other")
    return scaled, maximum


@runtime_checkable
class Sampling(Protocol):
    """Which transitions an update learns from."""

    def build(self, memory: ReplayMemory) -> Sampler:
        """Return the sampler of a memory."""

    def beta_at(self, steps: int) -> float:
        """Return how fully weights correct for the choice after `steps` steps."""

    def draws_late(self) -> int:
        """Return how many draws priorities come late."""
        return 0


@dataclass(frozen=True)
class Uniform(Sampling):
    """All transitions with the same probability."""

    def build(self, memory: ReplayMemory) -> Sampler:
        return UniformSampler(memory)

    def beta_at(self, steps: int) -> float:
        return 1.0  # all weights are 1 anyway


@dataclass(frozen=True)
class Prioritized(Sampling):
    """In proportion to |δ|^α (Schaul et al. 2016, arXiv:1511.05952, the proportional variant)."""

    alpha: float = 0.6
    """How much priorities matter: 1 fully; towards 0 sampling becomes uniform."""
    beta: Linear = field(default_factory=lambda: Linear(0.4, 1.0, over_steps=12_500_000))
    """How fully importance weights correct for the choice; 1 from 50 M frames on."""
    epsilon: float = 1e-6
    """Added to every |δ|, so that each can be drawn again."""
    late: bool = False
    """Let new priorities count one draw later: a GPU then computes on while they are copied."""

    def __post_init__(self) -> None:
        if not 0.0 < self.alpha <= 1.0:
            raise UserError(f"sample.alpha is {self.alpha}: use a number above 0, up to 1; 0 is --sample uniform")
        check_positive("sample.epsilon", self.epsilon)
        if not (0.0 <= self.beta.start <= 1.0 and 0.0 <= self.beta.end <= 1.0):
            raise UserError(f"sample.beta goes from {self.beta.start} to {self.beta.end}: use numbers from 0 to 1")

    def build(self, memory: ReplayMemory) -> Sampler:
        return PrioritizedSampler(memory, alpha=self.alpha, epsilon=self.epsilon)

    def beta_at(self, steps: int) -> float:
        return self.beta.at(steps)

    def draws_late(self) -> int:
        return int(self.late)

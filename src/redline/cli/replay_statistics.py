"""What a replay memory holds, in numbers: fill, endings, rewards and actions of every transition that is kept.

Frames are never touched, so the cost is a few bytes per transition.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from redline.replay import ReplayMemory
from redline.replay.chunks import EPISODE_ENDS, RETURN_ENDS
from redline.types import Array, FloatArray, IntArray

MAX_DISTINCT_REWARDS = 16


@dataclass(frozen=True)
class Kept:
    """All transitions that are kept, lane after lane, the oldest of each lane first."""

    lane: IntArray  # [T]
    action: Array  # [T] int32
    reward: Array  # [T] float32, unclipped
    step: Array  # [T] int32, in the episode
    flags: Array  # [T] uint8


@dataclass(frozen=True)
class Fill:
    """How much is kept, and where it came from."""

    transitions: int
    capacity: int
    sampleable: int
    lanes: int  # that hold something
    lanes_being_written: int


@dataclass(frozen=True)
class Storage:
    """What a transition takes in the run's memory."""

    codec: str
    frames_per_chunk: int
    frame_bytes_per_transition: float | None  # as stored, in chunks that are sealed; None before the first
    metadata_bytes_per_transition: float  # all else, shared by as many as the capacity allows
    bytes_per_transition: float | None  # both


@dataclass(frozen=True)
class Endings:
    """Episodes that ended among the transitions kept, and how."""

    episodes: int
    terminated: int
    truncated: int  # by a limit, or cut by a restart
    lives_lost: int  # within an episode, which goes on: terminal for learning
    mean_length_steps: float | None
    whole_episodes: int  # kept from their first step to their last
    mean_return: float | None  # of those, unclipped


@dataclass(frozen=True)
class Rewards:
    """Rewards as the env gave them."""

    min: float
    mean: float
    max: float
    nonzero_share: float
    counts: dict[str, int] | None  # value → times, where the values are few


@dataclass(frozen=True)
class Priorities:
    """Priorities of the transitions that can be drawn."""

    min: float
    mean: float
    max: float


@dataclass(frozen=True)
class ReplayStatistics:
    """Everything at once; what is drawn from nothing is None."""

    fill: Fill
    storage: Storage
    endings: Endings
    rewards: Rewards | None
    actions: list[int]  # times each was taken
    step_range: tuple[int, int] | None  # lowest and highest step in an episode
    priorities: Priorities | None  # None if rows are drawn uniformly

    def to_json(self) -> dict[str, Any]:
        """Return plain data."""
        return asdict(self)


def replay_statistics(
    memory: ReplayMemory, *, num_actions: int, codec: str, priorities: FloatArray | None = None
) -> ReplayStatistics:
    """Count what a memory holds; `codec` is the run's own."""
    kept = read_kept(memory)
    fill = Fill(
        transitions=len(kept.lane),
        capacity=memory.layout.capacity,
        sampleable=memory.num_sampleable,
        lanes=len(np.unique(kept.lane)),
        lanes_being_written=len(memory.lanes),
    )
    is_empty = len(kept.lane) == 0
    return ReplayStatistics(
        fill=fill,
        storage=describe_storage(memory, codec),
        endings=count_endings(kept),
        rewards=None if is_empty else describe_rewards(kept.reward),
        actions=np.bincount(kept.action, minlength=num_actions).tolist(),
        step_range=None if is_empty else (int(kept.step.min()), int(kept.step.max())),
        priorities=None if priorities is None or not len(priorities) else describe_priorities(priorities),
    )


def read_kept(memory: ReplayMemory) -> Kept:
    """Copy what is noted beside the frames."""
    table, pool = memory.table, memory.pool
    count = table.num_transitions - table.first_number  # [L]
    rows: IntArray = np.repeat(np.arange(len(table)), count)  # [T]
    starts = np.cumsum(count) - count
    numbers = np.arange(len(rows)) - np.repeat(starts - table.first_number, count)
    address = table.address(rows, table.frame_of.read(rows, numbers))
    return Kept(
        lane=rows + table.first_lane,
        action=pool.action[address],
        reward=pool.reward[address],
        step=pool.step[address],
        flags=pool.flags[address],
    )


def describe_storage(memory: ReplayMemory, codec: str) -> Storage:
    """Say what the chunks that are complete take, as a memory with this codec keeps them."""
    layout, pool = memory.layout, memory.pool
    slots = memory.retention.order
    num_transitions = int(pool.num_transitions[slots].sum())
    if layout.is_packed and codec != "raw":
        num_bytes = sum(memory.frames.sealed_bytes(slot) for slot in slots)
    else:
        num_bytes = int(pool.num_frames[slots].sum()) * layout.frame_bytes
    frames = num_bytes / num_transitions if num_transitions else None
    metadata = layout.metadata_bytes / layout.capacity
    return Storage(
        codec=codec,
        frames_per_chunk=layout.frames_per_chunk,
        frame_bytes_per_transition=frames,
        metadata_bytes_per_transition=metadata,
        bytes_per_transition=None if frames is None else frames + metadata,
    )


def describe_priorities(priorities: FloatArray) -> Priorities:
    """Describe one priority or more."""
    return Priorities(
        min=float(priorities.min()), mean=float(priorities.mean(dtype=np.float64)), max=float(priorities.max())
    )


def count_endings(kept: Kept) -> Endings:
    """Count the episodes that end among the transitions kept."""
    ends = kept.flags & EPISODE_ENDS != 0
    return_ends = kept.flags & RETURN_ENDS != 0
    last = np.flatnonzero(ends)
    length = kept.step[last].astype(np.int64) + 1
    first = last + 1 - length  # negative, or in another lane: the beginning is no longer kept
    is_whole = first >= 0
    is_whole &= kept.lane[np.maximum(first, 0)] == kept.lane[last]
    total = np.concatenate([[0.0], np.cumsum(kept.reward, dtype=np.float64)])
    returns = (total[last + 1] - total[np.maximum(first, 0)])[is_whole]
    return Endings(
        episodes=len(last),
        terminated=int(np.count_nonzero(ends & return_ends)),
        truncated=int(np.count_nonzero(ends & ~return_ends)),
        lives_lost=int(np.count_nonzero(return_ends & ~ends)),
        mean_length_steps=float(length.mean()) if len(last) else None,
        whole_episodes=int(np.count_nonzero(is_whole)),
        mean_return=float(returns.mean()) if len(returns) else None,
    )


def describe_rewards(reward: Array) -> Rewards:
    """Describe one reward or more."""
    values, times = np.unique(reward, return_counts=True)
    is_few = len(values) <= MAX_DISTINCT_REWARDS
    return Rewards(
        min=float(values[0]),
        mean=float(reward.mean(dtype=np.float64)),
        max=float(values[-1]),
        nonzero_share=float(np.count_nonzero(reward) / len(reward)),
        counts={f"{value:g}": int(count) for value, count in zip(values, times, strict=True)} if is_few else None,
    )


def name_ending(flags: int) -> str:
    """Say in a word how a transition ended, empty if the episode went on."""
    if flags & EPISODE_ENDS:
        return "terminated" if flags & RETURN_ENDS else "truncated"
    return "life lost" if flags & RETURN_ENDS else ""

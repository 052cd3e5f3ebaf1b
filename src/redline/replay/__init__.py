"""Experience: transitions and rollouts, stored for the learner to draw from."""

from redline.replay.backing import ReplayError
from redline.replay.batches import BatchBuffers, BatchLoader, SequenceBuffers, gather, with_burn_in
from redline.replay.layout import ReplayConfig, ReplayLayout, check_fits, largest_capacity, with_budget
from redline.replay.memory import ReplayMemory
from redline.replay.rollout import RolloutBuffer
from redline.replay.sampler import PrioritizedSampler, Sampler, UniformSampler
from redline.replay.shared_lanes import (
    BY_EPISODE,
    IN_CHUNKS,
    LOCKSTEP,
    STEP_BY_STEP,
    LaneWriter,
    PushRule,
    SharedLanes,
)
from redline.replay.snapshot import ReplaySnapshot, restore_memory, take_snapshot, without_damage
from redline.runs.host import available_bytes

__all__ = [
    "BY_EPISODE",
    "IN_CHUNKS",
    "LOCKSTEP",
    "STEP_BY_STEP",
    "BatchBuffers",
    "BatchLoader",
    "LaneWriter",
    "PrioritizedSampler",
    "PushRule",
    "ReplayConfig",
    "ReplayError",
    "ReplayLayout",
    "ReplayMemory",
    "ReplaySnapshot",
    "RolloutBuffer",
    "Sampler",
    "SequenceBuffers",
    "SharedLanes",
    "UniformSampler",
    "available_bytes",
    "check_fits",
    "gather",
    "largest_capacity",
    "restore_memory",
    "take_snapshot",
    "with_budget",
    "with_burn_in",
    "without_damage",
]

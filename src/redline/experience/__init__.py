"""Experience: transitions and rollouts, stored for the learner to draw from."""

from redline.experience.backing import ReplayError, available_bytes
from redline.experience.batches import BatchBuffers, SequenceBuffers, gather, with_burn_in
from redline.experience.layout import ReplayLayout
from redline.experience.loader import BatchLoader
from redline.experience.memory import ReplayMemory
from redline.experience.prioritized import PrioritizedSampler
from redline.experience.rollout import RolloutBuffer
from redline.experience.sampler import Sampler, UniformSampler
from redline.experience.shared_lanes import (
    BY_EPISODE,
    IN_CHUNKS,
    LOCKSTEP,
    STEP_BY_STEP,
    LaneWriter,
    PushRule,
    SharedLanes,
)
from redline.experience.sizing import ReplayConfig, check_fits, largest_capacity, with_budget
from redline.experience.snapshot import ReplaySnapshot, restore_memory, take_snapshot, without_damage

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

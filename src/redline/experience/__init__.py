"""Experience: what the actors saw, kept so that the learner can draw from it."""

from redline.experience.backing import ReplayError
from redline.experience.budget import check_fits, with_budget
from redline.experience.config import ReplayConfig
from redline.experience.free_memory import available_bytes
from redline.experience.gather import BatchBuffers, gather
from redline.experience.layout import ReplayLayout
from redline.experience.loader import BatchLoader
from redline.experience.memory import ReplayMemory
from redline.experience.prioritized import PrioritizedSampler
from redline.experience.rollout import RolloutBuffer
from redline.experience.sampler import Sampler, UniformSampler
from redline.experience.sequences import SequenceBuffers, gather_sequences, with_burn_in
from redline.experience.shared_lanes import (
    BY_EPISODE,
    IN_CHUNKS,
    LOCKSTEP,
    STEP_BY_STEP,
    LaneWriter,
    PushRule,
    SharedLanes,
)
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
    "gather_sequences",
    "restore_memory",
    "take_snapshot",
    "with_budget",
    "with_burn_in",
    "without_damage",
]

"""Experience: what the actors saw, kept so that the learner can draw from it."""

from redline.experience.budget import available_bytes, check_fits
from redline.experience.config import ReplayConfig
from redline.experience.gather import BatchBuffers, gather
from redline.experience.layout import ReplayLayout
from redline.experience.memory import ReplayMemory
from redline.experience.sampler import UniformSampler
from redline.experience.snapshot import ReplaySnapshot, restore_memory, take_snapshot

__all__ = [
    "BatchBuffers",
    "ReplayConfig",
    "ReplayLayout",
    "ReplayMemory",
    "ReplaySnapshot",
    "UniformSampler",
    "available_bytes",
    "check_fits",
    "gather",
    "restore_memory",
    "take_snapshot",
]

"""What the processes of a run share: the status, the weights, and the rings of the lanes.

An actor also hands its episodes to the learner through the rings, as letters of bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Self

import numpy as np
import torch

from redline.envs.atari import SEED_INTERVAL_STEPS
from redline.episodes.episode import num_checks
from redline.errors import UserError
from redline.replay import available_bytes
from redline.replay.backing import MARGIN_BYTES, SharedBlock
from redline.replay.shared_lanes import BY_EPISODE, IN_CHUNKS, LOCKSTEP, STEP_BY_STEP, UNPACED, PushRule, SharedLanes
from redline.runtime.actor import Episode
from redline.runtime.config import Job
from redline.runtime.processes.shared_status import FIRST_ACTOR, SharedStatus
from redline.types import Array, EnvSpec
from redline.units import size

RECORD_BYTES = 64  # beside the frame, at most
STEP_RULES = {"lockstep": LOCKSTEP, "held": STEP_BY_STEP, "free": UNPACED}
SLOTS = 3  # versions of the weights
LARGEST_BYTES = 1024**2  # of a letter: holds Atari's longest episode with the values of all 18 actions
SHORT_BYTES = 1_024  # holds a short episode, or a long one's header and description

_LETTER = struct.Struct("<dqqq?")  # return, length, key seed, key offset, whether it was truncated; the trace follows

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Version:
    """Which weights these are."""

    number: int
    updates: int  # that made them
    steps: int  # of the run when they were published


class SharedWeights:
    """The newest weights of a network, in shared memory; writer and readers never wait for each other.

    Versions go round in a few slots. A reader copies the newest, and copies again if the writer has come round to its
    slot meanwhile. A writer that dies leaves the earlier versions as they were.
    """

    def __init__(self, example: Tensors, *, readers: int) -> None:
        num_bytes = sum(_padded(tensor) for tensor in example.values())
        fields = {
            "newest": ((8,), "int64"),
            "wanted": ((readers, 8), "int64"),
            "facts": ((SLOTS, 2), "int64"),
            "data": ((SLOTS, num_bytes), "uint8"),
        }
        self._map(SharedBlock("redline-weights", fields))

    def _map(self, block: SharedBlock) -> None:
        self._block = block
        self._newest: Array = block["newest"]
        self._wanted: Array = block["wanted"][:, 0]  # [readers] the version that a reader asks for
        self._facts, self._data = block["facts"], block["data"]

    def __getstate__(self) -> SharedBlock:
        return self._block

    def __setstate__(self, block: SharedBlock) -> None:
        self._map(block)

    @property
    def number(self) -> int:
        """Number of the newest version; 0 before the first."""
        return int(self._newest[0])

    @property
    def is_wanted(self) -> bool:
        """Whether a reader asks for a newer version."""
        return bool(self._wanted.max() > self.number)

    def ask(self, reader: int) -> None:
        """Ask for a newer version."""
        self._wanted[reader] = self.number + 1

    def publish(self, weights: Tensors, *, updates: int, steps: int) -> None:
        """Make these the newest version."""
        number = self.number + 1
        for view, value in zip(self._views(number % SLOTS, weights), weights.values(), strict=True):
            view.copy_(value)
        self._facts[number % SLOTS] = updates, steps
        self._newest[0] = number  # written last: the version is complete

    def read(self, into: Tensors) -> Version:
        """Copy the newest version into tensors of the same shapes."""
        while True:
            number = self.number
            for view, target in zip(self._views(number % SLOTS, into), into.values(), strict=True):
                target.copy_(view)
            updates, steps = self._facts[number % SLOTS].tolist()
            if self.number < number + SLOTS - 1:  # else the slot may have been overwritten meanwhile
                return Version(number, updates, steps)

    def _views(self, slot: int, like: Tensors) -> list[torch.Tensor]:
        views, start = [], 0
        for tensor in like.values():
            part = torch.from_numpy(self._data[slot, start : start + tensor.nbytes])
            views.append(part.view(tensor.dtype).view(tensor.shape))
            start += _padded(tensor)
        return views


def _padded(tensor: torch.Tensor) -> int:
    return -(-tensor.nbytes // 64) * 64


# Rings and the letters that go through them


def encode_letter(episode: Episode) -> bytes:
    """Return an episode as bytes; its lane is the ring's."""
    numbers = episode.total_reward, episode.length_steps, episode.reset_seed, episode.seed_offset_steps
    return _LETTER.pack(*numbers, episode.is_truncated) + (episode.trace or b"")


def decode_letter(letter: bytes, lane: int) -> Episode:
    """Return the episode of a letter by `encode_letter`."""
    total, length_steps, reset_seed, seed_offset_steps, is_truncated = _LETTER.unpack_from(letter)
    trace = letter[_LETTER.size :] or None
    return Episode(lane, total, length_steps, reset_seed, seed_offset_steps, trace, is_truncated)


def mail_bytes(job: Job, spec: EnvSpec, *, depth: int) -> int:
    """Return the size of a lane's mailbox: two of the largest letters, or the short episodes of a full ring."""
    if job.recording.is_off:
        return 2 * depth * _LETTER.size
    longest = -(-job.env.max_episode_frames // spec.frames_per_step)
    # a record holds the actions since the record before it, or since the key
    actions = longest if job.recording.record == "all" else SEED_INTERVAL_STEPS + longest
    packed = actions * (1 if spec.num_actions <= 256 else 4)
    if job.recording.record_values:
        packed += longest * spec.num_actions * 2
    packed += packed // 1_000  # zlib makes what it can't compress a little larger
    largest = min(SHORT_BYTES + 8 * num_checks(longest) + packed, LARGEST_BYTES)
    return 2 * max(largest, depth // 2 * SHORT_BYTES)


def check_rings(job: Job, spec: EnvSpec) -> None:
    """Refuse rings that the machine has no room for, before they are reserved."""
    record_bytes = prod(spec.frame_shape) * np.dtype(spec.frame_dtype).itemsize + RECORD_BYTES
    depth = _push_rule(job).depth
    needed = job.num_envs * (depth * record_bytes + mail_bytes(job, spec, depth=depth))
    if needed > available_bytes() - MARGIN_BYTES:
        raise UserError(
            f"the rings of {job.num_envs} envs need {size(needed)} with --push {job.push}, "
            f"{size(available_bytes())} is free: use --push step, fewer envs, or --record off"
        )


def _push_rule(job: Job) -> PushRule:
    if job.push == "step":
        return STEP_RULES[job.pacing]
    return IN_CHUNKS if job.push == "chunk" else BY_EPISODE


@dataclass(frozen=True)
class SharedParts:
    """Memory without a name, which the kernel frees with the last process that maps it."""

    status: SharedStatus
    lanes: SharedLanes
    weights: SharedWeights

    @classmethod
    def for_job(cls, job: Job, spec: EnvSpec) -> Self:
        """Make the shared memory for a resolved job."""
        rule = _push_rule(job)
        example = job.algorithm.build_network(spec, torch.Generator().manual_seed(0)).state_dict()
        return cls(
            status=SharedStatus(job.actors),
            lanes=SharedLanes(
                job.num_envs,
                spec.frame_shape,
                spec.frame_dtype,
                rule=rule,
                mail_bytes=mail_bytes(job, spec, depth=rule.depth),
            ),
            weights=SharedWeights(example, readers=FIRST_ACTOR + job.actors),
        )

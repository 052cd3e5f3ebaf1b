"""What the processes of a run share: the status, the rings of the lanes and the weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Self

import numpy as np
import torch

from redline.errors import UserError
from redline.replay import available_bytes
from redline.replay.backing import MARGIN_BYTES, SharedBlock
from redline.replay.shared_lanes import (
    BY_EPISODE,
    IN_CHUNKS,
    LOCKSTEP,
    STEP_BY_STEP,
    UNPACED,
    PushRule,
    SharedLanes,
)
from redline.runtime.config import Job
from redline.runtime.processes.messages import mail_bytes
from redline.runtime.processes.shared_status import FIRST_ACTOR, SharedStatus
from redline.types import Array, EnvSpec
from redline.units import size

RECORD_BYTES = 64  # beside the frame, at most
STEP_RULES = {"lockstep": LOCKSTEP, "held": STEP_BY_STEP, "free": UNPACED}
SLOTS = 3  # versions of the weights

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
            size = tensor.numel() * tensor.element_size()
            part = self._data[slot, start : start + size].view(_numpy_dtype(tensor))
            views.append(torch.from_numpy(part).view(tensor.shape))
            start += _padded(tensor)
        return views


def _padded(tensor: torch.Tensor) -> int:
    return -(-tensor.numel() * tensor.element_size() // 64) * 64


def _numpy_dtype(tensor: torch.Tensor) -> np.dtype[np.generic]:
    dtype: np.dtype[np.generic] = torch.empty(0, dtype=tensor.dtype).numpy().dtype
    return dtype


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

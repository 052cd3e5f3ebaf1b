"""What the processes of a run share: the board, the rings of the lanes and the weights."""

from dataclasses import dataclass
from math import prod
from typing import Self

import numpy as np
import torch

from redline.errors import UserError
from redline.experience import available_bytes
from redline.experience.backing import MARGIN_BYTES
from redline.experience.shared_lanes import (
    BY_EPISODE,
    IN_CHUNKS,
    LOCKSTEP,
    STEP_BY_STEP,
    UNPACED,
    PushRule,
    SharedLanes,
)
from redline.runtime.job import Job
from redline.runtime.processes.board import FIRST_ACTOR, Board
from redline.runtime.processes.letters import mail_bytes
from redline.runtime.processes.shared_weights import SharedWeights
from redline.types import EnvSpec
from redline.units import size

RECORD_BYTES = 64  # beside the frame, at most
STEP_RULES = {"lockstep": LOCKSTEP, "held": STEP_BY_STEP, "free": UNPACED}


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

    board: Board
    lanes: SharedLanes
    weights: SharedWeights

    @classmethod
    def for_job(cls, job: Job, spec: EnvSpec) -> Self:
        """Make what the processes of a settled job need."""
        rule = _push_rule(job)
        example = job.algorithm.build_network(spec, torch.Generator().manual_seed(0)).state_dict()
        return cls(
            board=Board(job.actors),
            lanes=SharedLanes(
                job.num_envs,
                spec.frame_shape,
                spec.frame_dtype,
                rule=rule,
                mail_bytes=mail_bytes(job, spec, depth=rule.depth),
            ),
            weights=SharedWeights(example, readers=FIRST_ACTOR + job.actors),
        )

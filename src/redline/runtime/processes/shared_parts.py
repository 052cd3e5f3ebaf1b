"""What the processes of a run share: the board, the rings of the lanes and the weights."""

from dataclasses import dataclass
from typing import Self

import torch

from redline.experience.shared_lanes import BY_EPISODE, IN_CHUNKS, LOCKSTEP, STEP_BY_STEP, SharedLanes
from redline.runtime.job import Job
from redline.runtime.processes.board import FIRST_ACTOR, Board
from redline.runtime.processes.shared_weights import SharedWeights
from redline.types import EnvSpec

PUSH_RULES = {"step": STEP_BY_STEP, "chunk": IN_CHUNKS, "episode": BY_EPISODE}


@dataclass(frozen=True)
class SharedParts:
    """Memory without a name, which the kernel frees with the last process that maps it."""

    board: Board
    lanes: SharedLanes
    weights: SharedWeights

    @classmethod
    def for_job(cls, job: Job, spec: EnvSpec) -> Self:
        """Make what the processes of a settled job need."""
        rule = LOCKSTEP if job.pacing == "lockstep" else PUSH_RULES[job.push]
        example = job.algorithm.build_network(spec, torch.Generator().manual_seed(0)).state_dict()
        return cls(
            board=Board(job.actors),
            lanes=SharedLanes(job.num_envs, spec.frame_shape, spec.frame_dtype, rule=rule),
            weights=SharedWeights(example, readers=FIRST_ACTOR + job.actors),
        )

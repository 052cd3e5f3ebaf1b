"""What must be known of a job to read its costs: what runs beside what, and what a cost includes."""

from __future__ import annotations

from redline.envs.atari_games import find_game
from redline.runtime.config import Job


def can_overlap(job: Job) -> bool:
    """Tell whether envs step while the learner learns."""
    return job.algorithm.replay is not None and find_game(job.env.id) is not None


def what_runs_beside_what(job: Job) -> str:
    """Say what goes on at the same time in this job."""
    replay = job.algorithm.replay
    if replay is None:
        return "Nothing runs beside the envs: a full rollout is learnt from before they step again."
    if can_overlap(job):
        said = "The envs step while batches are made and learnt from."
    else:
        said = "Nothing runs beside the envs: they step here, when what is due was learnt."
    gathers = f" A thread gathers batches beside the learner (--replay.prefetch {replay.prefetch})."
    return said + gathers if replay.prefetch else said


def remarks(job: Job, *, keeps_features: bool) -> list[str]:
    """Say what the costs of this job include, and what is missing from them."""
    nested = (
        "The learner's parts are taken away one after the other: first the optimiser, then the backward pass too, then "
        "forward passes and loss too. So they sum to the learner"
    )
    if can_overlap(job):
        nested += ", and what hides behind the envs is missing from the forward passes, the last to go"
    said = [f"{nested}."]
    if job.algorithm.optimizer.max_norm() is not None:
        said.append("The backward pass includes the clipping of its gradients.")
    if keeps_features:
        said.append(
            "The learner goes on from the forward pass of acting. Where acting is left out it makes one of its own, so "
            "acting's cost is net of that pass."
        )
    said.append("Records went to a temporary folder, not to --log-dir: on a slower disk they cost more.")
    return said

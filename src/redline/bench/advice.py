"""Flags that help against a bottleneck, and remarks that are needed to read the costs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from redline.algorithms.q_learning import QLearning
from redline.bench.costs import ENV_AND_LEARNER, LEARNER_PARTS
from redline.envs.atari_games import find_game
from redline.errors import UserError
from redline.networks import Nature
from redline.replay.sampler import Prioritized
from redline.runs.host import usable_cores
from redline.runtime.config import Job, flag_of, from_settings
from redline.runtime.resolve import check_topology, place_roles, resolve_roles

GOOD_BATCH = 128  # beyond this many rows, a CPU's cache no longer holds an update
MOST_ENVS = 64
LEARNER = (*LEARNER_PARTS, ENV_AND_LEARNER)  # a cheaper learner leaves cores for the envs beside it
CHANGES_LEARNING = "changes what is learnt, so compare the returns"


class Remedy(NamedTuple):
    """A setting that may help."""

    parts: tuple[str, ...]  # where these are slow
    key: str
    value: Any
    why: str


def advise(job: Job, *parts: str | None, asked: Job) -> list[dict[str, str]]:
    """Return the settings that may help where these parts of a resolved job cost most, the likeliest first.

    A profile may resolve the job that the user `asked` for in another way; nothing is advised that this job can't have.
    """
    known = list(remedies(job))
    found = {remedy[1:3]: remedy for part in parts for remedy in known if part in remedy.parts}
    return [
        {"flag": f"{flag_of(key)} {f'{value:g}' if isinstance(value, float) else value}", "why": why}
        for _, key, value, why in found.values()
        if _is_possible(asked, key, value)
    ]


def _is_possible(asked: Job, key: str, value: Any) -> bool:
    role, _, name = key.rpartition(".")
    try:
        job = from_settings(asked, {role: {name: value}} if role else {name: value})
        check_topology(job)
        resolve_roles(place_roles(job), is_image=False)
    except UserError:
        return False
    return job != asked


def remedies(job: Job) -> Iterator[Remedy]:
    """Yield what would change something in a resolved job, the likeliest first."""
    algorithm, cores = job.algorithm, usable_cores()
    if job.learner.device == "cpu" and torch.cuda.is_available():
        yield Remedy((*LEARNER, "acting"), "device", "cuda", "a GPU is there, and the network is computed on the CPU")
    if not algorithm.network.reads_vectors() and job.learner.threads < cores:
        why = "the learner uses fewer threads than there are cores"
        yield Remedy(("forward", "backward"), "learner.threads", cores, why)
    size, rollout_steps = algorithm.batch_size, algorithm.paces().get("rollout_steps", 0)
    if algorithm.replay is not None and 4 * size <= GOOD_BATCH:
        why = f"fewer and larger updates at the same replay ratio: each row costs less; {CHANGES_LEARNING}"
        yield Remedy(LEARNER, "batch_size", 4 * size, why)
    if 2 * size <= rollout_steps * job.num_envs:
        why = f"half as many updates of twice the rows; {CHANGES_LEARNING}"
        yield Remedy(("optimiser",), "batch_size", 2 * size, why)
    smaller = f"the 2013 network needs a third of the arithmetic; {CHANGES_LEARNING}"
    if isinstance(algorithm.network, Nature):
        yield Remedy(("forward", "backward", ENV_AND_LEARNER), "network", "small", smaller)
    yield from _remedies_of_sampling(job)
    yield from _remedies_of_playing(job)
    if isinstance(algorithm.network, Nature):
        yield Remedy(("acting",), "network", "small", smaller)
    if job.monitor.hz:
        yield Remedy(("records",), "monitor.hz", 0.0, "without the hardware monitor")


def _remedies_of_sampling(job: Job) -> Iterator[Remedy]:
    algorithm, replay, paces = job.algorithm, job.algorithm.replay, job.algorithm.paces()
    if replay is not None and replay.prefetch == 0 and usable_cores() > 1:
        why = "a thread gathers the next batch while the learner uses this one"
        yield Remedy(("sampling",), "replay.prefetch", 1, why)
    if replay is not None and not algorithm.network.reads_vectors() and replay.codec != "raw":
        faster = {"zstd": "lz4", "lz4": "raw"}[replay.codec]
        yield Remedy(("sampling",), "replay.codec", faster, "frames are decoded faster, and take more memory")
    if isinstance(algorithm, QLearning) and isinstance(algorithm.sample, Prioritized):
        why = f"no priorities to draw by and to update; {CHANGES_LEARNING}"
        yield Remedy(("sampling",), "sample", "uniform", why)
    less: tuple[str, float] | None = None
    if "samples_per_step" in paces:
        less = "samples_per_step", paces["samples_per_step"] / 2
    elif paces["epochs"] > 1:
        less = "epochs", int(paces["epochs"]) // 2
    if less is not None:
        yield Remedy((*LEARNER, "sampling"), *less, f"a lower replay ratio; {CHANGES_LEARNING}")


def _remedies_of_playing(job: Job) -> Iterator[Remedy]:
    is_threaded, threads = find_game(job.env.id) is not None, min(usable_cores(), job.num_envs)
    if is_threaded and job.actor.threads < threads:
        why = "the emulators run on fewer threads than they could use"
        yield Remedy(("env", ENV_AND_LEARNER), "actor.threads", threads, why)
    if usable_cores() > 1:
        yield Remedy(("env", "acting"), "topology", "async", "one process plays while another learns")
    if 2 * job.num_envs <= MOST_ENVS:
        if is_threaded:
            why = f"a thread that has finished takes the next env; {CHANGES_LEARNING}"
            yield Remedy(("env",), "num_envs", 2 * job.num_envs, why)
        yield Remedy(
            ("acting",), "num_envs", 2 * job.num_envs, f"one forward pass serves more envs; {CHANGES_LEARNING}"
        )


def can_overlap(job: Job) -> bool:
    """Tell whether envs step while the learner learns."""
    return job.algorithm.replay is not None and find_game(job.env.id) is not None


def what_runs_beside_what(job: Job) -> str:
    """Say which parts of this job run at the same time."""
    replay = job.algorithm.replay
    if replay is None:
        return "Nothing runs beside the envs: the learner uses a full rollout before they step again."
    if can_overlap(job):
        said = "The envs step while the learner samples batches and learns."
    else:
        said = "Nothing runs beside the envs: they step when all updates that are due are done."
    gathers = f" A thread gathers batches beside the learner (--replay.prefetch {replay.prefetch})."
    return said + gathers if replay.prefetch else said


def remarks(job: Job, *, keeps_features: bool) -> list[str]:
    """Say what the costs of this job include and leave out."""
    nested = (
        "The learner's parts are left out one after the other: first the optimiser, then also the backward pass, then "
        "also forward passes and loss. So they sum to the learner"
    )
    if can_overlap(job):
        nested += ", and the forward passes, the last to go, lack what the envs hide"
    said = [f"{nested}."]
    if job.algorithm.optimizer.max_norm() is not None:
        said.append("The backward pass includes the clipping of its gradients.")
    if keeps_features:
        said.append(
            "The learner reuses the forward pass of acting. Without acting it computes its own, so the cost of acting "
            "does not include that pass."
        )
    said.append("Records went to a temporary folder, not to --log-dir: a slower disk makes them cost more.")
    return said

"""What helps against a bottleneck, as flags to type, and what must be known to read the costs; rules are data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from redline.algorithms.q_learning import QLearning
from redline.algorithms.samplings import Prioritized
from redline.bench.knockout.costs import ENV_AND_LEARNER, LEARNER_PARTS
from redline.envs.atari_games import find_game
from redline.errors import UserError
from redline.networks import Nature
from redline.runs.host import usable_cores
from redline.runtime.config import Job, from_settings
from redline.runtime.resolve import check_topology, place_roles, resolve_roles

GOOD_BATCH = 128  # beyond this many rows, a CPU's cache no longer holds an update
MOST_ENVS = 64
LEARNER = (*LEARNER_PARTS, ENV_AND_LEARNER)  # a cheaper learner leaves cores for the envs beside it
CHANGES_LEARNING = "changes what is learnt, so compare the returns"

Setting = tuple[str, Any]  # its dotted key and its value


@dataclass(frozen=True)
class Rule:
    """A remedy for parts that are slow."""

    parts: tuple[str, ...]
    setting: Callable[[Job], Setting | None]  # None where it would change nothing or is not available
    why: str


def advise(job: Job, *parts: str | None, asked: Job) -> list[dict[str, str]]:
    """Return the settings that may help where these parts of a settled job cost most, the likeliest first.

    A profile may settle the job that the user `asked` for in another way; nothing is advised that this job can't have.
    """
    found = {rule.setting(job): rule.why for part in parts for rule in RULES if part in rule.parts}
    return [
        {"flag": _flag(setting), "why": why}
        for setting, why in found.items()
        if setting is not None and _is_possible(asked, setting)
    ]


def _is_possible(asked: Job, setting: Setting) -> bool:
    key, value = setting
    role, _, name = key.rpartition(".")
    try:
        job = from_settings(asked, {role: {name: value}} if role else {name: value})
        check_topology(job)
        resolve_roles(place_roles(job), is_image=False)
    except UserError:
        return False
    return job != asked


def _flag(setting: Setting) -> str:
    key, value = setting
    return f"--{key.replace('_', '-')} {f'{value:g}' if isinstance(value, float) else value}"


def _cuda(job: Job) -> Setting | None:
    return ("device", "cuda") if job.learner.device == "cpu" and torch.cuda.is_available() else None


def _all_learner_threads(job: Job) -> Setting | None:
    cores = usable_cores()
    is_large = not job.algorithm.network.reads_vectors()
    return ("learner.threads", cores) if is_large and job.learner.threads < cores else None


def _larger_batch(job: Job) -> Setting | None:
    size, replay = job.algorithm.batch_size, job.algorithm.replay
    return ("batch_size", 4 * size) if replay is not None and 4 * size <= GOOD_BATCH else None


def _fewer_batches(job: Job) -> Setting | None:
    size, rollout_steps = job.algorithm.batch_size, job.algorithm.paces().get("rollout_steps", 0)
    return ("batch_size", 2 * size) if 2 * size <= rollout_steps * job.num_envs else None


def _smaller_network(job: Job) -> Setting | None:
    return ("network", "small") if isinstance(job.algorithm.network, Nature) else None


def _learn_less(job: Job) -> Setting | None:
    paces = job.algorithm.paces()
    if "samples_per_step" in paces:
        return "samples_per_step", paces["samples_per_step"] / 2
    return ("epochs", int(paces["epochs"]) // 2) if paces["epochs"] > 1 else None


def _prefetch(job: Job) -> Setting | None:
    replay = job.algorithm.replay
    is_late = replay is not None and replay.prefetch == 0
    return ("replay.prefetch", 1) if is_late and usable_cores() > 1 else None


def _faster_codec(job: Job) -> Setting | None:
    replay = job.algorithm.replay
    if replay is None or job.algorithm.network.reads_vectors():
        return None
    faster = {"zstd": "lz4", "lz4": "raw"}.get(replay.codec)
    return None if faster is None else ("replay.codec", faster)


def _uniform(job: Job) -> Setting | None:
    algorithm = job.algorithm
    is_prioritized = isinstance(algorithm, QLearning) and isinstance(algorithm.sample, Prioritized)
    return ("sample", "uniform") if is_prioritized else None


def _all_env_threads(job: Job) -> Setting | None:
    most = min(usable_cores(), job.num_envs)
    is_threaded = find_game(job.env.id) is not None
    return ("actor.threads", most) if is_threaded and job.actor.threads < most else None


def _own_process(job: Job) -> Setting | None:
    return ("topology", "async") if usable_cores() > 1 else None


def _more_envs(job: Job) -> Setting | None:
    return ("num_envs", 2 * job.num_envs) if 2 * job.num_envs <= MOST_ENVS else None


def _more_threaded_envs(job: Job) -> Setting | None:
    return _more_envs(job) if find_game(job.env.id) is not None else None


def _no_monitor(job: Job) -> Setting | None:
    return ("monitor.hz", 0.0) if job.monitor.hz else None


RULES = (
    Rule((*LEARNER, "acting"), _cuda, "a GPU is there, and the network is computed on the CPU"),
    Rule(("forward", "backward"), _all_learner_threads, "the learner uses fewer threads than there are cores"),
    Rule(
        LEARNER,
        _larger_batch,
        f"fewer and larger updates at the same replay ratio: each row costs less; {CHANGES_LEARNING}",
    ),
    Rule(("optimiser",), _fewer_batches, f"half as many updates of twice the rows; {CHANGES_LEARNING}"),
    Rule(
        ("forward", "backward", ENV_AND_LEARNER),
        _smaller_network,
        f"the 2013 network needs a third of the arithmetic; {CHANGES_LEARNING}",
    ),
    Rule(LEARNER, _learn_less, f"a lower replay ratio; {CHANGES_LEARNING}"),
    Rule(("sampling",), _prefetch, "a thread gathers the next batch while the learner uses this one"),
    Rule(("sampling",), _faster_codec, "frames are decoded faster, and take more memory"),
    Rule(("sampling",), _uniform, f"no priorities to draw by and to update; {CHANGES_LEARNING}"),
    Rule(("sampling",), _learn_less, f"a lower replay ratio; {CHANGES_LEARNING}"),
    Rule(("env", ENV_AND_LEARNER), _all_env_threads, "the emulators run on fewer threads than they could use"),
    Rule(("env", "acting"), _own_process, "one process plays while another learns"),
    Rule(("env",), _more_threaded_envs, f"a thread that has finished takes the next env; {CHANGES_LEARNING}"),
    Rule(("acting",), _more_envs, f"one forward pass serves more envs; {CHANGES_LEARNING}"),
    Rule(("acting",), _smaller_network, f"the 2013 network needs a third of the arithmetic; {CHANGES_LEARNING}"),
    Rule(("records",), _no_monitor, "without the hardware monitor"),
)


def can_overlap(job: Job) -> bool:
    """Tell whether envs step while the learner learns."""
    return job.algorithm.replay is not None and find_game(job.env.id) is not None


def what_runs_beside_what(job: Job) -> str:
    """Say what this job does at the same time."""
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
    """Say what the costs of this job include, and what they lack."""
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

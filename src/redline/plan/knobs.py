"""The knobs that may make a training faster, by what they do to learning, and the ways that are worth a try."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any, Literal

from redline.algorithms.q_learning import QLearning
from redline.bench.costs import MOST_ENVS
from redline.envs.atari_games import find_game
from redline.errors import UserError
from redline.exploration import EpsilonGreedy
from redline.runs.host import usable_cores
from redline.runtime.building import check_disk, check_memory
from redline.runtime.config import Job, Limits, MonitorConfig, flag_of, flatten, from_settings, to_settings
from redline.runtime.precision import can_bf16
from redline.runtime.processes.process_pool import check_room
from redline.runtime.replay_sizing import layout_for
from redline.runtime.resolve import ResolvedJob, check_topology, place_roles, resolve_job, resolve_roles
from redline.schedules import Linear

Vary = Literal["exact", "nearly", "all"]
Changes = Mapping[str, Any]  # dotted key → value; empty for the job as it was requested

# what changing a knob does to learning: nothing; the age of the weights that act, or rounding; what is learnt from
EXACT, NEARLY, LEARNING = "exact", "nearly", "learning"
TRIED: Mapping[Vary, tuple[str, ...]] = {
    "exact": (EXACT,),
    "nearly": (EXACT, NEARLY),
    "all": (EXACT, NEARLY, LEARNING),
}
KNOBS = {
    "learner.threads": EXACT,
    "actor.threads": EXACT,
    "replay.prefetch": EXACT,
    "replay.codec": EXACT,
    "learner.precision": NEARLY,
    "topology": NEARLY,
    "actors": NEARLY,
    "push": NEARLY,
    "num_envs": LEARNING,
    "batch_size": LEARNING,
    "samples_per_step": LEARNING,
    "epochs": LEARNING,
}
LEARNS_LESS = ("samples_per_step", "epochs")  # a training is never sped up by learning less: shown, not chosen
CODEC_ORDER = ("raw", "lz4", "zstd")
PREFETCHES = (1, 2, 0)
MOST_ACTORS = 8
# of a measured training
CAPACITY = 20_000
WARMUP_BATCHES, WARMUP_VECTOR_STEPS = 4, 64
NEVER_MINUTES = 1e6


@dataclass(frozen=True)
class Asked:
    """A training to speed up, and how far that may go."""

    job: Job  # as requested: what is open in it is filled in for each way anew
    algorithm: str  # its name
    vary: Vary = "exact"
    typed: frozenset[str] = frozenset()  # keys of knobs that stay as they are

    def varies(self, key: str) -> bool:
        """Tell whether a knob may be changed."""
        return KNOBS[key] in TRIED[self.vary] and key not in self.typed and has_knob(self.job, key)


def has_knob(job: Job, key: str) -> bool:
    """Tell whether a job has such a setting: rollouts have no replay memory."""
    return key in dict(flatten(to_settings(job)))


def read_knob(job: Job, key: str) -> Any:
    """Return the value of a knob."""
    return dict(flatten(to_settings(job)))[key]


def name_of(changes: Changes) -> str:
    """Return the flags of some changes, in the order of the knobs."""
    return " ".join(f"{flag_of(key)} {changes[key]}" for key in KNOBS if key in changes) or "default"


def kind_of(changes: Changes) -> str:
    """Return what some changes do to learning, by the one that does most."""
    return max((KNOBS[key] for key in changes), key=TRIED["all"].index, default=EXACT)


def may_be_chosen(changes: Changes) -> bool:
    """Tell whether a candidate learns from as many samples per step as the default."""
    return not any(key in changes for key in LEARNS_LESS)


def ways(asked: Asked, effective: ResolvedJob) -> list[Changes]:
    """Return the changes worth a try, the likeliest gains of each kind first; `effective` is the job unchanged."""
    job, found = effective.job, dict[tuple[tuple[str, Any], ...], Changes]()
    nothing: Changes = {}
    kinds = (_topologies(asked, job), _singles(asked, effective), _learning(asked, job))
    # by turns, so that a short time leaves some of each
    for changes in chain.from_iterable(zip_longest(*kinds, fillvalue=nothing)):
        new = {key: value for key, value in changes.items() if read_knob(job, key) != value}
        if new and all(asked.varies(key) for key in new):
            found.setdefault(tuple(sorted(new.items())), new)
    return list(found.values())


def _singles(asked: Asked, effective: ResolvedJob) -> Iterator[Changes]:
    job, cores, spec = effective.job, usable_cores(), effective.spec
    has_replay, is_native = asked.job.algorithm.replay is not None, find_game(job.env.id) is not None
    values: Mapping[str, Sequence[Any]] = {
        "learner.threads": _counts(cores),
        "replay.prefetch": PREFETCHES if has_replay and cores > 1 else (),
        "replay.codec": CODEC_ORDER if has_replay and spec.is_image else (),
        "actor.threads": _counts(min(cores, job.actor.envs)) if is_native else (),  # other envs step in one thread
        "learner.precision": ("float32", "bf16") if can_bf16(effective.device) else (),
    }
    for row in zip_longest(*values.values()):
        yield from ({key: value} for key, value in zip(values, row, strict=True) if value is not None)


def _topologies(asked: Asked, job: Job) -> Iterator[Changes]:
    """Yield the ways to share a training among processes."""
    if asked.job.algorithm.replay is None:
        return
    cores = usable_cores()
    is_async: Changes = {} if job.topology == "async" else {"topology": "async"}
    if is_async:
        yield is_async
    else:
        yield {"topology": "inline", **({"actors": 1} if job.actors > 1 else {})}
    most = min(MOST_ACTORS, job.num_envs)
    for actors in sorted({most, min(cores, most)}, reverse=True):
        if actors > 1 and job.num_envs % actors == 0:
            yield {**is_async, "actors": actors}
    if cores > 1 and asked.varies("learner.threads"):
        yield {**is_async, "learner.threads": cores - 1}
    yield {**is_async, "push": "chunk"}


def _learning(asked: Asked, job: Job) -> Iterator[Changes]:
    if 2 * job.num_envs <= MOST_ENVS:
        yield {"num_envs": 2 * job.num_envs}
    yield {"batch_size": 4 * job.algorithm.batch_size}
    yield {"batch_size": 2 * job.algorithm.batch_size}
    if job.num_envs % 2 == 0:
        yield {"num_envs": job.num_envs // 2}
    if asked.job.algorithm.replay is not None:
        yield {"samples_per_step": job.algorithm.samples_per_step / 2}
    elif job.algorithm.samples_per_step > 1:
        yield {"epochs": int(job.algorithm.samples_per_step) // 2}


def _counts(most: int) -> list[int]:
    """Return numbers of threads that are worth a try: one, half of them, all of them."""
    return sorted({1, max(1, most // 2), most})


def changed(asked: Asked, changes: Changes) -> Job:
    """Return the requested job with some knobs changed."""
    settings: dict[str, Any] = {}
    for key, value in changes.items():
        role, _, name = key.rpartition(".")
        if role:
            settings.setdefault(role, {})[name] = value
        else:
            settings[name] = value
    return from_settings(asked.job, settings)


def why_impossible(job: Job, *, is_image: bool) -> str | None:
    """Say why a job can't run on this machine; None if it can."""
    try:
        check_topology(job)
        roles, _ = resolve_roles(place_roles(job), is_image=is_image)
        if job.topology == "async":
            check_room(actors=job.actors, learner_threads=roles.learner.threads)
        check_batch(job)
    except UserError as error:
        return str(error)
    return None


def why_no_room(job: Job) -> str | None:
    """Say why the memory or the disk can't hold a job; the game is played for a moment to find out."""
    try:
        resolved = resolve_job(job)
        check_memory(resolved)
        check_disk(resolved, job.log_dir)
    except UserError as error:
        return str(error)
    return None


def check_measurable(job: Job) -> None:
    """Refuse trainings whose steps per second say nothing, or that can't run."""
    if job.pacing == "free":
        raise UserError(
            "--pacing free learns as much as time allows, so the fastest settings are those that learn least: "
            "use --pacing held"
        )
    check_batch(job)


def check_batch(job: Job) -> None:
    """Refuse batches that the replay memory can't fill."""
    replay, size = job.algorithm.replay, job.algorithm.batch_size
    if replay is not None and size > replay.capacity:
        raise UserError(
            f"batch-size is {size:_}, but the replay memory holds {replay.capacity:_} transitions: use --batch-size "
            f"{replay.capacity:_} or less, or a larger --replay.capacity"
        )


# The training that is measured


def measured_job(job: Job, effective: ResolvedJob, folder: Path) -> Job:
    """Return a job as its speed is measured: soon learning, with a small replay memory, and nothing beside it."""
    algorithm = job.algorithm
    if isinstance(algorithm, QLearning):
        sequence = algorithm.core.sequence()
        vector_steps = max(WARMUP_VECTOR_STEPS, 2 * sequence.length_steps if sequence is not None else 0)
        warmup_steps = max(WARMUP_BATCHES * algorithm.batch_size, vector_steps * job.num_envs)
        capacity = max(min(CAPACITY, algorithm.replay.capacity), 2 * warmup_steps)
        # as many bytes as raw frames take, so that no game must be played to find out
        raw = layout_for(effective.spec, codec="raw", capacity=capacity, lanes=job.num_envs)
        room = 2 * raw.num_bytes if effective.spec.is_image and algorithm.replay.codec != "raw" else None
        explore = algorithm.explore
        if isinstance(explore, EpsilonGreedy):  # the network acts as in nearly all of a training
            explore = replace(explore, epsilon=Linear(explore.epsilon.end, explore.epsilon.end))
        algorithm = replace(
            algorithm,
            explore=explore,
            warmup_steps=min(warmup_steps, algorithm.warmup_steps),
            replay=replace(algorithm.replay, capacity=capacity, bytes=room, path=None),
        )
    precision = job.learner.precision
    if precision == "auto":  # measured once, and not by each candidate beside the others
        precision = effective.job.learner.precision
    return replace(
        job,
        algorithm=algorithm,
        learner=replace(job.learner, precision=precision),
        limits=Limits(max_steps=None),
        evaluator=replace(job.evaluator, every_minutes=0.0),
        monitor=MonitorConfig(hz=0.0),
        evaluate_every_steps=0,
        anneal_at_return=None,
        log_dir=folder,
        track=(),
        checkpoint_minutes=NEVER_MINUTES,
    )

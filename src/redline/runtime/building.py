"""The parts of a run from its resolved job, after checks that memory and disk have room for them."""

import ctypes
from contextlib import ExitStack
from pathlib import Path

import torch

from redline.algorithms.on_policy import OnPolicy
from redline.envs.catalog import make_vector_env
from redline.episodes.estimate import SHORT_LENGTH_STEPS, USUAL_LENGTH_STEPS, estimate_bytes
from redline.errors import UserError
from redline.files import explained, free_bytes, mount_point
from redline.learner import Learner
from redline.replay import ReplayLayout, available_bytes, check_fits
from redline.runtime.config import Job
from redline.runtime.precision import allow_tf32, learnt_in
from redline.runtime.replay_sizing import pacing_of
from redline.runtime.resolve import ResolvedJob
from redline.runtime.sources import ReplaySource, RolloutSource, Source
from redline.runtime.training import InlineWorld, Trainer
from redline.types import EnvSpec
from redline.units import size

KEPT_CHECKPOINTS = 5  # the newest three, the best, and the one being written
UNLIMITED_STEPS = 50_000_000  # assumed for a run without a limit of steps

# of malloc.h
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
LARGEST_KEPT_BYTES = 32 * 1024**2  # the most that every glibc takes; the blocks of an update are smaller
KEPT_AT_THE_END_BYTES = 256 * 1024**2  # free memory behind the last block in use; what lies between blocks stays anyway


def build_trainer(resolved: ResolvedJob, *, env_seed: int) -> Trainer:
    """Build env, source and learner; refuse what does not fit in memory before anything is allocated."""
    job = resolved.job
    with ExitStack() as resources:
        env = make_vector_env(job.env, num_envs=job.num_envs, seed=env_seed, threads=job.actor.threads)
        resources.callback(env.close)
        check_memory(resolved)
        learner = build_learner(resolved)
        source = build_source(resolved, learner, resources)
        world = InlineWorld(env, state_width=learner.online.state_width, recording=job.recording)
        return Trainer(
            job, world=world, env_seed=env_seed, source=source, learner=learner, resources=resources.pop_all()
        )


def build_learner(resolved: ResolvedJob) -> Learner:
    """Return the learner with its initial weights."""
    return Learner(
        resolved.job.algorithm,
        resolved.spec,
        seed=resolved.job.seed,
        device=resolved.device,
        precision=learnt_in(resolved.job),
        captures=resolved.job.learner.cuda_graph,
    )


def build_source(resolved: ResolvedJob, learner: Learner, resources: ExitStack) -> Source:
    """Return where batches come from, a rollout or a replay memory; `resources` close what it holds."""
    job = resolved.job
    if isinstance(job.algorithm, OnPolicy):
        return RolloutSource(job.algorithm, resolved.spec, num_envs=job.num_envs, seed=job.seed, learner=learner)
    if resolved.layout is None:
        raise ValueError("a value learner with replay needs a layout of its memory")
    pacing = pacing_of(job, job.algorithm)
    source = ReplaySource(job.algorithm, resolved.layout, pacing=pacing, seed=job.seed, device=resolved.device)
    resources.callback(source.close)
    return source


def prepare_process(resolved: ResolvedJob) -> None:
    """Make the settings that exist once per process, in the one that learns, before its first parallel operation."""
    keep_freed_memory()
    torch.set_flush_denormal(True)
    torch.set_num_threads(resolved.job.learner.threads)
    allow_tf32(allowed=resolved.job.learner.tf32)
    if resolved.device.type == "cuda":
        torch.cuda.set_device(resolved.device)  # what names no device goes there too


def keep_freed_memory() -> bool:
    """Let the process keep freed blocks for itself; False where the C library has no such setting.

    By default blocks that are freed together go back to the system. The next update then needs the same blocks again,
    and pays for them with a few hundred page faults.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # no glibc
        return False
    settings = ((_M_MMAP_THRESHOLD, LARGEST_KEPT_BYTES), (_M_TRIM_THRESHOLD, KEPT_AT_THE_END_BYTES))
    taken = [mallopt(name, value) == 1 for name, value in settings]
    return all(taken)


# Room in memory and on the disk


def check_memory(resolved: ResolvedJob) -> None:
    """Refuse a replay memory that the machine has no room for."""
    if (layout := resolved.layout) is None:
        return
    folder = layout.path or Path()
    with explained(UserError, folder, before="replay.path can't be used: ", after=": choose another folder"):
        free_disk = 0 if layout.path is None else free_bytes(_nearest_existing(folder))
    check_fits(layout, free_ram_bytes=available_bytes(), free_disk_bytes=free_disk)


def _nearest_existing(folder: Path) -> Path:
    return next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())


def checkpoint_bytes(resolved: ResolvedJob) -> int:
    """Return the most that all kept checkpoints take, replay segments included."""
    network = resolved.job.algorithm.build_network(resolved.spec, torch.Generator())
    learner_bytes = sum(int(value.nbytes) for value in network.state_dict().values())
    replay_bytes = 0 if resolved.layout is None else saved_replay_bytes(resolved.layout)
    # each has the weights, the target's and Adam's two moments, and may name a replay memory of its own
    return KEPT_CHECKPOINTS * 4 * learner_bytes + replay_bytes


def saved_replay_bytes(layout: ReplayLayout) -> int:
    """Return the most that the replay memories of all kept checkpoints take."""
    each = layout.capacity * layout.frame_bytes if layout.budget_bytes is None else layout.num_bytes
    return KEPT_CHECKPOINTS * each


def recordings_bytes(job: Job, spec: EnvSpec) -> tuple[int, int]:
    """Return about how many bytes the run's recordings take, and for how many steps that is."""
    steps = job.limits.total_steps(frames_per_step=spec.frames_per_step) or UNLIMITED_STEPS
    about = estimate_bytes(
        steps=steps,
        num_actions=spec.num_actions,
        mean_length_steps=USUAL_LENGTH_STEPS if spec.is_image else SHORT_LENGTH_STEPS,
        values=job.recording.record_values,
        record=job.recording.record,
    )
    return about, steps


def check_disk(resolved: ResolvedJob, log_dir: Path, *, held_bytes: int = 0) -> None:
    """Refuse a run whose checkpoints and replay segments would fill the disk; `held_bytes` of them are there."""
    layout, needed = resolved.layout, max(checkpoint_bytes(resolved) - held_bytes, 0)
    with explained(UserError, log_dir, before="cannot create a run: ", after=": use another --log-dir"):
        place = _nearest_existing(log_dir)
        free = free_bytes(place)
        if layout is not None and layout.path is not None:
            is_same_disk = _nearest_existing(layout.path).stat().st_dev == place.stat().st_dev
            needed += layout.disk_bytes if is_same_disk else 0
    if needed > free:
        raise UserError(
            f"a run may need {size(needed)} on disk, {mount_point(place)} has {size(free)} free: "
            f"use another --log-dir, or a smaller --replay.capacity or --network"
        )

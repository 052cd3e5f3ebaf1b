"""From a job to the parts that run it, with every change of a setting said aloud."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from redline.algorithms.family import Algorithm
from redline.algorithms.on_policy import OnPolicy
from redline.envs.catalog import make_vector_env, resolve
from redline.envs.config import EnvConfig
from redline.errors import UserError
from redline.experience import ReplayLayout, available_bytes, check_fits
from redline.learner import Learner
from redline.recordings.estimate import SHORT_LENGTH_STEPS, USUAL_LENGTH_STEPS, estimate_bytes
from redline.runs.errors import explain, free_bytes, mount_point
from redline.runtime.allocator import keep_freed_memory
from redline.runtime.inline import InlineWorld
from redline.runtime.job import Job
from redline.runtime.limits import Limits
from redline.runtime.replay_sizing import pacing_of, settle_replay
from redline.runtime.replay_source import ReplaySource
from redline.runtime.rollout_source import RolloutSource
from redline.runtime.sources import Source
from redline.runtime.topology import check_topology, settle_roles
from redline.runtime.training import Trainer
from redline.types import Adjustment, EnvSpec
from redline.units import size

KEPT_CHECKPOINTS = 5  # the newest three, the best, and the one being written
UNLIMITED_STEPS = 50_000_000  # that a run without a limit of steps is planned for


@dataclass(frozen=True)
class Settled:
    """A job as it will really run."""

    job: Job
    spec: EnvSpec  # what a network must know of its envs
    protocol: str  # by which rules they are played
    layout: ReplayLayout | None  # of the replay memory, if there is one
    adjustments: list[Adjustment]
    device: torch.device


def settle(job: Job, *, steps: int = 0, saved_replay: Mapping[str, Any] | None = None) -> Settled:
    """Replace what the user left open or what can't act in a run of `steps` so far, and list each replacement."""
    check_topology(job)
    kind = resolve(job.env.id)
    env, adjustments = kind.effective(job.env)
    if job.env.size == EnvConfig.size:  # the default was not asked for, so nothing was refused
        adjustments = [item for item in adjustments if item.setting != "env.size"]
    limits, rounded = _whole_vector_steps(job, frames_per_step=env.skip, steps=steps)
    adjustments += rounded
    spec = kind.spec(env)
    check_network(job.algorithm, spec)
    job, of_roles = settle_roles(place_roles(replace(job, env=env, limits=limits)), is_image=spec.is_image)
    adjustments += of_roles
    device = torch.device(job.learner.device or "cpu")
    adjustments += _annealed_early(job, frames_per_step=env.skip)
    algorithm, cut = job.algorithm.whole_batches(job.num_envs)
    job = replace(job, algorithm=algorithm)
    layout, sized = settle_replay(job, spec, saved_replay)
    return Settled(job, spec, kind.rules, layout, adjustments + cut + sized, device)


def check_network(algorithm: Algorithm, spec: EnvSpec) -> None:
    """Refuse a network that can't see what the envs show, before anything is played."""
    with torch.random.fork_rng(devices=[]):  # torch's layers draw from the global generator when they are made
        algorithm.network.build(spec, algorithm.layers)


def _annealed_early(job: Job, *, frames_per_step: int) -> list[Adjustment]:
    """Say that a learning rate falls to 0 before the run ends, if it does: the rest will teach nothing."""
    end = job.algorithm.optimizer.annealed_at()
    total = job.limits.total_steps(frames_per_step=frames_per_step)
    last = job.algorithm.optimizer.lr_at(end)
    if not end or last or total is None or total <= end:
        return []
    why = f"--optimizer.anneal-steps ends before --max-steps {total:,}"
    return [Adjustment("optimizer.lr", f"{job.algorithm.optimizer.lr_at(0):g}", f"0 from step {end:,} on", why)]


def _whole_vector_steps(job: Job, *, frames_per_step: int, steps: int) -> tuple[Limits, list[Adjustment]]:
    """Round the limits up to what a run can stop at: all envs step together."""
    adjustments, changes = [], {}
    for name, per_step in (("max_steps", 1), ("max_frames", frames_per_step)):
        asked = getattr(job.limits, name)
        if asked is None:
            continue
        unit = job.num_envs * per_step
        whole = steps * per_step + max(0, -(-(asked - steps * per_step) // unit)) * unit
        if asked > steps * per_step and whole != asked:
            why = f"{job.num_envs} envs step together"
            adjustments.append(Adjustment(name.replace("_", "-"), f"{asked:,}", f"{whole:,}", why))
            changes[name] = whole
    return replace(job.limits, **changes), adjustments


def place_roles(job: Job) -> Job:
    """Return the job with a device for every role: its own, or that of --device; inline has one place for all."""
    common = str(find_device(job.device))
    learner = _place(job.learner.device, "learner.device") or common
    others = learner if job.topology == "inline" else common
    actor = _place(job.actor.device, "actor.device") or others
    evaluator = _place(job.evaluator.device, "evaluator.device") or others
    for role, device in (("actor", actor), ("evaluator", evaluator)):
        if job.topology == "inline" and device != learner:
            raise UserError(
                f"--{role}.device {device} is not where the learner computes, {learner}, and --topology inline has one "
                f"device for all: use --device {device}, or --topology async"
            )
    return replace(
        job,
        actor=replace(job.actor, device=actor),
        learner=replace(job.learner, device=learner),
        evaluator=replace(job.evaluator, device=evaluator),
    )


def _place(name: str | None, setting: str) -> str | None:
    return None if name is None else str(find_device(name, setting))


def find_device(name: str, setting: str = "device") -> torch.device:
    """Return the device that `--device`, or another setting, names."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, colon, index = name.partition(":")
    if kind not in ("cpu", "cuda") or (colon and (kind == "cpu" or not index.isdigit())):
        raise UserError(f"{setting} {name!r} is unknown: use auto, cpu, cuda or cuda:i")
    if kind == "cuda" and not torch.cuda.is_available():
        raise UserError(f"{setting} {name!r} was asked for, but this PyTorch sees no CUDA device: use --{setting} cpu")
    if colon and int(index) >= torch.cuda.device_count():
        raise UserError(
            f"{setting} {name!r} does not exist, {torch.cuda.device_count()} CUDA devices do: use a lower index"
        )
    return torch.device(name)


def build_trainer(settled: Settled, *, env_seed: int) -> Trainer:
    """Build env, source and learner; what would not fit in memory is refused before anything is allocated."""
    job = settled.job
    with ExitStack() as resources:
        env = make_vector_env(job.env, num_envs=job.num_envs, seed=env_seed, threads=job.actor.threads)
        resources.callback(env.close)
        check_memory(settled)
        learner = Learner(job.algorithm, settled.spec, seed=job.seed, device=settled.device)
        source = build_source(settled, learner, resources)
        world = InlineWorld(env, state_width=learner.online.state_width, recording=job.recording)
        return Trainer(
            job, world=world, env_seed=env_seed, source=source, learner=learner, resources=resources.pop_all()
        )


def check_memory(settled: Settled) -> None:
    """Refuse a replay memory that the machine has no room for."""
    if settled.layout is not None:
        free_disk = _free_disk(settled.layout.path)
        check_fits(settled.layout, free_ram_bytes=available_bytes(), free_disk_bytes=free_disk)


def prepare_process(settled: Settled) -> None:
    """Set what there is once per process, for the process that learns; before its first parallel operation."""
    keep_freed_memory()
    torch.set_flush_denormal(True)
    torch.set_num_threads(settled.job.learner.threads)


def build_source(settled: Settled, learner: Learner, resources: ExitStack) -> Source:
    """Return where batches come from, a rollout or a replay memory, and add what it holds."""
    job = settled.job
    if isinstance(job.algorithm, OnPolicy):
        return RolloutSource(job.algorithm, settled.spec, num_envs=job.num_envs, seed=job.seed, learner=learner)
    if settled.layout is None:
        raise ValueError("a value learner with replay needs a layout of its memory")
    pacing = pacing_of(job, job.algorithm)
    source = ReplaySource(job.algorithm, settled.layout, pacing=pacing, seed=job.seed, device=settled.device)
    resources.callback(source.close)
    return source


def _free_disk(folder: Path | None) -> int:
    if folder is None:
        return 0
    try:
        return free_bytes(_nearest_existing(folder))
    except OSError as error:
        raise UserError(f"replay.path can't be used: {explain(error, folder)}: choose another folder") from None


def _nearest_existing(folder: Path) -> Path:
    return next(place for place in (folder.absolute(), *folder.absolute().parents) if place.exists())


def checkpoint_bytes(settled: Settled) -> int:
    """Return the most that all kept checkpoints take, replay segments included."""
    network = settled.job.algorithm.build_network(settled.spec, torch.Generator())
    learner_bytes = sum(int(value.nbytes) for value in network.state_dict().values())
    layout, frames_bytes = settled.layout, 0
    if layout is not None:
        frames_bytes = layout.capacity * layout.frame_bytes if layout.budget_bytes is None else layout.num_bytes
    # each has the weights, the target's and Adam's two moments, and may name a replay memory of its own
    return KEPT_CHECKPOINTS * (4 * learner_bytes + frames_bytes)


def recordings_bytes(job: Job, spec: EnvSpec) -> tuple[int, int]:
    """Return about how many bytes the run's recordings take, and for how many steps that is."""
    steps = job.limits.total_steps(frames_per_step=spec.frames_per_step) or UNLIMITED_STEPS
    config = job.recording
    about = estimate_bytes(
        steps=steps,
        num_actions=spec.num_actions,
        mean_length_steps=USUAL_LENGTH_STEPS if spec.is_image else SHORT_LENGTH_STEPS,
        values=config.record_values,
        record=config.record,
    )
    return about, steps


def check_disk(settled: Settled, log_dir: Path) -> None:
    """Refuse a run whose checkpoints and replay segments would fill the disk."""
    layout, needed = settled.layout, checkpoint_bytes(settled)
    try:
        place = _nearest_existing(log_dir)
        free = free_bytes(place)
        if (
            layout is not None
            and layout.path is not None
            and _nearest_existing(layout.path).stat().st_dev == place.stat().st_dev
        ):
            needed += layout.disk_bytes
    except OSError as error:
        raise UserError(f"cannot create a run: {explain(error, log_dir)}: use another --log-dir") from None
    if needed > free:
        raise UserError(
            f"a run may need {size(needed)} on disk, {mount_point(place)} has {size(free)} free: "
            f"use another --log-dir, or a smaller --replay.capacity or --network"
        )

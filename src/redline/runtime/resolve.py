"""From the job that was requested to the job that runs: contradictions are refused, open settings are filled in.

Thread counts follow from the configuration and the cores, never from timing.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from redline.algorithms.optimizers import Annealed
from redline.algorithms.q_learning import QLearning
from redline.envs import catalog
from redline.envs.catalog import is_registered
from redline.envs.config import EnvConfig
from redline.errors import UserError
from redline.replay import ReplayLayout
from redline.replay.sampler import Uniform
from redline.replay.shared_lanes import check_platform
from redline.runs.host import usable_cores
from redline.runtime.config import ActorConfig, Job, Limits, flag_of
from redline.runtime.precision import resolve_precision
from redline.runtime.replay_sizing import resolve_replay
from redline.types import Adjustment, EnvSpec

EVALUATION_EVERY_MINUTES = 5.0  # beside asynchronous training, unless the user says otherwise
TARGET_EVALUATION_EVERY_MINUTES = 0.5  # the same where the run waits for an evaluation to reach its target
SYNC_STEPS = ActorConfig.sync_steps
GPU_PREFETCH = 2
# settings that only --topology async has, and the values that mean the same as inline
ASYNC_ONLY: dict[str, Any] = {
    "actors": Job.actors,
    "push": Job.push,
    "pacing": Job.pacing,
    "actor.sync_steps": SYNC_STEPS,
}


@dataclass(frozen=True)
class ResolvedJob:
    """A job as it will really run."""

    job: Job
    spec: EnvSpec  # what a network must know of its envs
    protocol: str  # the rules by which they are played
    layout: ReplayLayout | None  # of the replay memory, if there is one
    adjustments: list[Adjustment]
    device: torch.device


def resolve_job(job: Job, *, steps: int = 0, saved_replay: Mapping[str, Any] | None = None) -> ResolvedJob:
    """Fill in what the user left open, replace what can't act after `steps` steps, and list each replacement."""
    check_topology(job)
    kind = catalog.resolve(job.env.id)
    env, adjustments = kind.effective(job.env)
    if job.env.size == EnvConfig.size:  # nobody asked for the default, so nothing was refused
        adjustments = [item for item in adjustments if item.setting != "env.size"]
    limits, rounded = _whole_vector_steps(job, frames_per_step=env.skip, steps=steps)
    spec = kind.spec(env)
    with torch.random.fork_rng(devices=[]):  # torch's layers draw from the global generator when they are made
        job.algorithm.network.build(spec, job.algorithm.layers)  # refuses what it can't see, before anything is played
    job, of_roles = resolve_roles(place_roles(replace(job, env=env, limits=limits)), is_image=spec.is_image)
    device = torch.device(job.learner.device or "cpu")
    annealed = _annealed_early(job, frames_per_step=env.skip)
    algorithm, cut = job.algorithm.whole_batches(job.num_envs)
    job = replace(job, algorithm=algorithm)
    job, captured = settle_cuda_graph(job, device)
    job, drawn_ahead = settle_prefetch(job, device)
    layout, sized = resolve_replay(job, spec, saved_replay)
    precision, chosen = resolve_precision(job, spec, device)
    job = replace(job, learner=replace(job.learner, precision=precision))
    adjustments = [*adjustments, *rounded, *of_roles, *annealed, *cut, *captured, *drawn_ahead, *sized, *chosen]
    return ResolvedJob(job, spec, kind.rules, layout, adjustments, device)


def settle_cuda_graph(job: Job, device: torch.device) -> tuple[Job, list[Adjustment]]:
    """Use a CUDA graph only where there can be one: the loss on a rollout changes with the step that it is at."""
    why = None
    if device.type != "cuda":
        why = "there is no GPU"
    elif not isinstance(job.algorithm, QLearning):
        why = "rollouts are learnt from in other ways as training goes on"
    elif not isinstance(job.algorithm.optimizer, Annealed):
        why = "the optimiser is not Redline's own"
    if not job.learner.cuda_graph or why is None:
        return job, []
    job = replace(job, learner=replace(job.learner, cuda_graph=False))
    return job, [Adjustment("learner.cuda-graph", "True", "False", why)]


def settle_prefetch(job: Job, device: torch.device) -> tuple[Job, list[Adjustment]]:
    """Gather batches ahead for a GPU, which would wait for each otherwise; not where priorities choose the next one."""
    algorithm = job.algorithm
    if device.type != "cuda" or not isinstance(algorithm, QLearning) or algorithm.replay.prefetch:
        return job, []
    if not isinstance(algorithm.sample, Uniform):
        return job, []
    algorithm = replace(algorithm, replay=replace(algorithm.replay, prefetch=GPU_PREFETCH))
    why = "a GPU would wait while a batch is gathered"
    return replace(job, algorithm=algorithm), [Adjustment("replay.prefetch", "0", str(GPU_PREFETCH), why)]


def _annealed_early(job: Job, *, frames_per_step: int) -> list[Adjustment]:
    """Say that a learning rate falls to 0 before the run ends, if it does: nothing is learnt after that."""
    optimizer, total = job.algorithm.optimizer, job.limits.total_steps(frames_per_step=frames_per_step)
    end = optimizer.annealed_at()
    if not end or optimizer.lr_at(end) or total is None or total <= end:
        return []
    why = f"--optimizer.anneal-steps ends before --max-steps {total:,}"
    return [Adjustment("optimizer.lr", f"{optimizer.lr_at(0):g}", f"0 from step {end:,} on", why)]


def _whole_vector_steps(job: Job, *, frames_per_step: int, steps: int) -> tuple[Limits, list[Adjustment]]:
    """Round the limits up to whole vector steps where all envs step together: not those of several actors."""
    if job.topology == "async":
        return job.limits, []
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


# Devices


def place_roles(job: Job) -> Job:
    """Return the job with a device for every role: its own, or that of --device.

    Inline has one device for all. Actors and evaluators in processes of their own stay on the CPU: on a GPU each would
    take some hundred megabytes of its memory.
    """
    common, devices = str(find_device(job.device)), {}
    for key in ("learner.device", "actor.device", "evaluator.device"):
        asked = _read(job, key)
        devices[key] = common if asked is None else str(find_device(asked, key))
        if key == "learner.device":
            common = devices[key] if job.topology == "inline" else "cpu"
        elif job.topology == "inline" and devices[key] != common:
            raise UserError(
                f"--{key} {devices[key]} is not where the learner computes, {common}, and --topology inline has one "
                f"device for all: use --device {devices[key]}, or --topology async"
            )
    return _write(job, devices)


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


# Roles


def resolve_roles(job: Job, *, is_image: bool) -> tuple[Job, list[Adjustment]]:
    """Return the job with envs, threads and intervals of every role, and the settings that this changes."""
    is_async, cores, envs = job.topology == "async", usable_cores(), envs_of_each_actor(job)
    every_minutes = job.evaluator.every_minutes
    if every_minutes is None:
        has_target = job.limits.target_eval_return is not None
        usual = TARGET_EVALUATION_EVERY_MINUTES if has_target else EVALUATION_EVERY_MINUTES
        every_minutes = usual if is_async else 0.0
    filled: dict[str, Any] = {
        "actor.envs": envs,
        "actor.threads": job.actor.threads or min(cores, envs),
        "learner.threads": job.learner.threads or (cores if is_image else 1),
        "evaluator.every_minutes": every_minutes,
    }
    job = _write(job, filled)
    if job.pacing != "lockstep" or job.actor.sync_steps == 1:
        return job, []
    why = "in lockstep an actor has the newest weights at every step"
    return _write(job, {"actor.sync_steps": 1}), [Adjustment("actor.sync-steps", str(job.actor.sync_steps), "1", why)]


def check_topology(job: Job) -> None:
    """Refuse settings that the topology of a job does not have."""
    if job.anneal_at_return is not None and not job.algorithm.annealed_from():
        raise UserError(
            f"--anneal-at-return {job.anneal_at_return:g} has nothing to begin: add --optimizer.anneal-steps and "
            "--optimizer.anneal-after-steps"
        )
    if job.topology == "inline":
        _check_inline(job)
    else:
        _check_async(job)
        check_platform()


def _check_inline(job: Job) -> None:
    for key, usual in ASYNC_ONLY.items():
        if (value := _read(job, key)) != usual:
            raise UserError(
                f"{flag_of(key)} {value} needs actors in processes of their own: add --topology async, or leave it out"
            )
    if job.evaluator.every_minutes:
        raise UserError(
            f"--evaluator.every-minutes {job.evaluator.every_minutes:g} needs an evaluator beside training: add "
            "--topology async, or use --evaluate-every-steps"
        )


def _check_async(job: Job) -> None:
    if is_registered(job.env.id):
        raise UserError(
            f"env {job.env.id!r} is registered in this process only, and --topology async has others: use --topology "
            "inline, or --env module:id"
        )
    if job.algorithm.replay is None:
        raise UserError(
            "--topology async needs a replay memory, for its actors play with weights some updates old, and an "
            "on-policy algorithm learns only from what the newest weights played: use --topology inline"
        )
    if job.limits.target_eval_return is not None and job.evaluator.every_minutes == 0.0:
        raise UserError(
            "--target-eval-return needs evaluations, but --evaluator.every-minutes 0 plays none: leave it out"
        )
    if job.anneal_at_return is not None:
        raise UserError(
            f"--anneal-at-return {job.anneal_at_return:g} needs learner and returns in one process: use "
            "--topology inline, or leave it out"
        )
    if job.evaluate_every_steps:
        raise UserError(
            f"--evaluate-every-steps {job.evaluate_every_steps} would halt training, and --topology async evaluates "
            "beside it: use --evaluator.every-minutes"
        )
    if job.pacing == "lockstep" and job.actors != 1:
        raise UserError(
            f"--pacing lockstep takes turns with one actor, not with {job.actors}: use --actors 1, or --pacing held"
        )
    if job.pacing == "lockstep" and job.push != "step":
        raise UserError(
            f"--pacing lockstep learns after every step, but --push {job.push} keeps steps back: use --push step, or "
            "--pacing held"
        )


def envs_of_each_actor(job: Job) -> int:
    """Return how many envs each actor plays; refuse numbers that do not fit each other."""
    asked = job.actor.envs
    if asked and asked * job.actors != job.num_envs:
        raise UserError(
            f"--actors {job.actors} × --actor.envs {asked} are {asked * job.actors} envs, not --num-envs "
            f"{job.num_envs}: leave --num-envs or --actor.envs out"
        )
    each, left = divmod(job.num_envs, job.actors)
    if left or not each:
        raise UserError(
            f"--num-envs {job.num_envs} can't be shared out evenly among --actors {job.actors}: use --num-envs "
            f"{job.actors * (each + 1)}, or --actor.envs {max(1, each)} in its place"
        )
    return each


def share_out(job: Job, typed: Collection[str]) -> Job:
    """Return the job in which numbers of envs that were not typed give way to those that were."""
    if "actor.envs" not in typed:
        return _write(job, {"actor.envs": 0}) if {"actors", "num-envs"} & set(typed) else job
    if "num-envs" in typed or not job.actor.envs:
        return job
    actors = 1 if job.topology == "inline" else job.actors  # more are refused or, on a resume, given up
    return replace(job, num_envs=actors * job.actor.envs)


# Resuming


def reopened(job: Job, typed: Mapping[str, str]) -> Job:
    """Return a saved job with auto-filled settings reset to None, so that the flags of a resume can set them."""
    devices = {key: _read(job, key) for key in ("learner.device", "actor.device", "evaluator.device")}
    common = job.device if job.device != "auto" else "cuda" if "cuda" in devices.values() else "cpu"
    usual = dict.fromkeys(devices, common if job.topology == "inline" else "cpu") | {"learner.device": common}
    open_again: dict[str, Any] = {key: None for key, device in devices.items() if device == usual[key]}
    if job.topology == "inline":  # all roles were where the learner is
        open_again |= {"actor.device": None, "evaluator.device": None}
    if typed.get("topology", job.topology) != job.topology:
        open_again["evaluator.every_minutes"] = None
    if job.pacing == "lockstep" and typed.get("pacing", "lockstep") != "lockstep":
        open_again["actor.sync_steps"] = SYNC_STEPS
    return _write(job, open_again)


def carry_over(before: Job, after: Job) -> tuple[Job, list[Adjustment]]:
    """Return the job of a resume without what only its former topology had, and each setting that this changes."""
    if after.topology == before.topology:
        return after, []
    left: dict[str, Any] = {"evaluate_every_steps": 0}
    why = "--topology async evaluates beside training"
    if after.topology == "inline":
        place = after.learner.device
        why = "--topology inline is one process"
        left = ASYNC_ONLY | {"evaluator.every_minutes": 0.0, "actor.device": place, "evaluator.device": place}
        after = _write(after, {"actor.envs": 0})
    adjustments = []
    for key, usual in left.items():
        value = _read(after, key)
        if value in (None, usual) or value != _read(before, key):  # the user asked for a new value: leave it
            continue
        said = str(usual) if usual is not None else "the learner's"
        adjustments.append(Adjustment(flag_of(key).removeprefix("--"), str(value), said, why))
        after = _write(after, {key: usual})
    return after, adjustments


def _read(job: Job, key: str) -> Any:
    role, _, name = key.rpartition(".")
    return getattr(getattr(job, role) if role else job, name)


def _write(job: Job, settings: Mapping[str, Any]) -> Job:
    for key, value in settings.items():
        role, _, name = key.rpartition(".")
        job = replace(job, **{role: replace(getattr(job, role), **{name: value})} if role else {name: value})
    return job

"""Who runs where in a job: what contradicts itself is refused, what was left open is filled in."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from redline.envs.catalog import is_registered
from redline.errors import UserError
from redline.experience.shared_lanes import check_platform
from redline.runtime.job import Job
from redline.runtime.roles import EVALUATION_EVERY_MINUTES, TARGET_EVALUATION_EVERY_MINUTES, ActorConfig, usable_cores
from redline.types import Adjustment

SYNC_STEPS = ActorConfig.sync_steps
# what only --topology async has, and the value with which inline is as it is
ASYNC_ONLY: dict[str, Any] = {
    "actors": Job.actors,
    "push": Job.push,
    "pacing": Job.pacing,
    "actor.sync_steps": SYNC_STEPS,
}


def settle_roles(job: Job, *, is_image: bool) -> tuple[Job, list[Adjustment]]:
    """Return the job with envs, threads and intervals of every role, and what acts otherwise than it was asked."""
    is_async, cores, envs = job.topology == "async", usable_cores(), envs_of_each_actor(job)
    every_minutes = job.evaluator.every_minutes
    if every_minutes is None:
        has_target = job.limits.target_eval_return is not None
        usual = TARGET_EVALUATION_EVERY_MINUTES if has_target else EVALUATION_EVERY_MINUTES
        every_minutes = usual if is_async else 0.0
    actor = replace(job.actor, envs=envs, threads=job.actor.threads or min(cores, envs))
    learner = replace(job.learner, threads=job.learner.threads or (cores if is_image else 1))
    job = replace(job, actor=actor, learner=learner, evaluator=replace(job.evaluator, every_minutes=every_minutes))
    if job.pacing != "lockstep" or actor.sync_steps == 1:
        return job, []
    why = "in lockstep an actor has the newest weights at every step"
    said = Adjustment("actor.sync-steps", str(actor.sync_steps), "1", why)
    return replace(job, actor=replace(actor, sync_steps=1)), [said]


def check_topology(job: Job) -> None:
    """Refuse what the topology of a job has no use for, or can't do."""
    if job.anneal_at_return is not None and not job.algorithm.annealed_from():
        raise UserError(
            f"--anneal-at-return {job.anneal_at_return:g} has nothing to begin: add --optimizer.anneal-steps and "
            "--optimizer.anneal-after-steps"
        )
    if job.topology == "inline":
        _check_inline(job)
        return
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
    check_platform()


def _check_inline(job: Job) -> None:
    for key, usual in ASYNC_ONLY.items():
        if (value := _read(job, key)) != usual:
            raise UserError(
                f"{_flag(key)} {value} needs actors in processes of their own: add --topology async, or leave it out"
            )
    if job.evaluator.every_minutes:
        raise UserError(
            f"--evaluator.every-minutes {job.evaluator.every_minutes:g} needs an evaluator beside training: add "
            "--topology async, or use --evaluate-every-steps"
        )


def envs_of_each_actor(job: Job) -> int:
    """Return how many envs each actor plays, or say why that is no whole number or not what was asked for."""
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
    """Return the job in which the numbers of envs that were not typed give way to those that were."""
    if "actor.envs" not in typed:
        return replace(job, actor=replace(job.actor, envs=0)) if {"actors", "num-envs"} & set(typed) else job
    if "num-envs" in typed or not job.actor.envs:
        return job
    actors = 1 if job.topology == "inline" else job.actors  # more are refused or, on a resume, given up
    return replace(job, num_envs=actors * job.actor.envs)


def reopened(job: Job, typed: Mapping[str, str]) -> Job:
    """Return the job of a saved run with open again what Redline had filled in and the flags of a resume may decide."""
    devices = {key: _read(job, key) for key in ("learner.device", "actor.device", "evaluator.device")}
    common = job.device if job.device != "auto" else "cuda" if "cuda" in devices.values() else "cpu"
    open_again: dict[str, Any] = {key: None for key, device in devices.items() if device == common}
    if job.topology == "inline":  # all were where the learner is
        open_again |= {"actor.device": None, "evaluator.device": None}
    if typed.get("topology", job.topology) != job.topology:
        open_again["evaluator.every_minutes"] = None
    if job.pacing == "lockstep" and typed.get("pacing", "lockstep") != "lockstep":
        open_again["actor.sync_steps"] = SYNC_STEPS
    for key, value in open_again.items():
        job = _write(job, key, value)
    return job


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
        after = _write(after, "actor.envs", 0)
    adjustments = []
    for key, usual in left.items():
        value = _read(after, key)
        if value in (None, usual) or value != _read(before, key):  # a new value was asked for: not ours to change
            continue
        said = str(usual) if usual is not None else "the learner's"
        adjustments.append(Adjustment(_flag(key).removeprefix("--"), str(value), said, why))
        after = _write(after, key, usual)
    return after, adjustments


def _read(job: Job, key: str) -> Any:
    role, _, name = key.rpartition(".")
    return getattr(getattr(job, role) if role else job, name)


def _write(job: Job, key: str, value: Any) -> Job:
    role, _, name = key.rpartition(".")
    return replace(job, **{role: replace(getattr(job, role), **{name: value})} if role else {name: value})


def _flag(key: str) -> str:
    return f"--{key.replace('_', '-')}"

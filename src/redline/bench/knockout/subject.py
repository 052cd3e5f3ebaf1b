"""The training that is profiled: its real parts brought to where learning goes on, and what was recorded on the way."""

from __future__ import annotations

from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from math import ceil
from typing import Any, NamedTuple

import torch

from redline.algorithms.family import ActorExtras
from redline.bench.knockout.record_keeping import RecordKeeping
from redline.bench.knockout.replacing import tapped
from redline.learner import batch_tensors
from redline.runtime.config import Job
from redline.runtime.training import InlineWorld, Trainer
from redline.types import AnyBatch, VectorStep

RECORDED_STEPS = 32  # vector steps whose results are given back when the envs are left out
RECORDED_BYTES = 128 * 1024**2  # of frames at most
FINEST_PERIOD_STEPS = 64


class Recorded(NamedTuple):
    """What the parts gave while nothing was left out."""

    steps: list[VectorStep]
    extras: ActorExtras  # of the last action
    batch: AnyBatch
    priorities: torch.Tensor
    group: int  # batches that were drawn at once, at most


@dataclass(frozen=True)
class Subject:
    """A training under way, with the records that a run keeps."""

    trainer: Trainer
    world: InlineWorld
    records: RecordKeeping
    recorded: Recorded
    period_steps: int  # vector steps after which as many updates are due again, or nearly so

    @property
    def updates_per_period(self) -> float:
        """Updates that a period brings in the long run."""
        job = self.trainer.job
        return self.period_steps * job.algorithm.updates_per_vector_step(job.num_envs)

    def play(self, vector_steps: int) -> None:
        """Train on, and wait for the device to have done it."""
        train(self.trainer, self.records, vector_steps)


def train(trainer: Trainer, records: RecordKeeping, vector_steps: int) -> None:
    """Take some vector steps as a session does, and learn from a rollout that they made full.

    The next vector step would begin with that. Learnt from here, no rollout is played without a part and learnt from
    with it, or the other way round.
    """
    for _ in range(vector_steps):
        records.step()
    if trainer.source.learns_before_acting:
        trainer.learn()
    if trainer.learner.device.type == "cuda":
        torch.cuda.synchronize(trainer.learner.device)


def period_steps(job: Job) -> int:
    """Return after how many vector steps as many updates are due again: turns of whole periods do the same work.

    Where no short period is that regular, the best one is taken, in which something is learnt.
    """
    if (rollout_steps := job.algorithm.paces().get("rollout_steps")) is not None:
        return int(rollout_steps)
    updates = job.algorithm.updates_per_vector_step(job.num_envs)
    if updates * FINEST_PERIOD_STEPS < 1:
        return ceil(1 / updates)
    return Fraction(updates).limit_denominator(FINEST_PERIOD_STEPS).denominator


def prepare(trainer: Trainer, records: RecordKeeping) -> Subject:
    """Play the warm-up or the first rollout, then one period and more with an ear to every part."""
    period = period_steps(trainer.job)
    trainer.begin()
    if trainer.source.memory is None:  # turns begin where rollouts do
        train(trainer, records, period)
    while trainer.counters.steps <= trainer.job.algorithm.warmup_steps:
        train(trainer, records, 1)
    world = trainer.world
    if not isinstance(world, InlineWorld):
        raise TypeError(f"knock-outs are made in one process, not in a {type(world).__name__}")
    recorded = _record(trainer, world, records, period)
    return Subject(trainer=trainer, world=world, records=records, recorded=recorded, period_steps=period)


def _record(trainer: Trainer, world: InlineWorld, records: RecordKeeping, period: int) -> Recorded:
    steps: list[VectorStep] = []
    extras: deque[ActorExtras] = deque(maxlen=1)
    updates: deque[tuple[AnyBatch, torch.Tensor]] = deque(maxlen=1)
    groups: list[int] = []
    step_bytes = 2 * world.actor.obs.nbytes // world.spec.stack  # frames, and the first ones of what comes next
    most_steps = max(min(RECORDED_STEPS, RECORDED_BYTES // step_bytes), 1)

    def keep_step(_: tuple[Any, ...], step: VectorStep) -> None:
        if len(steps) < most_steps:
            steps.append(replace(step, **{field.name: getattr(step, field.name).copy() for field in fields(step)}))

    with ExitStack() as stack:
        stack.enter_context(tapped(world.env, "recv", keep_step))
        stack.enter_context(tapped(world.actor, "choose", lambda _, choice: extras.append(choice[1])))
        stack.enter_context(tapped(trainer.learner, "precompute_targets", lambda args, _: groups.append(len(args[0]))))
        stack.enter_context(tapped(trainer.learner, "update", lambda args, result: updates.append((args[0], result))))
        while len(steps) < most_steps or len(groups) < 2:  # the first group after the warm-up may be a small one
            train(trainer, records, period)
    batch, priorities = updates[0]
    cloned: dict[str, Any] = {name: value.clone() for name, value in batch_tensors(batch).items()}
    return Recorded(
        steps=steps,
        extras=replace(extras[0], features=None),  # can be learnt from once
        batch=replace(batch, **cloned),  # the loader would write the next one over it
        priorities=priorities.clone(),
        group=max(groups),
    )

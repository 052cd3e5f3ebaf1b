"""The training that is profiled: its real parts, warmed up, and samples of what they return."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from math import ceil
from typing import Any, NamedTuple

import torch

from redline.algorithms.family import ActorExtras
from redline.bench.recorded_training import RecordedTraining
from redline.learner import batch_tensors
from redline.runtime.config import Job
from redline.runtime.training import InlineWorld, Trainer
from redline.types import AnyBatch, VectorStep

RECORDED_STEPS = 32  # vector steps whose results are given back when the envs are left out
RECORDED_BYTES = 128 * 1024**2  # of frames at most
FINEST_PERIOD_STEPS = 64

Tap = Callable[[tuple[Any, ...], Any], None]


class Recorded(NamedTuple):
    """What the parts returned while nothing was left out."""

    steps: list[VectorStep]
    extras: ActorExtras  # of the newest action
    batch: AnyBatch
    priorities: torch.Tensor
    group: int  # the most batches that were drawn at once


@dataclass(frozen=True)
class Subject:
    """A training that has begun to learn, recorded as a run is."""

    training: RecordedTraining
    world: InlineWorld
    recorded: Recorded
    period_steps: int  # vector steps after which as many updates are due again, or nearly so

    @property
    def trainer(self) -> Trainer:
        """The trainer."""
        return self.training.trainer

    @property
    def updates_per_period(self) -> float:
        """Mean updates in a period."""
        job = self.trainer.job
        return self.period_steps * job.algorithm.updates_per_vector_step(job.num_envs)

    def play(self, vector_steps: int) -> None:
        """Train for so many vector steps, and wait for the device."""
        train(self.training, vector_steps)


def train(training: RecordedTraining, vector_steps: int) -> None:
    """Take some vector steps as a session does, and learn from the rollout that they filled.

    A session would learn from it at the beginning of the next vector step. Learnt from here, no rollout is played with
    a part left out and learnt from with that part in place, or the other way round.
    """
    trainer = training.trainer
    for _ in range(vector_steps):
        training.step()
    if trainer.source.learns_before_acting:
        trainer.learn()
    if trainer.learner.device.type == "cuda":
        torch.cuda.synchronize(trainer.learner.device)


def period_steps(job: Job) -> int:
    """Return after how many vector steps as many updates are due again, so that turns of whole periods do equal work.

    Where no short period is exactly regular, return the best one that holds an update.
    """
    if (rollout_steps := job.algorithm.paces().get("rollout_steps")) is not None:
        return int(rollout_steps)
    updates = job.algorithm.updates_per_vector_step(job.num_envs)
    if updates * FINEST_PERIOD_STEPS < 1:
        return ceil(1 / updates)
    return Fraction(updates).limit_denominator(FINEST_PERIOD_STEPS).denominator


def prepare(training: RecordedTraining) -> Subject:
    """Play the warm-up or the first rollout, then record what every part returns for a period or more."""
    trainer = training.trainer
    period = period_steps(trainer.job)
    trainer.begin()
    if trainer.source.memory is None:  # turns begin where rollouts do
        train(training, period)
    while trainer.counters.steps <= trainer.job.algorithm.warmup_steps:
        train(training, 1)
    world = trainer.world
    if not isinstance(world, InlineWorld):
        raise TypeError(f"knock-outs need one process, not a {type(world).__name__}")
    recorded = _record(training, world, period)
    return Subject(training=training, world=world, recorded=recorded, period_steps=period)


def _record(training: RecordedTraining, world: InlineWorld, period: int) -> Recorded:
    trainer = training.trainer
    steps: list[VectorStep] = []
    extras: deque[ActorExtras] = deque(maxlen=1)
    updates: deque[tuple[AnyBatch, torch.Tensor]] = deque(maxlen=1)
    groups: list[int] = []
    step_bytes = 2 * world.actor.obs.nbytes // world.spec.stack  # frames, and the first frames of the next episodes
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
            train(training, period)
    batch, priorities = updates[0]
    cloned: dict[str, Any] = {name: value.clone() for name, value in batch_tensors(batch).items()}
    return Recorded(
        steps=steps,
        extras=replace(extras[0], features=None),  # can be learnt from once
        batch=replace(batch, **cloned),  # the loader would write the next one over it
        priorities=priorities.clone(),
        group=max(groups),
    )


@contextmanager
def replaced(owner: object, name: str, stand_in: object) -> Iterator[None]:
    """Replace a method of `owner`, which may be a module, for a while: the training has no switch of its own for it."""
    own = vars(owner)
    is_own, before = name in own, own.get(name)
    setattr(owner, name, stand_in)
    try:
        yield
    finally:
        if is_own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)


@contextmanager
def tapped(owner: object, name: str, keep: Tap) -> Iterator[None]:
    """Pass the arguments and the result of each call of a method to `keep`."""
    method = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        keep(args, result)
        return result

    with replaced(owner, name, call):
        yield

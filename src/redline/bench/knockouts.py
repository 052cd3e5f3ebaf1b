"""The training that `redline profile` measures, and its variants, each without one part but at the same pace."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import cycle, repeat
from math import ceil
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from redline.algorithms.family import ActorExtras, ActorParams, batch_tensors
from redline.bench.training_speed import RecordedTraining
from redline.runtime.config import Job
from redline.runtime.counters import Counters
from redline.runtime.sources import ReplaySource, RolloutSource
from redline.runtime.training import InlineWorld, Trainer
from redline.types import AnyBatch, IntArray, RolloutBatch, VectorStep

FULL = "full"
RECORDED_STEPS = 32  # vector steps that are replayed when the envs are left out
RECORDED_BYTES = 128 * 1024**2  # of frames at most
FINEST_PERIOD_STEPS = 64

Variant = Callable[["Subject"], AbstractContextManager[Any]]


@contextmanager
def together(*contexts: AbstractContextManager[Any]) -> Iterator[None]:
    """Enter several contexts."""
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


@contextmanager
def tapped(owner: object, name: str, keep: Callable[[tuple[Any, ...], Any], None]) -> Iterator[None]:
    """Pass the arguments and the result of each call of a method to `keep`."""
    method = getattr(owner, name)

    def call(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        keep(args, result)
        return result

    with patch.object(owner, name, call):
        yield


@dataclass(frozen=True)
class Recorded:
    """What the parts returned in the full training."""

    steps: list[VectorStep]
    extras: ActorExtras  # of the newest action
    batch: AnyBatch
    priorities: torch.Tensor
    group: int  # the most batches drawn at once


@dataclass(frozen=True)
class Subject:
    """A training that has begun to learn and records like a run."""

    training: RecordedTraining
    world: InlineWorld
    recorded: Recorded
    period_steps: int  # vector steps with (nearly) equally many updates

    @property
    def trainer(self) -> Trainer:
        """The trainer."""
        return self.training.trainer

    @property
    def updates_per_period(self) -> float:
        """Mean updates in a period."""
        job = self.trainer.job
        return self.period_steps * job.algorithm.updates_per_vector_step(job.num_envs)

    def play(self, vector_steps: int, variant: str = FULL) -> None:
        """Train for some vector steps without one part, and wait for the device."""
        with VARIANTS[variant](self):
            train(self.training, vector_steps)


def train(training: RecordedTraining, vector_steps: int) -> None:
    """Take some vector steps as a session does, and learn from the rollout that they fill.

    A session would learn at the beginning of the next vector step. Learning here keeps playing and learning of one
    rollout within one variant.
    """
    trainer = training.trainer
    for _ in range(vector_steps):
        training.step()
    if trainer.source.learns_before_acting:
        trainer.learn()
    if trainer.learner.device.type == "cuda":
        torch.cuda.synchronize(trainer.learner.device)


def period_steps(job: Job) -> int:
    """Return the number of vector steps in which equally many updates fall due, so that whole periods do equal work.

    If no short period is exact, return the best one with an update.
    """
    if (rollout_steps := job.algorithm.paces().get("rollout_steps")) is not None:
        return int(rollout_steps)
    updates = job.algorithm.updates_per_vector_step(job.num_envs)
    if updates * FINEST_PERIOD_STEPS < 1:
        return ceil(1 / updates)
    return Fraction(updates).limit_denominator(FINEST_PERIOD_STEPS).denominator


def prepare(training: RecordedTraining) -> Subject:
    """Play the warm-up or the first rollout, then record what every part returns."""
    trainer, world = training.trainer, training.trainer.world
    if not isinstance(world, InlineWorld):
        raise TypeError(f"knock-outs need one process, not a {type(world).__name__}")
    period = period_steps(trainer.job)
    trainer.begin()
    if trainer.source.memory is None:  # turns begin with rollouts
        train(training, period)
    while trainer.counters.steps <= trainer.job.algorithm.warmup_steps:
        train(training, 1)
    return Subject(training, world, _record(training, world, period), period)


def _record(training: RecordedTraining, world: InlineWorld, period: int) -> Recorded:
    learner, newest = training.trainer.learner, dict[str, Any]()
    steps: list[VectorStep] = []
    groups: list[int] = []
    step_bytes = 2 * world.actor.obs.nbytes // world.spec.stack  # frames, and the first frames of the next episodes
    most_steps = max(min(RECORDED_STEPS, RECORDED_BYTES // step_bytes), 1)

    def keep_step(_: tuple[Any, ...], step: VectorStep) -> None:
        if len(steps) < most_steps:
            steps.append(VectorStep(**{name: value.copy() for name, value in vars(step).items()}))

    with together(
        tapped(world.env, "recv", keep_step),
        tapped(world.actor, "choose", lambda _, choice: newest.update(extras=choice[1])),
        tapped(learner, "precompute_targets", lambda args, _: groups.append(len(args[0]))),
        tapped(learner, "update", lambda args, result: newest.update(batch=args[0], priorities=result)),
    ):
        while len(steps) < most_steps or len(groups) < 2:  # the first group after the warm-up may be small
            train(training, period)
    cloned = {name: value.clone() for name, value in batch_tensors(newest["batch"]).items()}
    return Recorded(
        steps=steps,
        extras=replace(newest["extras"], features=None),  # usable only once
        batch=replace(newest["batch"], **cloned),  # the loader reuses its buffers
        priorities=newest["priorities"].clone(),
        group=max(groups),
    )


# Variants: each replaces a part by something cheap


def do_nothing(*_: object, **__: object) -> None:
    """Stand in for a method that returns nothing."""


def constant_batch(subject: Subject) -> AbstractContextManager[Any]:
    """Learn from the same batch whenever one is due, without drawing, gathering or priorities."""
    source, batch, group = subject.trainer.source, subject.recorded.batch, subject.recorded.group
    if isinstance(source, RolloutSource) and isinstance(batch, RolloutBatch):  # advantages are still computed

        def batches(whole: RolloutBatch, *, num_batches: int, **_: object) -> Iterator[AnyBatch]:
            return repeat(replace(batch, features=whole.features), num_batches)

        return patch.object(source.buffer, "batches", batches)
    if not isinstance(source, ReplaySource):
        raise TypeError(f"no batch of a {type(source).__name__} can be held constant")

    def batches_due(counters: Counters) -> Iterator[list[AnyBatch]]:
        due = source.pacing.updates_due(
            steps=counters.steps, samples=counters.samples, batch_size=source.num_samples(batch)
        )
        for start in range(0, due, group):
            yield [batch] * min(group, due - start)

    return together(
        patch.object(source, "batches_due", batches_due), patch.object(source.sampler, "wants_priorities", new=False)
    )


def no_optimiser(subject: Subject) -> AbstractContextManager[Any]:
    """Compute gradients without updating the weights."""
    return patch.object(subject.trainer.learner.optimizer, "step", do_nothing)


def no_backward(subject: Subject) -> AbstractContextManager[Any]:
    """Compute losses without gradients: every backward pass of PyTorch goes through this function."""
    return together(no_optimiser(subject), patch.object(torch.autograd, "backward", do_nothing))


def no_loss(subject: Subject) -> AbstractContextManager[Any]:
    """Draw batches without learning from them."""
    learner, priorities = subject.trainer.learner, subject.recorded.priorities

    def precompute_targets(batches: Sequence[AnyBatch]) -> list[None]:
        return [None] * len(batches)

    def update(batch: AnyBatch, **_: object) -> torch.Tensor:
        return priorities

    return together(
        patch.object(learner, "precompute_targets", precompute_targets), patch.object(learner, "update", update)
    )


def no_env(subject: Subject) -> AbstractContextManager[Any]:
    """Return recorded steps immediately."""
    env = subject.world.env
    recorded = cycle(subject.recorded.steps)
    return together(patch.object(env, "send", do_nothing), patch.object(env, "recv", recorded.__next__))


def no_acting(subject: Subject) -> AbstractContextManager[Any]:
    """Act at random; a rollout gets recorded outputs of the network.

    A learner that reuses the forward pass of acting then computes its own, so this pass is not saved.
    """
    spec, num_envs, extras = subject.world.spec, subject.world.num_envs, subject.recorded.extras

    def choose(params: ActorParams, rng: np.random.Generator) -> tuple[IntArray, ActorExtras]:
        return rng.integers(spec.num_actions, size=num_envs), extras

    return patch.object(subject.world.actor, "choose", choose)


# unittest's patch replaces methods for a while, so the training needs no switches
VARIANTS: Mapping[str, Variant] = {
    FULL: lambda _: nullcontext(),
    "constant_batch": constant_batch,
    "no_optimiser": no_optimiser,
    "no_backward": no_backward,
    "no_loss": no_loss,
    "no_env": no_env,
    "no_acting": no_acting,
    "no_records": lambda subject: subject.training.without_records(),
    "no_env_no_loss": lambda subject: together(no_env(subject), no_loss(subject)),  # which may overlap
}

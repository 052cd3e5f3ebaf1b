"""The variants of a training that are measured: each leaves one thing out and keeps the pace of the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import cycle, repeat

import numpy as np
import torch

from redline.algorithms.family import ActorExtras, ActorParams
from redline.bench.knockout.subject import Subject, replaced
from redline.runtime.counters import Counters
from redline.runtime.sources import ReplaySource, RolloutSource
from redline.types import AnyBatch, IntArray

FULL = "full"

Variant = Callable[[Subject], AbstractContextManager[None]]


def do_nothing(*_: object, **__: object) -> None:
    """Stand in for a method that returns nothing."""


def whole(_: Subject) -> AbstractContextManager[None]:
    """Leave nothing out."""
    return nullcontext()


def constant_batch(subject: Subject) -> AbstractContextManager[None]:
    """Learn from the same batch each time one is due."""
    source = subject.trainer.source
    if isinstance(source, RolloutSource):
        return _constant_rollout(subject, source)
    if isinstance(source, ReplaySource):
        return _constant_draw(subject, source)
    raise TypeError(f"no batch of a {type(source).__name__} can be held constant")


def _constant_rollout(subject: Subject, source: RolloutSource) -> AbstractContextManager[None]:
    """Neither shuffle nor gather rows; advantages are computed all the same."""

    def batches(*_: object, num_batches: int, **__: object) -> Iterator[AnyBatch]:
        return repeat(subject.recorded.batch, num_batches)

    return replaced(source.buffer, "batches", batches)


@contextmanager
def _constant_draw(subject: Subject, source: ReplaySource) -> Iterator[None]:
    """Neither draw nor gather rows, nor keep their priorities."""
    batch, group = subject.recorded.batch, subject.recorded.group

    def batches_due(counters: Counters) -> Iterator[list[AnyBatch]]:
        due = source.pacing.updates_due(
            steps=counters.steps, samples=counters.samples, batch_size=source.num_samples(batch)
        )
        for start in range(0, due, group):
            yield [batch] * min(group, due - start)

    with replaced(source, "batches_due", batches_due), replaced(source.sampler, "wants_priorities", stand_in=False):
        yield


def no_optimiser(subject: Subject) -> AbstractContextManager[None]:
    """Compute gradients, but leave the weights as they are."""
    return replaced(subject.trainer.learner.optimizer, "step", do_nothing)


@contextmanager
def no_backward(subject: Subject) -> Iterator[None]:
    """Compute losses, but no gradients."""
    # every backward pass of PyTorch goes through this function
    with no_optimiser(subject), replaced(torch.autograd, "backward", do_nothing):
        yield


@contextmanager
def no_loss(subject: Subject) -> Iterator[None]:
    """Draw batches, but learn nothing from them."""
    learner = subject.trainer.learner

    def precompute_targets(batches: Sequence[AnyBatch]) -> list[None]:
        return [None] * len(batches)

    def update(batch: AnyBatch, **_: object) -> torch.Tensor:
        return subject.recorded.priorities

    with replaced(learner, "precompute_targets", precompute_targets), replaced(learner, "update", update):
        yield


@contextmanager
def no_env(subject: Subject) -> Iterator[None]:
    """Return recorded steps at once."""
    env = subject.world.env
    with replaced(env, "send", do_nothing), replaced(env, "recv", cycle(subject.recorded.steps).__next__):
        yield


def no_acting(subject: Subject) -> AbstractContextManager[None]:
    """Act at random; a rollout gets recorded outputs of the network.

    A learner that reuses the forward pass of acting then computes its own, so that pass is not saved.
    """
    spec, num_envs, extras = subject.world.spec, subject.world.num_envs, subject.recorded.extras

    def choose(params: ActorParams, rng: np.random.Generator) -> tuple[IntArray, ActorExtras]:
        return rng.integers(spec.num_actions, size=num_envs), extras

    return replaced(subject.world.actor, "choose", choose)


def no_records(subject: Subject) -> AbstractContextManager[None]:
    """Record nothing, and stop the monitor."""
    return subject.training.without_records()


@contextmanager
def no_env_no_loss(subject: Subject) -> Iterator[None]:
    """Leave out both envs and learner, which may work at the same time."""
    with no_env(subject), no_loss(subject):
        yield


VARIANTS: Mapping[str, Variant] = {
    FULL: whole,
    "constant_batch": constant_batch,
    "no_optimiser": no_optimiser,
    "no_backward": no_backward,
    "no_loss": no_loss,
    "no_env": no_env,
    "no_acting": no_acting,
    "no_records": no_records,
    "no_env_no_loss": no_env_no_loss,
}

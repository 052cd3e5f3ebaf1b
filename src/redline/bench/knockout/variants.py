"""The variants of a training that are measured: each leaves something out, and is otherwise paced as the real one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import cycle, repeat

import numpy as np
import torch

from redline.algorithms.family import ActorExtras, ActorParams
from redline.bench.knockout.replacing import do_nothing, replaced
from redline.bench.knockout.subject import Subject
from redline.runtime.counters import Counters
from redline.runtime.sources import ReplaySource, RolloutSource
from redline.types import AnyBatch, IntArray

FULL = "full"

Variant = Callable[[Subject], AbstractContextManager[None]]


def whole(_: Subject) -> AbstractContextManager[None]:
    """Leave nothing out."""
    return nullcontext()


def constant_batch(subject: Subject) -> AbstractContextManager[None]:
    """Learn from the same batch again and again, as often as batches are due."""
    source = subject.trainer.source
    if isinstance(source, RolloutSource):
        return _constant_rollout(subject, source)
    if isinstance(source, ReplaySource):
        return _constant_draw(subject, source)
    raise TypeError(f"no batch of a {type(source).__name__} can be held constant")


def _constant_rollout(subject: Subject, source: RolloutSource) -> AbstractContextManager[None]:
    """Neither shuffle rows nor gather them; what they are worth is computed all the same."""

    def batches(*_: object, num_batches: int, **__: object) -> Iterator[AnyBatch]:
        return repeat(subject.recorded.batch, num_batches)

    return replaced(source.buffer, "batches", batches)


@contextmanager
def _constant_draw(subject: Subject, source: ReplaySource) -> Iterator[None]:
    """Neither draw rows nor gather them, nor keep their priorities."""
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
    # whatever a learner computes, this is where PyTorch goes from a loss to gradients
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
    """Give back at once what the envs once gave."""
    env = subject.world.env
    with replaced(env, "send", do_nothing), replaced(env, "recv", cycle(subject.recorded.steps).__next__):
        yield


def no_acting(subject: Subject) -> AbstractContextManager[None]:
    """Act at random; a rollout is told what the network said once.

    Where the learner goes on from the forward pass of acting, it makes one of its own then: nothing is saved by that.
    """
    spec, num_envs, extras = subject.world.spec, subject.world.num_envs, subject.recorded.extras

    def choose(params: ActorParams, rng: np.random.Generator) -> tuple[IntArray, ActorExtras]:
        return rng.integers(spec.num_actions, size=num_envs), extras

    return replaced(subject.world.actor, "choose", choose)


def no_records(subject: Subject) -> AbstractContextManager[None]:
    """Write nothing, and let nobody watch."""
    return subject.records.left_out()


@contextmanager
def no_env_no_loss(subject: Subject) -> Iterator[None]:
    """Leave out both of what may go on at the same time."""
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

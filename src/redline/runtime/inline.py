"""Actor, experience and learner by turns in one process: the reference topology.

One vector step: (1) act, (2) send, (3) run the updates that are due, drawing only from transitions complete before
this step, (4) receive, (5) append. The emulators run from (2) to (4), on their own threads, while the learner learns.
A full rollout is learnt from before (1) instead, so that the next action comes from the newest weights.
Between (5) and (1) everything stands still, and only there is a checkpoint taken.
"""

import math
from collections.abc import Iterator
from dataclasses import fields

import torch

from redline.algorithms.family import ActorParams
from redline.envs.vector import VectorEnv
from redline.learner import Learner, NonFiniteError, describe_batch
from redline.runtime.actor import Actor, Episode
from redline.runtime.counters import Counters, Scores
from redline.runtime.job import Job
from redline.runtime.randomness import Purpose, stream
from redline.runtime.sources import Source
from redline.types import AnyBatch


class InlineTrainer:
    """The three parts of a run and its counters."""

    def __init__(self, job: Job, *, env: VectorEnv, env_seed: int, source: Source, learner: Learner) -> None:
        self.job = job
        self.env = env
        self.env_seed = env_seed  # of the keys with which the envs are seeded
        self.source = source
        self.learner = learner
        self.actor = Actor(env, state_width=learner.online.state_width)
        self.counters = Counters()
        self.scores = Scores()
        self._last_batch: AnyBatch | None = None

    def close(self) -> None:
        """Give back what the parts hold."""
        self.source.close()
        self.env.close()

    def begin(self) -> None:
        """Start an episode in every lane."""
        first_frames = self.env.reset()
        self.source.begin(first_frames)
        self.actor.begin(first_frames)

    @property
    def epsilon(self) -> float:
        """Return how random the next action will be."""
        return 1.0 if self._is_warmup else self.job.algorithm.explore.epsilon_at(self.counters.steps)

    @property
    def _is_warmup(self) -> bool:
        return self.counters.steps < self.job.algorithm.warmup_steps

    def vector_step(self) -> list[Episode]:
        """Take one step in every lane, learn what is due, and return the episodes that ended."""
        counters, actor = self.counters, self.actor
        self._learn(self.source.before_acting(counters, actor.obs))
        params = ActorParams(
            self.job.algorithm, self.learner.online, self.epsilon, self.learner.device, is_warmup=self._is_warmup
        )
        rng = stream(self.job.seed, Purpose.ACT, counters.vector_steps)
        actions, extras = actor.choose(params, rng)
        self.env.send(actions)
        self._learn(self.source.while_stepping(counters))
        step = self.env.recv()
        self.source.append(obs=actor.obs, actions=actions, extras=extras, step=step)
        episodes = actor.observe(step)
        counters.steps += self.env.num_envs
        counters.vector_steps += 1
        counters.episodes += len(episodes)
        for episode in episodes:
            self.scores.add(episode.total_reward)
        return episodes

    def _learn(self, batches: Iterator[AnyBatch]) -> None:
        counters, source, device = self.counters, self.source, self.learner.device
        for batch in batches:
            self._last_batch = batch
            rng = stream(self.job.seed, Purpose.LEARN, counters.updates)
            on_device = batch if device.type == "cpu" else _to_device(batch, device)
            priorities = self.learner.update(on_device, steps=counters.steps, rng=rng)
            if source.wants_priorities:
                sizes = priorities.cpu().numpy()
                self.check_loss(float(sizes.max()))  # a priority that is no number would spoil the whole tree
                source.learnt(sizes)
            counters.updates += 1
            counters.samples += source.num_samples(batch)

    def check_loss(self, loss: float | None) -> None:
        """Stop where the mean loss is no number, with what can be said about it."""
        if loss is None or math.isfinite(loss):
            return
        names = ", ".join(self.learner.non_finite_weights()) or "none"
        batch = "none" if self._last_batch is None else describe_batch(self._last_batch)
        raise NonFiniteError(
            f"the loss is {loss} at step {self.counters.steps:,}, update {self.counters.updates:,}; "
            f"non-finite weights: {names}; last batch: {batch}; a lower --optimizer.lr may help"
        )


def _to_device(batch: AnyBatch, device: torch.device) -> AnyBatch:
    return type(batch)(**{field.name: getattr(batch, field.name).to(device) for field in fields(batch)})

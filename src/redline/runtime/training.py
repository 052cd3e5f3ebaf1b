"""One vector step after another, whoever plays: act, learn what is due, keep what was played.

One vector step: (1) act, (2) send, (3) run the updates that are due, drawing only from transitions complete before
this step, (4) receive, (5) append. The envs run from (2) to (4) while the learner learns. A full rollout is learnt from
before (1) instead, so that the next action comes from the newest weights.
Between (5) and (1) everything stands still, and only there is a checkpoint taken.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from redline.algorithms.family import ActorParams
from redline.envs.vector import Progress
from redline.learner import Learner, NonFiniteError, batch_tensors, describe_batch
from redline.runtime.actor import Episode
from redline.runtime.counters import Counters, Scores
from redline.runtime.job import Job
from redline.runtime.phases import Stopwatch
from redline.runtime.randomness import Purpose, stream
from redline.runtime.sources import Source
from redline.types import AnyBatch, Array, EnvSpec


class Played(NamedTuple):
    """What came of a vector step."""

    steps: int
    episodes: list[Episode]


class Turn(NamedTuple):  # made at every vector step: a dataclass would take several times as long
    """What a world is given for one vector step: who acts, how far the run is, and who keeps what is played."""

    policy: ActorParams
    rng: Callable[[], np.random.Generator]  # of the actions
    source: Source
    steps: int
    updates: int


class WorldRestored(NamedTuple):
    """How far a world came back."""

    lost: list[str]
    first_frames: Array | None  # [N, *frame] of envs that start anew; None if their episodes go on


class World(Protocol):
    """The envs and who plays them: here, or in other processes."""

    @property
    def spec(self) -> EnvSpec:
        """What a network and a replay memory must know."""
        ...

    @property
    def num_envs(self) -> int:
        """Lanes."""
        ...

    @property
    def waited_s(self) -> Mapping[str, float]:
        """Seconds waited so far, by what for."""
        ...

    def begin(self) -> Array | None:
        """Start an episode in every lane; return the first frames, None if they come with the first steps."""
        ...

    def start_step(self, turn: Turn) -> None:
        """Let the next vector step be played."""
        ...

    def finish_step(self, turn: Turn) -> Played:
        """Hand what was played since to the source of the turn."""
        ...

    def state(self) -> dict[str, Array]:
        """Return what a checkpoint keeps."""
        ...

    def restore(self, arrays: dict[str, Array], progress: Progress | None) -> WorldRestored:
        """Go on from what `state` gave."""
        ...


class Trainer:
    """The parts of a run and its counters."""

    def __init__(
        self,
        job: Job,
        *,
        world: World,
        env_seed: int | None,
        source: Source,
        learner: Learner,
        after_update: Callable[[], None] = lambda: None,
        resources: ExitStack | None = None,
    ) -> None:
        """Take the parts, and the `resources` that they hold: closing the trainer gives those back."""
        self.job = job
        self.world = world
        self.env_seed = env_seed  # of the keys with which the envs are seeded; None if they are seeded elsewhere
        self.source = source
        self.learner = learner
        self._after_update = after_update
        self._resources = resources or ExitStack()
        self.counters = Counters()
        self.scores = Scores()
        self.phases = Stopwatch()
        self._stray_steps = 0  # that make no whole vector step yet
        self._last_batch: AnyBatch | None = None

    @property
    def spec(self) -> EnvSpec:
        """What a network and a replay memory must know of the envs."""
        return self.world.spec

    def close(self) -> None:
        """Give back what the parts hold."""
        self._resources.close()

    def begin(self) -> None:
        """Start an episode in every lane."""
        first_frames = self.world.begin()
        if first_frames is not None:
            self.source.begin(first_frames)

    @property
    def epsilon(self) -> float:
        """Return how random the next action will be."""
        return epsilon_at(self.job, self.counters.steps)

    @property
    def waited_s(self) -> dict[str, float]:
        """Seconds waited so far, by what for."""
        return {**self.world.waited_s, "gather": self.source.waited_s}

    def turn(self) -> Turn:
        """Return what the world is given for the next vector step."""
        job, counters, learner = self.job, self.counters, self.learner
        policy = ActorParams(
            job.algorithm,
            learner.online,
            self.epsilon,
            learner.device,
            is_warmup=is_warmup(job, counters.steps),
            keeps_features=self.source.keeps_features,
        )
        rng = partial(stream, job.seed, Purpose.ACT, counters.vector_steps)
        return Turn(policy, rng, self.source, counters.steps, counters.updates)

    def vector_step(self) -> list[Episode]:
        """Let one step be played, learn what is due, and return the episodes that ended."""
        counters, phases = self.counters, self.phases
        phases.lap("other")
        if self.source.learns_before_acting:
            self.learn()
        turn = self.turn()
        self.world.start_step(turn)
        phases.lap("act")
        if not self.source.learns_before_acting:
            self.learn()
        steps, episodes = self.world.finish_step(turn)
        phases.lap("keep")
        counters.steps += steps
        whole, self._stray_steps = divmod(self._stray_steps + steps, self.world.num_envs)
        counters.vector_steps += whole
        counters.episodes += len(episodes)
        if self.source.pacing.is_free:
            counters.free_steps, counters.free_samples = counters.steps, counters.samples
        for episode in episodes:
            self.scores.add(episode.total_reward, time_s=counters.time_s, length_steps=episode.length_steps)
        if episodes:
            self._skip_ahead()
        return episodes

    def _skip_ahead(self) -> None:
        """Let the schedules begin to fall, if the return that they wait for has come."""
        wanted, newest = self.job.anneal_at_return, self.scores.newest_mean
        ahead_steps = self.job.algorithm.annealed_from() - self.counters.schedule_steps
        if wanted is not None and newest is not None and newest >= wanted and ahead_steps > 0:
            self.counters.skipped_steps += ahead_steps

    def learn(self) -> None:
        """Learn what is due."""
        device = self.learner.device
        for group in self.source.batches_due(self.counters):
            self.phases.lap("draw")
            batches = group if device.type == "cpu" else [_to_device(batch, device) for batch in group]
            for batch, foreseen in zip(batches, self.learner.foresee(batches), strict=True):
                self._learn_from(batch, foreseen)
            self.phases.lap("learn")
        self.phases.lap("draw")

    def _learn_from(self, batch: AnyBatch, foreseen: torch.Tensor | None) -> None:
        counters, source = self.counters, self.source
        self._last_batch = batch
        rng = stream(self.job.seed, Purpose.LEARN, counters.updates)
        priorities = self.learner.update(batch, steps=counters.schedule_steps, rng=rng, foreseen=foreseen)
        if (take_priorities := source.take_priorities) is not None:
            sizes = priorities.cpu().numpy()
            self.check_loss(float(sizes.max()))  # a priority that is no number would spoil the whole tree
            take_priorities(sizes)
        counters.updates += 1
        counters.samples += source.num_samples(batch)
        self._after_update()

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


def is_warmup(job: Job, steps: int) -> bool:
    """Tell whether actions are drawn at random after so many steps, because nothing was learnt yet."""
    return steps < job.algorithm.warmup_steps


def epsilon_at(job: Job, steps: int) -> float:
    """Return how random an action is after so many steps."""
    return 1.0 if is_warmup(job, steps) else job.algorithm.explore.epsilon_at(steps)


def _to_device(batch: AnyBatch, device: torch.device) -> AnyBatch:
    moved: dict[str, Any] = {name: value.to(device) for name, value in batch_tensors(batch).items()}
    return replace(batch, **moved)

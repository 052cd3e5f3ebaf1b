"""Actor, memory and learner by turns in one process: the reference topology.

One vector step: (1) act, (2) send, (3) run the updates that are due, drawing only from transitions complete before
this step, (4) receive, (5) append. The emulators run from (2) to (4), on their own threads, while the learner learns.
Between (5) and (1) everything stands still, and only there is a checkpoint taken.
"""

import math

import torch

from redline.algorithms.q_learning import ActorParams
from redline.envs.vector import VectorEnv
from redline.experience import BatchLoader, ReplayMemory
from redline.learner import Learner, NonFiniteError, describe_batch
from redline.runtime.actor import Actor, Episode
from redline.runtime.counters import Counters, Scores
from redline.runtime.job import Job
from redline.runtime.pacing import Pacing
from redline.runtime.randomness import Purpose, stream
from redline.types import Batch, Draw


class InlineTrainer:
    """The three parts of a run and its counters."""

    def __init__(self, job: Job, *, env: VectorEnv, env_seed: int, memory: ReplayMemory, learner: Learner) -> None:
        algorithm = job.algorithm
        self.job = job
        self.env = env
        self.env_seed = env_seed  # of the keys with which the envs are seeded
        self.memory = memory
        self.learner = learner
        self.actor = Actor(env)
        self.counters = Counters()
        self.scores = Scores()
        self.pacing = Pacing(samples_per_step=algorithm.samples_per_step, warmup_steps=algorithm.warmup_steps)
        self.sampler = algorithm.sample.build(memory)
        self.loader = BatchLoader(
            memory,
            batch_size=algorithm.batch_size,
            n_steps=algorithm.returns.n,
            gamma=algorithm.returns.gamma,
            clip_rewards=algorithm.returns.clip_rewards,
            prefetch=algorithm.replay.prefetch,
            pin_memory=learner.device.type == "cuda",
        )
        self._last_batch: Batch | None = None

    def close(self) -> None:
        """Give back what the parts hold."""
        self.loader.close()
        self.env.close()
        self.memory.close()

    def begin(self) -> None:
        """Start an episode in every lane."""
        first_frames = self.env.reset()
        self.memory.begin(self.memory.lanes, first_frames)
        self.actor.begin(first_frames)

    @property
    def epsilon(self) -> float:
        """Return how random the next action will be."""
        steps = self.counters.steps
        return 1.0 if steps < self.pacing.warmup_steps else self.job.algorithm.explore.epsilon_at(steps)

    def vector_step(self) -> list[Episode]:
        """Take one step in every lane, learn what is due, and return the episodes that ended."""
        counters = self.counters
        params = ActorParams(self.learner.online, self.job.algorithm.predict, self.epsilon, self.learner.device)
        rng = stream(self.job.seed, Purpose.ACT, counters.vector_steps)
        actions = self.actor.choose(params, rng)
        self.env.send(actions)
        self._learn()
        step = self.env.recv()
        self.memory.append(
            self.memory.lanes,
            actions=actions,
            reward=step.reward,
            return_ends=step.terminated | step.life_lost,
            episode_ends=step.ended,
            frames=step.frames,
            first_frames=step.first_frames,
        )
        episodes = self.actor.observe(step)
        counters.steps += self.env.num_envs
        counters.vector_steps += 1
        counters.episodes += len(episodes)
        for episode in episodes:
            self.scores.add(episode.total_reward)
        return episodes

    def _learn(self) -> None:
        counters, batch_size = self.counters, self.job.algorithm.batch_size
        if self.memory.num_sampleable == 0:
            return
        due = self.pacing.updates_due(steps=counters.steps, samples=counters.samples, batch_size=batch_size)
        for _ in range(due):
            draw, batch = self._next_batch()
            priorities = self.learner.update(batch)
            if self.sampler.wants_priorities:
                sizes = priorities.cpu().numpy()
                self.check_loss(float(sizes.max()))  # a priority that is no number would spoil the whole tree
                self.sampler.update(draw.handles, sizes)
            counters.updates += 1
            counters.samples += batch_size

    def _next_batch(self) -> tuple[Draw, Batch]:
        """Draw exactly `prefetch` updates ahead, and return the batch whose turn it is."""
        counters = self.counters
        while self.loader.is_due:
            rng = stream(self.job.seed, Purpose.DRAW, counters.batches_drawn)
            beta = self.job.algorithm.sample.beta_at(counters.steps)
            self.loader.submit(self.sampler.draw(rng, self.job.algorithm.batch_size, beta=beta))
            counters.batches_drawn += 1
        draw, batch = self.loader.next()
        self._last_batch = batch
        return draw, batch if self.learner.device.type == "cpu" else _to_device(batch, self.learner.device)

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


def _to_device(batch: Batch, device: torch.device) -> Batch:
    return Batch(
        frames=batch.frames.to(device),
        offset=batch.offset.to(device),
        action=batch.action.to(device),
        reward=batch.reward.to(device),
        discount=batch.discount.to(device),
        weight=batch.weight.to(device),
    )

"""An actor as a process: it plays its envs with recent weights, and pushes its steps and episodes to the learner."""

from dataclasses import dataclass, replace

import numpy as np
import torch

from redline.algorithms.family import ActorParams
from redline.envs.catalog import allow_module, make_vector_env
from redline.envs.vector import VectorEnv
from redline.replay.shared_lanes import LaneWriter
from redline.runtime.actor import Actor, Episode
from redline.runtime.config import Job
from redline.runtime.processes.messages import Outbox, encode_letter
from redline.runtime.processes.shared_parts import SharedParts
from redline.runtime.processes.shared_status import FIRST_ACTOR, LEARNER, STARTING_S, Slot
from redline.runtime.randomness import Purpose, stream
from redline.runtime.training import epsilon_at, is_warmup
from redline.types import IntArray, VectorStep

ACTOR = 0x6163746F  # part of the seeds of envs: never change it


@dataclass(frozen=True)
class ActorKit:
    """What an actor is given when it starts."""

    job: Job
    index: int
    env_seed: int
    first_vector_step: int
    parts: SharedParts


def actor_seed(job: Job, *, index: int, incarnation: int, steps: int) -> int:
    """Return the seed of an actor's envs: the run's seed for the only actor of a new run, else one of its own."""
    if job.actors == 1 and incarnation == 0 and steps == 0:
        return job.seed
    return int(np.random.SeedSequence([job.seed, ACTOR, index, incarnation, steps]).generate_state(1)[0] >> 1)


def run_actor(kit: ActorKit, outbox: Outbox) -> None:
    """Play until the run ends."""
    job = kit.job
    allow_module(job.env.id)  # the supervisor was allowed to
    torch.set_flush_denormal(True)
    torch.set_num_threads(1)  # small batches gain nothing from more
    slot = Slot(kit.parts.status, FIRST_ACTOR + kit.index)
    slot.beat(STARTING_S)  # some envs start slowly
    env = make_vector_env(job.env, num_envs=job.actor.envs, seed=kit.env_seed, threads=job.actor.threads)
    player = _Player(kit, env, slot, outbox)
    player.begin()
    while not kit.parts.status.is_stopped and slot.wait_until(lambda: player.writer.may_step, on="learner"):
        slot.beat()
        player.step()


class _Player:
    """The actor's loop."""

    def __init__(self, kit: ActorKit, env: VectorEnv, slot: Slot, outbox: Outbox) -> None:
        job = kit.job
        self._kit, self._job, self._env, self._slot, self._outbox = kit, job, env, slot, outbox
        self._device = torch.device(job.actor.device or "cpu")
        self._network = job.algorithm.build_network(env.spec, torch.Generator()).requires_grad_(False).to(self._device)
        first_lane = kit.index * job.actor.envs
        self._actor = Actor(env, state_width=self._network.state_width, recording=job.recording, first_lane=first_lane)
        self.writer = LaneWriter(kit.parts.lanes, np.arange(first_lane, first_lane + job.actor.envs))
        self._version = kit.parts.weights.read(self._network.state_dict())
        self._vector_step = kit.first_vector_step
        self._steps_since_sync = 0
        self._warned_of_size = False

    def begin(self) -> None:
        first_frames = self._env.reset()
        if self._slot.wait_until(lambda: self.writer.may_begin, on="learner"):
            self.writer.begin(first_frames)
            self._kit.parts.status.bells[LEARNER].ring()
        self._actor.begin(first_frames)

    def step(self) -> None:
        job, status, slot = self._job, self._kit.parts.status, self._slot
        self._sync()
        steps = status.run_steps
        params = ActorParams(
            job.algorithm, self._network, epsilon_at(job, steps), self._device, is_warmup=is_warmup(job, steps)
        )
        rng = stream(job.seed, Purpose.ACT, self._vector_step * job.actors + self._kit.index)
        actions, _ = self._actor.choose(params, rng)
        slot.acted_with(self._version.updates)
        self._env.send(actions)
        with slot.waiting("envs"):
            step = self._env.recv()
        episodes = self._actor.observe(step)
        self._steps_since_sync += self._env.num_envs
        self._vector_step += 1
        if self._steps_since_sync >= job.actor.sync_steps:
            self._kit.parts.weights.ask(slot.index)
        if self._push(actions, step, [self._letter_of(episode) for episode in episodes]):
            status.bells[LEARNER].ring()
        slot.played(self._env.num_envs)

    def _letter_of(self, episode: Episode) -> bytes:
        letter, most = encode_letter(episode), self._kit.parts.lanes.largest_letter_bytes
        if len(letter) <= most:
            return letter
        if not self._warned_of_size:
            self._warned_of_size = True
            said = f"an episode of {episode.length_steps:,} steps takes {len(letter):,} bytes, more than {most:,}"
            self._outbox.send("warning", message=f"{said}: such episodes count, but are not recorded")
        return encode_letter(replace(episode, trace=None))

    def _push(self, actions: IntArray, step: VectorStep, letters: list[bytes]) -> bool:
        return self.writer.append(
            actions=actions,
            reward=step.reward,
            return_ends=step.return_ends,
            episode_ends=step.ended,
            frames=step.frames,
            first_frames=step.first_frames,
            letters=letters,
        )

    def _sync(self) -> None:
        """Read newer weights, if it is time and there are any."""
        weights = self._kit.parts.weights
        if self._steps_since_sync >= self._job.actor.sync_steps and weights.number > self._version.number:
            self._version = weights.read(self._network.state_dict())
            self._steps_since_sync = 0

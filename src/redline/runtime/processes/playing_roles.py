"""The processes that play: an actor, which pushes its steps and episodes to the learner, and the evaluator."""

from dataclasses import replace

import numpy as np
import torch

from redline.algorithms.family import ActorParams
from redline.envs.catalog import allow_module, make_vector_env
from redline.envs.vector import VectorEnv
from redline.networks import Network
from redline.replay.shared_lanes import LaneWriter
from redline.runtime.actor import Actor, Episode, StoppedWhileEvaluatingError
from redline.runtime.config import Job
from redline.runtime.evaluation import TIME_SHARE, Evaluator, NumberedEvaluation
from redline.runtime.processes.process_pool import Outbox
from redline.runtime.processes.shared_parts import SharedParts, SharedWeights, encode_letter
from redline.runtime.processes.shared_status import EVALUATOR, FIRST_ACTOR, LEARNER, STARTING_S, Slot
from redline.runtime.randomness import Purpose, stream
from redline.runtime.training import epsilon_at, is_warmup
from redline.types import EnvSpec

ACTOR = 0x6163746F  # part of the seeds of envs: never change it


def actor_seed(job: Job, *, index: int, incarnation: int, steps: int) -> int:
    """Return the seed of an actor's envs: the run's seed for the only actor of a new run, else one of its own."""
    if job.actors == 1 and incarnation == 0 and steps == 0:
        return job.seed
    return int(np.random.SeedSequence([job.seed, ACTOR, index, incarnation, steps]).generate_state(1)[0] >> 1)


def run_actor(
    job: Job, parts: SharedParts, outbox: Outbox, *, index: int, env_seed: int, first_vector_step: int
) -> None:
    """Play until the run ends."""
    slot = _prepare(job, parts, FIRST_ACTOR + index, threads=1)  # small batches gain nothing from more threads
    env = make_vector_env(job.env, num_envs=job.actor.envs, seed=env_seed, threads=job.actor.threads)
    player = _Player(job, parts, outbox, env, slot, index=index, first_vector_step=first_vector_step)
    player.begin()
    while not parts.status.is_stopped and slot.wait_until(lambda: player.writer.may_step, on="learner"):
        slot.beat()
        player.step()


def _prepare(job: Job, parts: SharedParts, index: int, *, threads: int) -> Slot:
    """Make the settings of a process that plays, and show its first heartbeat."""
    slot = Slot(parts.status, index)
    slot.beat(STARTING_S)  # some envs start slowly
    allow_module(job.env.id)  # the supervisor was allowed to
    torch.set_flush_denormal(True)
    torch.set_num_threads(threads)
    return slot


class _Player:
    """The envs of an actor, its network, and its way to the learner."""

    def __init__(
        self,
        job: Job,
        parts: SharedParts,
        outbox: Outbox,
        env: VectorEnv,
        slot: Slot,
        *,
        index: int,
        first_vector_step: int,
    ) -> None:
        self._job, self._parts, self._outbox, self._env, self._slot = job, parts, outbox, env, slot
        self._index = index
        self._vector_step = first_vector_step
        self._device = torch.device(job.actor.device or "cpu")
        self._network = job.algorithm.build_network(env.spec, torch.Generator()).requires_grad_(False).to(self._device)
        first_lane = index * job.actor.envs
        self._actor = Actor(env, state_width=self._network.state_width, recording=job.recording, first_lane=first_lane)
        self.writer = LaneWriter(parts.lanes, np.arange(first_lane, first_lane + job.actor.envs))
        self._version = parts.weights.read(self._network.state_dict())
        self._steps_since_sync = 0
        self._warned_of_size = False

    def begin(self) -> None:
        first_frames = self._env.reset()
        if self._slot.wait_until(lambda: self.writer.may_begin, on="learner"):
            self.writer.begin(first_frames)
            self._parts.status.bells[LEARNER].ring()
        self._actor.begin(first_frames)

    def step(self) -> None:
        job, status, slot = self._job, self._parts.status, self._slot
        self._sync()
        steps = status.run_steps
        params = ActorParams(
            job.algorithm, self._network, epsilon_at(job, steps), self._device, is_warmup=is_warmup(job, steps)
        )
        rng = stream(job.seed, Purpose.ACT, self._vector_step * job.actors + self._index)
        actions, _ = self._actor.choose(params, rng)
        slot.acted_with(self._version.updates)
        self._env.send(actions)
        with slot.waiting("envs"):
            step = self._env.recv()
        episodes = self._actor.observe(step)
        self._steps_since_sync += self._env.num_envs
        self._vector_step += 1
        if self._steps_since_sync >= job.actor.sync_steps:
            self._parts.weights.ask(slot.index)
        is_pushed = self.writer.append(
            actions=actions,
            reward=step.reward,
            return_ends=step.return_ends,
            episode_ends=step.ended,
            frames=step.frames,
            first_frames=step.first_frames,
            letters=[self._letter_of(episode) for episode in episodes],
        )
        if is_pushed:
            status.bells[LEARNER].ring()
        slot.played(self._env.num_envs)

    def _letter_of(self, episode: Episode) -> bytes:
        letter, most = encode_letter(episode), self._parts.lanes.largest_letter_bytes
        if len(letter) <= most:
            return letter
        if not self._warned_of_size:
            self._warned_of_size = True
            said = f"an episode of {episode.length_steps:,} steps takes {len(letter):,} bytes, more than {most:,}"
            self._outbox.send("warning", message=f"{said}: such episodes count, but are not recorded")
        return encode_letter(replace(episode, trace=None))

    def _sync(self) -> None:
        """Read newer weights, if it is time and there are any."""
        weights = self._parts.weights
        if self._steps_since_sync >= self._job.actor.sync_steps and weights.number > self._version.number:
            self._version = weights.read(self._network.state_dict())
            self._steps_since_sync = 0


def run_evaluator(
    job: Job, parts: SharedParts, outbox: Outbox, *, spec: EnvSpec, evaluations: int, wait_s: float
) -> None:
    """Evaluate again and again until the run ends: after `evaluations` earlier ones, the first time in `wait_s`."""
    status, slot = parts.status, _prepare(job, parts, EVALUATOR, threads=job.evaluator.threads)

    def send(evaluation: NumberedEvaluation) -> None:
        outbox.send("evaluation", evaluation=evaluation)
        slot.beat(STARTING_S)  # confirming games make new envs

    def requested_stop() -> str | None:  # called before every vector step
        slot.beat()
        slot.played(evaluator.num_envs)
        return "the run ended" if status.is_stopped else None

    evaluator = Evaluator(job, spec, evaluations, finished=send)
    while not status.is_stopped:
        slot.wait_until(lambda: False, on="rest", timeout_s=wait_s)
        weights_steps = _read_weights(parts.weights, evaluator.network, slot)
        slot.beat(STARTING_S)  # an evaluation makes new envs
        try:
            evaluator.evaluate(weights_steps, requested_stop)
        except StoppedWhileEvaluatingError:
            return
        slot.beat()
        wait_s = (job.evaluator.every_minutes or 0.0) * 60
        if job.limits.target_eval_return is not None:
            wait_s = max(wait_s, evaluator.spent_s * (1.0 / TIME_SHARE - 1.0))


def _read_weights(weights: SharedWeights, network: Network, slot: Slot) -> int:
    """Give the network the newest weights, and return the steps at which they were taken."""
    before = weights.number
    weights.ask(EVALUATOR)
    # there is none if the learner has done no update since
    slot.wait_until(lambda: weights.number > before, on="learner", timeout_s=5.0)
    return weights.read(network.state_dict()).steps

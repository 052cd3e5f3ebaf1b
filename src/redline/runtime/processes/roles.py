"""The processes of a run: the learner, actors that push steps and episodes to it, and the evaluator.

The learner owns the replay memory, takes in the actors' steps, learns, and saves checkpoints.
"""

import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from redline.algorithms.family import ActorParams
from redline.envs.catalog import allow_module, make_vector_env
from redline.envs.vector import VectorEnv
from redline.errors import CheckpointError
from redline.networks import Network
from redline.replay.shared_lanes import LaneWriter, SharedLanes
from redline.runs.checkpoints import CheckpointStore
from redline.runs.directory import SharedLock
from redline.runtime.actor import Actor, Episode, StoppedWhileEvaluatingError
from redline.runtime.building import build_learner, build_source, prepare_process
from redline.runtime.config import Job
from redline.runtime.counters import TAKES_PER_UPDATE, Purpose, stream
from redline.runtime.evaluation import TIME_SHARE, Evaluator, NumberedEvaluation
from redline.runtime.loop import Loop
from redline.runtime.precision import acted_in, allow_tf32
from redline.runtime.processes.process_pool import Outbox
from redline.runtime.processes.shared import (
    EVALUATOR,
    FIRST_ACTOR,
    LEARNER,
    STARTING_S,
    WAITS,
    SharedParts,
    SharedWeights,
    Slot,
    decode_letter,
    encode_letter,
)
from redline.runtime.resolve import ResolvedJob
from redline.runtime.training import Trainer, Turn, epsilon_at, is_warmup
from redline.types import Array, EnvSpec, Progress

PATIENCE_S = 0.1  # for steps of actors, before the learner looks for orders
SYNC_PATIENCE_S = 30.0  # for the supervisor to write rows to the disk
SAVING_S = 600.0  # for a checkpoint on a slow disk
RESTORING_S = 3_600.0  # to restore one
ACTOR = 0x6163746F  # part of the seeds of envs: never change it


class RingWorld:
    """The world of a learner whose actors are other processes: rings that they fill, weights that they ask for."""

    def __init__(
        self, spec: EnvSpec, *, lanes: SharedLanes, weights: SharedWeights, slot: Slot, envs_per_actor: int
    ) -> None:
        self.spec = spec
        self.num_envs = len(lanes)
        self._lanes = lanes
        self._weights = weights
        self._slot = slot
        self._actor_of = np.arange(len(lanes)) // envs_per_actor  # [lanes]
        self._published_updates = -1

    @property
    def waited_s(self) -> dict[str, float]:
        """Seconds waited so far for actors."""
        return {"actors": float(self._slot.status.waited_s[self._slot.index, WAITS.index("actors")])}

    def publish(self, turn: Turn) -> None:
        """Publish the learner's weights as the newest version."""
        self._weights.publish(turn.policy.network.state_dict(), updates=turn.updates, steps=turn.steps)
        self._published_updates = turn.updates
        self._slot.status.bells[EVALUATOR].ring()  # it may wait for them

    def start_step(self, turn: Turn) -> None:
        """Publish the weights if a process asks for newer ones, and give actors room whose steps were taken."""
        status = self._slot.status
        is_new = turn.updates != self._published_updates
        # before room is given: a slow actor in lockstep must not see later weights
        if is_new and self._lanes.has_taken and self._weights.is_wanted:
            self.publish(turn)
        status.show_progress(steps=turn.steps, updates=turn.updates)
        for actor in np.unique(self._actor_of[self._lanes.release()]).tolist():
            status.bells[FIRST_ACTOR + actor].ring()

    def finish_step(self, turn: Turn) -> tuple[int, list[Episode]]:
        """Take in a step of each lane that has one; wait for steps if no update is due."""
        source = turn.source
        if source.memory is None:
            raise ValueError("actors in other processes need a replay memory to write to")
        is_free = source.pacing.is_free
        if not (is_free and source.pacing.is_learning(turn.steps) and source.memory.num_sampleable):
            is_there = self._slot.wait_until(lambda: self._lanes.has_steps, on="actors", timeout_s=PATIENCE_S)
            if not is_there:
                return 0, []
        taken = [self._lanes.take(source.memory)]
        while is_free and taken[-1].steps and len(taken) < TAKES_PER_UPDATE:
            taken.append(self._lanes.take(source.memory))
        letters = [pair for part in taken for pair in zip(part.letters, part.lanes.tolist(), strict=True)]
        return sum(part.steps for part in taken), [decode_letter(letter, lane) for letter, lane in letters]

    def state(self) -> dict[str, Array]:
        """Return nothing: the state of the actors' envs is not saved."""
        return {}

    def restore(self, arrays: dict[str, Array], progress: Progress | None) -> tuple[list[str], None]:
        """Restore nothing: the actors begin new episodes."""
        return ["with --topology async the episodes under way are cut and all envs start anew"], None


def run_learner(
    resolved: ResolvedJob,
    parts: SharedParts,
    outbox: Outbox,
    *,
    run: Path,
    lock: SharedLock,
    is_resumed: bool,
    waited_from_s: float,
) -> None:
    """Learn until the run ends, after a resume from the newest checkpoint.

    `lock` is held until this process ends. `waited_from_s` is the monotonic time of the run's `elapsed_s` 0.
    """
    job, spec, slot = resolved.job, resolved.spec, Slot(parts.status, LEARNER)
    slot.beat(RESTORING_S if is_resumed else STARTING_S)
    prepare_process(resolved)
    learner = build_learner(resolved)
    world = RingWorld(spec, lanes=parts.lanes, weights=parts.weights, slot=slot, envs_per_actor=job.actor.envs)
    source = build_source(resolved, learner, ExitStack())  # what it holds ends with this process
    trainer = Trainer(job, world=world, env_seed=None, source=source, learner=learner, after_update=slot.beat)
    store = CheckpointStore(_JoinedRun(run, slot, outbox))
    lost = trainer.restore(store.newest_valid(), store) if is_resumed else []
    world.publish(trainer.turn())
    parts.status.show_progress(steps=trainer.counters.steps, updates=trainer.counters.updates)
    duties = _Duties(trainer, store, slot, outbox, waited_from_s=waited_from_s)
    if not is_resumed:
        duties.save()  # a run that can't save is refused before its first step
    outbox.send("ready", lost=lost)
    duties.run()


class _Duties:
    """The learner's loop: it takes steps, sends readings, and carries out orders."""

    def __init__(
        self, trainer: Trainer, store: CheckpointStore, slot: Slot, outbox: Outbox, *, waited_from_s: float
    ) -> None:
        self._waited_from_s = waited_from_s
        self._trainer = trainer
        self._store = store
        self._slot = slot
        self._outbox = outbox
        self._loop = Loop(trainer, folder=store.path, role="learner", waited_from_s=waited_from_s)
        self._saves = slot.status.saves_ordered
        self._is_limit_reported = False

    def run(self) -> None:
        status = self._slot.status
        self._loop.begin()
        while not status.is_stopped:
            self._slot.beat()
            if status.saves_ordered > self._saves:
                self._saves = status.saves_ordered
                self._tell_reading()
                self.save()
            if status.is_finishing and status.saves_ordered == self._saves:
                self._slot.wait_until(lambda: False, on="rest")
                break
            if self._is_at_limit():
                self._slot.wait_until(lambda: status.saves_ordered > self._saves, on="rest", timeout_s=1.0)
                continue
            if episodes := self._loop.step():
                counters = self._trainer.counters
                self._outbox.send("episodes", steps=counters.steps, time_s=counters.time_s, episodes=episodes)
            if self._loop.reading_is_due():
                self._tell_reading()

    def save(self) -> None:
        begun_s = time.monotonic()
        self._slot.beat(SAVING_S)
        self._slot.status.read_evaluations(self._trainer.counters, self._trainer.scores)
        self._trainer.counters.elapsed_s = time.monotonic() - self._waited_from_s
        try:
            path = self._trainer.save(self._store)
        except CheckpointError as error:
            self._outbox.send("save-failed", order=self._saves, message=str(error))
        else:
            steps, stalled_s = self._trainer.counters.steps, time.monotonic() - begun_s
            self._outbox.send("saved", order=self._saves, path=str(path), steps=steps, stalled_s=stalled_s)

    def _is_at_limit(self) -> bool:
        reason = self._trainer.limit_reached(invocation_s=self._loop.invocation_s)
        if reason is not None and not self._is_limit_reported:
            self._is_limit_reported = True
            self._outbox.send("limit", reason=reason)
        return reason is not None

    def _tell_reading(self) -> None:
        trainer, status = self._trainer, self._slot.status
        status.read_evaluations(trainer.counters, trainer.scores)
        gauges = self._loop.read()
        status.waited_s[LEARNER, WAITS.index("gather")] = trainer.source.waited_s
        learning = trainer.counters.learning_steps_per_s
        self._outbox.send("reading", gauges=gauges, learning_steps_per_s=learning)
        if (adjustment := self._loop.take_adjustment()) is not None:
            self._outbox.send("adjustment", message=adjustment)


class _JoinedRun:
    """The run directory as the learner sees it: the supervisor writes its files."""

    def __init__(self, path: Path, slot: Slot, outbox: Outbox) -> None:
        self.path = path
        self._slot = slot
        self._outbox = outbox
        self._syncs = 0  # asked for

    def sync_records(self) -> None:
        """Return when the supervisor has synced all rows that it was sent."""
        status = self._slot.status
        self._syncs += 1
        self._outbox.send("sync", number=self._syncs)
        if not self._slot.wait_until(lambda: status.sync_answered == self._syncs, on="rest", timeout_s=SYNC_PATIENCE_S):
            raise CheckpointError("the supervisor did not write the records out: no checkpoint is saved")
        if status.sync_failed == self._syncs:
            raise CheckpointError("the records can't be written: no checkpoint is saved")


# Actors and evaluator


def actor_seed(job: Job, *, index: int, incarnation: int, steps: int) -> int:
    """Return the seed of an actor's envs: the run's seed for the only actor of a new run, else one of its own."""
    if job.actors == 1 and incarnation == 0 and steps == 0:
        return job.seed
    return int(np.random.SeedSequence([job.seed, ACTOR, index, incarnation, steps]).generate_state(1)[0] >> 1)


def run_actor(
    job: Job, parts: SharedParts, outbox: Outbox, *, index: int, env_seed: int, first_vector_step: int
) -> None:
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
    allow_tf32(allowed=job.learner.tf32 and index != EVALUATOR)
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
        self._network.precision = acted_in(job, self._device)
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

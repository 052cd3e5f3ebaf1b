"""The learner as a process: it owns the replay memory, takes in the actors' steps, learns, and saves checkpoints."""

import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from redline.errors import CheckpointError
from redline.learner import Learner
from redline.replay.shared_lanes import SharedLanes
from redline.runs.checkpoints import CheckpointStore
from redline.runs.directory import SharedLock
from redline.runtime.actor import Episode
from redline.runtime.building import build_source, prepare_process
from redline.runtime.counters import TAKES_PER_UPDATE
from redline.runtime.loop import Loop
from redline.runtime.processes.process_pool import Outbox
from redline.runtime.processes.shared_parts import SharedParts, SharedWeights, decode_letter
from redline.runtime.processes.shared_status import EVALUATOR, FIRST_ACTOR, LEARNER, STARTING_S, WAITS, Slot
from redline.runtime.resolve import ResolvedJob
from redline.runtime.training import Trainer, Turn
from redline.types import Array, EnvSpec, Progress

PATIENCE_S = 0.1  # for steps of actors, before the learner looks for orders
SYNC_PATIENCE_S = 30.0  # for the supervisor to write rows to the disk
SAVING_S = 600.0  # for a checkpoint on a slow disk
RESTORING_S = 3_600.0  # to restore one


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
    learner = Learner(job.algorithm, spec, seed=job.seed, device=resolved.device)
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
        """Go on until the supervisor ends the run."""
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
        """Save a checkpoint, and report success or failure."""
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

"""The learner: owns the replay memory, learns what the steps taken into it have earned, and saves checkpoints."""

import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from redline.experience.shared_lanes import SharedLanes
from redline.learner import Learner
from redline.runs.checkpoints import CheckpointStore
from redline.runs.errors import CheckpointError
from redline.runs.lock import SharedLock
from redline.runtime.actor import Episode
from redline.runtime.building import Settled, build_source, prepare_process
from redline.runtime.checkpointing import restore_checkpoint, save_checkpoint
from redline.runtime.loop import Loop
from redline.runtime.processes.board import LEARNER, STARTING_S, WAITS, Board, Place
from redline.runtime.processes.messages import Outbox, row_of
from redline.runtime.processes.ring_world import RingWorld
from redline.runtime.processes.shared_weights import SharedWeights
from redline.runtime.replay_sizing import full_replay
from redline.runtime.training import Trainer

SYNC_PATIENCE_S = 30.0  # for the supervisor to write rows to the disk
SAVING_S = 600.0  # a checkpoint may take, on a slow disk
RESTORING_S = 3_600.0  # and to bring one back


@dataclass(frozen=True)
class LearnerKit:
    """What the learner is given when it starts."""

    settled: Settled
    run: Path
    lock: SharedLock  # nobody else may have the run before the learner has ended
    is_resumed: bool  # from the newest checkpoint
    board: Board
    lanes: SharedLanes
    weights: SharedWeights
    waited_from_s: float  # monotonic time of the run's `elapsed_s` 0


def run_learner(kit: LearnerKit, outbox: Outbox) -> None:
    """Learn until the run ends."""
    job, spec, place = kit.settled.job, kit.settled.spec, Place(kit.board, LEARNER)
    place.beat(RESTORING_S if kit.is_resumed else STARTING_S)
    prepare_process(kit.settled)
    learner = Learner(job.algorithm, spec, seed=job.seed, device=kit.settled.device)
    world = RingWorld(spec, lanes=kit.lanes, weights=kit.weights, place=place, envs_per_actor=job.actor.envs)
    source = build_source(kit.settled, learner, ExitStack())  # what it holds ends with this process
    trainer = Trainer(job, world=world, env_seed=None, source=source, learner=learner, after_update=place.beat)
    store = CheckpointStore(_JoinedRun(kit.run, place, outbox))
    lost: list[str] = []
    if kit.is_resumed:
        lost = restore_checkpoint(trainer, store.newest_valid(), store)
    world.publish(trainer.turn())
    kit.board.show_progress(steps=trainer.counters.steps, updates=trainer.counters.updates)
    duties = _Duties(trainer, store, place, outbox, waited_from_s=kit.waited_from_s)
    if not kit.is_resumed:
        duties.save()  # a run that can't save is refused before its first step
    outbox.send("ready", lost=lost)
    duties.run()


class _Duties:
    """What a learner does: it steps, tells readings, and carries out orders."""

    def __init__(
        self, trainer: Trainer, store: CheckpointStore, place: Place, outbox: Outbox, *, waited_from_s: float
    ) -> None:
        self._waited_from_s = waited_from_s
        self._trainer = trainer
        self._store = store
        self._place = place
        self._outbox = outbox
        self._loop = Loop(trainer, folder=store.path, role="learner")
        self._saves = place.board.saves_ordered
        self._told_of_replay = False
        self._told_of_limit = False

    def run(self) -> None:
        """Go on until the supervisor says that it is enough."""
        board = self._place.board
        self._loop.begin()
        while not board.is_stopped:
            self._place.beat()
            if board.saves_ordered > self._saves:
                self._saves = board.saves_ordered
                self._tell_reading()
                self.save()
            if board.is_finishing and board.saves_ordered == self._saves:
                self._place.wait_until(lambda: False, on="rest")
                break
            if self._is_at_limit():
                self._place.wait_until(lambda: board.saves_ordered > self._saves, on="rest", timeout_s=1.0)
                continue
            self._tell_episodes(self._loop.step())
            if self._loop.reading_is_due():
                self._tell_reading()

    def save(self) -> None:
        """Save a checkpoint, and tell how that went."""
        begun_s = time.monotonic()
        self._place.beat(SAVING_S)
        self._note_evaluation()
        self._trainer.counters.elapsed_s = time.monotonic() - self._waited_from_s
        try:
            path = save_checkpoint(self._trainer, self._store)
        except CheckpointError as error:
            self._outbox.send("save-failed", order=self._saves, message=str(error))
        else:
            steps, stalled_s = self._trainer.counters.steps, time.monotonic() - begun_s
            self._outbox.send("saved", order=self._saves, path=str(path), steps=steps, stalled_s=stalled_s)

    def _note_evaluation(self) -> None:
        number, steps, mean = self._place.board.evaluation
        counters, scores = self._trainer.counters, self._trainer.scores
        if number > counters.evaluations:
            counters.evaluations, counters.evaluated_steps, scores.greedy = number, steps, mean
        if (solved := self._place.board.solved) is not None:
            scores.confirmed, scores.solved_target, counters.solved_s = solved

    def _is_at_limit(self) -> bool:
        trainer = self._trainer
        reason = trainer.job.limits.reached(
            trainer.counters,
            trainer.scores,
            frames_per_step=trainer.spec.frames_per_step,
            invocation_s=self._loop.invocation_s,
        )
        if reason is not None and not self._told_of_limit:
            self._told_of_limit = True
            self._outbox.send("limit", reason=reason)
        return reason is not None

    def _tell_episodes(self, episodes: list[Episode]) -> None:
        if episodes:
            counters = self._trainer.counters
            rows = [row_of(episode) for episode in episodes]
            self._outbox.send("episodes", steps=counters.steps, time_s=counters.time_s, rows=rows)

    def _tell_reading(self) -> None:
        trainer, board = self._trainer, self._place.board
        self._note_evaluation()
        gauges = self._loop.read()
        board.waited_s[LEARNER, WAITS.index("gather")] = trainer.source.waited_s
        learning = trainer.counters.learning_steps_per_s
        self._outbox.send("reading", gauges=gauges.row(), learning_steps_per_s=learning)
        adjustment = None if self._told_of_replay else full_replay(trainer.source.memory)
        if adjustment is not None:
            self._told_of_replay = True
            self._outbox.send("adjustment", message=str(adjustment))


class _JoinedRun:
    """The run directory as the learner sees it: the supervisor writes the records."""

    def __init__(self, path: Path, place: Place, outbox: Outbox) -> None:
        self.path = path
        self._place = place
        self._outbox = outbox
        self._syncs = 0  # asked for

    def sync_records(self) -> None:
        """Return when the supervisor has written out all rows that it was sent."""
        board = self._place.board
        self._syncs += 1
        self._outbox.send("sync", number=self._syncs)
        if not self._place.wait_until(lambda: board.sync_answered == self._syncs, on="rest", timeout_s=SYNC_PATIENCE_S):
            raise CheckpointError("the supervisor did not write the records out: no checkpoint is saved")
        if board.sync_failed == self._syncs:
            raise CheckpointError("the records can't be written: no checkpoint is saved")

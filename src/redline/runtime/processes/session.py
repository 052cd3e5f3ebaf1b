"""The supervisor: starts the processes of a run, takes in what they tell, replaces the lost, and ends them all."""

import os
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from typing import Self

from redline.envs.vector import EnvError
from redline.errors import UserError
from redline.experience import ReplayError
from redline.learner import NonFiniteError
from redline.runs.directory import RunDirectory
from redline.runs.errors import CheckpointError
from redline.runtime.building import Settled
from redline.runtime.counters import Counters, Scores
from redline.runtime.gauges import Gauges
from redline.runtime.loop import METRICS_INTERVAL_S, Every
from redline.runtime.processes.actor_role import ActorKit, actor_seed, run_actor
from redline.runtime.processes.board import EVALUATOR, FIRST_ACTOR, LEARNER
from redline.runtime.processes.crew import Crew, Loss
from redline.runtime.processes.evaluator_role import EvaluatorKit, run_evaluator
from redline.runtime.processes.learner_role import LearnerKit, run_learner
from redline.runtime.processes.messages import Message
from redline.runtime.processes.notebook import Notebook
from redline.runtime.processes.role_readings import RoleReadings
from redline.runtime.processes.shared_parts import SharedParts
from redline.runtime.recording import recording_setting
from redline.runtime.run_monitor import RunMonitor
from redline.runtime.session import Outcome, Readings, drain, run_out
from redline.runtime.sinks import Sinks
from redline.runtime.watching import Watcher

TICK_S = 0.2
FINAL_SAVE_S = 600.0
FAILURES_IN_A_ROW = 3  # of a process that raises an error each time, without a step in between
KILLS_IN_A_ROW = 20  # of one that something else kills each time
FAILURES_AT_ONCE = 10  # of all actors, within:
AT_ONCE_S = 300.0

ERRORS = {kind.__name__: kind for kind in (UserError, NonFiniteError, CheckpointError, EnvError, ReplayError)}


class LearnerLostError(Exception):
    """The learner ended without having been asked to; the newest checkpoint stands."""


class StoppedWhileStartingError(Exception):
    """A stop was requested before the learner was there."""


class AsyncSession(AbstractContextManager["AsyncSession"]):
    """A locked run directory, the processes of the run, and whoever watches."""

    def __init__(
        self,
        *,
        run: RunDirectory,
        settled: Settled,
        watcher: Watcher,
        counters: Counters,
        scores: Scores,
        begun_s: float,
        sinks: Sinks,
    ) -> None:
        """Take counters and scores of the newest checkpoint; the user began to wait at monotonic time `begun_s`."""
        self._waited_from_s = begun_s - counters.elapsed_s  # as if all invocations had followed each other
        self.run = run
        self.outcome: Outcome | None = None  # how it ended, once it has
        self._settled = settled
        self._job = settled.job
        self._watcher = watcher
        self._parts = SharedParts.for_job(settled.job, settled.spec)
        self._board = self._parts.board
        self._crew = Crew(self._board)
        self._notebook = Notebook(
            run,
            counters,
            board=self._board,
            readings=RoleReadings(self._crew),
            watcher=watcher,
            setting=recording_setting(settled.job, settled.spec),
            job=settled.job,
            scores=scores,
            waited_from_s=self._waited_from_s,
            sinks=sinks,
        )
        self._monitor = RunMonitor(settled.job.monitor, run.path, pid=os.getpid(), event=self.event)
        self._lives: dict[str, int] = {}  # times that each process was started
        self._idle_losses: dict[
            tuple[str, bool], int
        ] = {}  # in a row, without anything done in between; was it killed?
        self._failures_s: deque[float] = deque(maxlen=FAILURES_AT_ONCE)  # monotonic times of the newest
        self._done_at_start: dict[str, int] = {}
        self._is_new = True  # without a checkpoint, until the learner has saved the first
        self._given_up: Exception | None = None  # why the run can't go on, although its learner can

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes, and let others in."""
        self._monitor.close()
        self._crew.close()
        self._notebook.close()
        self.run.close()

    def event(self, name: str, **details: object) -> None:
        """Write down that something happened."""
        self._notebook.event(name, **details)

    # Starting

    def launch(self, *, is_resumed: bool, requested_stop: Callable[[], str | None]) -> list[str]:
        """Start the learner and wait until it can learn; return what of a checkpoint could not be brought back."""
        parts = self._parts
        self._is_new = not is_resumed
        kit = LearnerKit(
            settled=self._settled,
            run=self.run.path,
            lock=self.run.share_lock(),
            is_resumed=is_resumed,
            board=parts.board,
            lanes=parts.lanes,
            weights=parts.weights,
            waited_from_s=self._waited_from_s,
        )
        self._start("learner", LEARNER, run_learner, kit)
        kit.lock.close()
        while (lost := self._notebook.lost) is None:
            if reason := requested_stop():
                raise StoppedWhileStartingError(reason)
            self._attend()
        if self._is_new and self._notebook.save_error is not None:
            raise CheckpointError(self._notebook.save_error)
        return lost

    def _start(self, name: str, place: int, work: Callable[..., None], kit: object) -> None:
        restarts = self._lives.get(name, 0)
        self._lives[name] = restarts + 1
        self._done_at_start[name] = self._done_by(place)
        member = self._crew.start(name, place, work, kit, restarts=restarts)
        self.event("process", role=name, pid=member.pid, restarts=restarts)

    def _start_actor(self, index: int) -> None:
        name, job, parts, steps = f"actor-{index}", self._job, self._parts, self._board.run_steps
        kit = ActorKit(
            job=job,
            index=index,
            env_seed=actor_seed(job, index=index, incarnation=self._lives.get(name, 0), steps=steps),
            # a predecessor may have been ahead of what counts: other random numbers than it had
            first_vector_step=steps // job.num_envs + self._lives.get(name, 0) * parts.lanes.depth,
            board=parts.board,
            lanes=parts.lanes,
            weights=parts.weights,
        )
        self._start(name, FIRST_ACTOR + index, run_actor, kit)

    def _start_evaluator(self) -> None:
        every_s = (self._job.evaluator.every_minutes or 0.0) * 60
        kit = EvaluatorKit(
            job=self._job,
            spec=self._settled.spec,
            evaluations=self._notebook.evaluations,
            wait_s=max(0.0, self._notebook.evaluated_s + every_s - time.monotonic()),
            board=self._board,
            weights=self._parts.weights,
        )
        self._start("evaluator", EVALUATOR, run_evaluator, kit)

    # Training

    def train(self, requested_stop: Callable[[], str | None]) -> Outcome:
        """Train until a limit is reached or a stop is requested; always leave a checkpoint."""
        return drain(self.readings(requested_stop))

    def readings(self, requested_stop: Callable[[], str | None]) -> Readings:
        """Train in the same way, and yield every reading; whoever closes the generator requests a stop."""
        return run_out(self._train(requested_stop), self._finish)

    def _train(self, requested_stop: Callable[[], str | None]) -> Generator[Gauges, None, str]:
        job, notebook = self._job, self._notebook
        self.run.open_records()
        self.event("process", role="supervisor", pid=os.getpid())
        self._monitor.begin()
        for index in range(job.actors):
            self._start_actor(index)
        notebook.begin()
        if job.evaluator.every_minutes:
            self._start_evaluator()
        metrics, save = Every(METRICS_INTERVAL_S, at_once=True), Every(job.checkpoint_minutes * 60)
        told: Gauges | None = None
        while (reason := requested_stop() or notebook.limit or self._reason_to_give_up()) is None:
            self._attend()
            if metrics.is_due():
                notebook.record()
                self._monitor.attend()
            if save.is_due():
                self._board.order_save()
            if notebook.gauges is not None and notebook.gauges is not told:
                told = notebook.gauges
                yield told
        return reason

    def _reason_to_give_up(self) -> str | None:
        return None if self._given_up is None else str(self._given_up)

    def _finish(self, reason: str) -> Outcome:
        """End all but the learner, which saves a last checkpoint; raise the error of a run that gave up."""
        notebook, board = self._notebook, self._board
        notebook.is_ending = True
        self._monitor.close()
        for member in list(self._crew.members.values()):
            if member.place != LEARNER:
                self._take(self._crew.end(member))
        self.event("stop", reason=reason)
        board.order_save(is_last=True)
        end_s = time.monotonic() + FINAL_SAVE_S
        while notebook.saves_answered < board.saves_ordered and time.monotonic() < end_s:
            self._attend()
        if notebook.save_error is not None or notebook.checkpoint is None or notebook.gauges is None:
            raise CheckpointError(notebook.save_error or "the learner did not save a last checkpoint in time")
        notebook.record()
        if self._given_up is not None:
            raise self._given_up
        self.outcome = Outcome(
            reason=reason,
            gauges=notebook.gauges,
            learning_steps_per_s=notebook.learning_steps_per_s,
            run=self.run.path,
            env_id=self._job.env.id,
            checkpoint=notebook.checkpoint,
            solved=notebook.solved(),
        )
        return self.outcome

    def _attend(self) -> None:
        """Take in what the processes tell, and replace those that are lost."""
        self._take(self._crew.receive(TICK_S))
        if not self._crew.is_look_due:
            return
        losses = self._crew.find_lost()
        if losses:
            self._take([message for loss in losses for message in loss.messages] + self._crew.receive(0.0))
        for loss in sorted(losses, key=lambda loss: loss.member.place):  # the learner's first
            self._take_loss(loss)

    def _take(self, messages: list[Message]) -> None:
        for message in messages:
            self._notebook.take(message)

    # Losses

    def _take_loss(self, loss: Loss) -> None:
        member, error = loss.member, loss.error
        said = f"{loss.why}: {error['type']}: {error['message']}" if error else loss.why
        self.event("process-lost", role=member.name, pid=member.pid, why=said, trace=error["trace"] if error else None)
        if member.place == LEARNER:
            self._end_without_learner(error, said)
        elif not self._is_worth_replacing(loss):
            self._give_up(loss, said)
        else:
            self._watcher.note(f"{member.name} (pid {member.pid}) {said}; another takes its place")
            if member.place == EVALUATOR:
                self._start_evaluator()
            else:
                self._start_actor(member.place - FIRST_ACTOR)

    def _end_without_learner(self, error: Message | None, said: str) -> None:
        if error is not None:
            if error["type"] in ERRORS:
                raise ERRORS[error["type"]](error["message"])
            raise RuntimeError(f"the learner failed\n{error['trace']}")
        saved, steps = self._notebook.checkpoint, self._board.run_steps
        if self._is_new and saved is None:
            raise CheckpointError(f"the learner {said} before it had saved a first checkpoint: nothing can be resumed")
        env_id = self._job.env.id
        typed = f" --env {env_id}" if ":" in env_id else ""
        stands = f"checkpoint {saved.name} stands" if saved else "the newest checkpoint stands"
        raise LearnerLostError(
            f"the learner {said} at step {steps:,}; {stands}: go on with redline resume {self.run.path}{typed}"
        )

    def _is_worth_replacing(self, loss: Loss) -> bool:
        """Tell whether a process does anything before it is lost, and is not lost by its own fault all the time."""
        member, now_s = loss.member, time.monotonic()
        has_done_some = self._done_by(member.place) > self._done_at_start[member.name]
        key = member.name, loss.was_killed
        self._idle_losses[key] = count = 1 if has_done_some else self._idle_losses.get(key, 0) + 1
        if loss.was_killed:
            return count < KILLS_IN_A_ROW
        if member.place != EVALUATOR:
            self._failures_s.append(now_s)
        are_many = len(self._failures_s) == FAILURES_AT_ONCE and now_s - self._failures_s[0] < AT_ONCE_S
        return count < FAILURES_IN_A_ROW and not are_many

    def _done_by(self, place: int) -> int:
        """Return what a process has brought so far: the evaluator evaluations, others steps."""
        return self._notebook.evaluations if place == EVALUATOR else int(self._board.steps[place])

    def _give_up(self, loss: Loss, said: str) -> None:
        """Go on without an evaluator, but not without an actor."""
        name, error = loss.member.name, loss.error
        if loss.member.place == EVALUATOR:
            self._notebook.warn(f"{name} {said}, again and again: training goes on without it")
            return
        kind = ERRORS.get(error["type"], EnvError) if error else EnvError
        self._given_up = kind(f"{name} {said}, again and again: the run ends, its checkpoint stands")

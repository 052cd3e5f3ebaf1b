"""The supervisor: a session that starts the processes of a run, takes their messages, and replaces lost ones."""

import os
import signal
import time
from collections import deque
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial

from redline.envs.vector import EnvError
from redline.errors import CheckpointError, UserError
from redline.learner import NonFiniteError
from redline.replay import ReplayError
from redline.runtime.actor import RequestedStop
from redline.runtime.counters import Counters, Scores
from redline.runtime.gauges import Gauges
from redline.runtime.loop import METRICS_INTERVAL_S, Every
from redline.runtime.processes.message_log import MessageLog
from redline.runtime.processes.process_pool import Loss, Message, ProcessPool, Work
from redline.runtime.processes.roles import actor_seed, run_actor, run_evaluator, run_learner
from redline.runtime.processes.shared import EVALUATOR, FIRST_ACTOR, LEARNER, WAITS, SharedParts
from redline.runtime.resolve import ResolvedJob
from redline.runtime.run_log import RunLog, RunMonitor
from redline.runtime.session import Outcome, Readings, StoppedWhileResumingError, drain, run_out, solved_by

TICK_S = 0.2
FINAL_SAVE_S = 600.0
FAILURES_IN_A_ROW = 3  # of a process that raises an error each time, without a step in between
KILLS_IN_A_ROW = 20  # of a process that something else kills each time
MAX_ACTOR_FAILURES = 10  # of all actors, per FAILURE_WINDOW_S
FAILURE_WINDOW_S = 300.0

ERRORS = {kind.__name__: kind for kind in (UserError, NonFiniteError, CheckpointError, EnvError, ReplayError)}


class LearnerLostError(Exception):
    """The learner ended unexpectedly; the newest checkpoint stands."""


class AsyncSession(AbstractContextManager["AsyncSession"]):
    """A locked run directory, the processes of the run, and the log that also shows it."""

    def __init__(
        self, resolved: ResolvedJob, counters: Counters, scores: Scores, log: RunLog, *, begun_s: float
    ) -> None:
        """Take counters and scores of the newest checkpoint; the user began to wait at monotonic time `begun_s`."""
        self.run = log.run
        self.outcome: Outcome | None = None  # once the run has ended
        self._resolved = resolved
        self._job = resolved.job
        self._log = log
        self.event = log.event  # writes a row to events.jsonl
        self._parts = SharedParts.for_job(resolved.job, resolved.spec)
        self._status = self._parts.status
        self._pool = ProcessPool(self._status)
        self._messages = MessageLog(resolved.job, counters, scores, pool=self._pool, log=log, begun_s=begun_s)
        self._monitor = RunMonitor(log, resolved.job.monitor)
        self._starts: dict[str, int] = {}  # of each process
        # losses in a row without any progress in between, by process and whether it was killed
        self._idle_losses: dict[tuple[str, bool], int] = {}
        self._failures_s: deque[float] = deque(maxlen=MAX_ACTOR_FAILURES)  # monotonic times of the newest
        self._done_at_start: dict[str, int] = {}
        self._is_new = True  # without a checkpoint, until the learner has saved the first
        self._given_up: Exception | None = None  # why the run ends although its learner could go on

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End all processes, and release the run directory."""
        self._monitor.close()
        self._pool.close()
        self._log.close()
        self.run.close()

    # Starting

    def launch(self, *, is_resumed: bool, requested_stop: RequestedStop) -> list[str]:
        """Start the learner and wait until it is ready; return what a resume could not restore."""
        self._is_new = not is_resumed
        with closing(self.run.share_lock()) as lock:
            waited_from_s = self._messages.waited_from_s
            learn = partial(run_learner, self._resolved, self._parts)
            work = partial(learn, run=self.run.path, lock=lock, is_resumed=is_resumed, waited_from_s=waited_from_s)
            self._start("learner", LEARNER, work)
        while (lost := self._messages.lost) is None:
            if reason := requested_stop():
                raise StoppedWhileResumingError(reason)
            self._attend()
        if self._is_new and self._messages.save_error is not None:
            raise CheckpointError(self._messages.save_error)
        return lost

    def save_first(self) -> None:
        """Start the learner of a new run, which saves a checkpoint before its first step."""
        self.launch(is_resumed=False, requested_stop=lambda: None)

    def _start(self, name: str, slot: int, work: Work) -> None:
        restarts = self._starts.get(name, 0)
        self._starts[name] = restarts + 1
        self._done_at_start[name] = self._done_by(slot)
        member = self._pool.start(name, slot, work, restarts=restarts)
        self.event("process", role=name, pid=member.pid, restarts=restarts)

    def _start_actor(self, index: int) -> None:
        name, job, steps = f"actor-{index}", self._job, self._status.run_steps
        incarnation = self._starts.get(name, 0)
        work = partial(
            run_actor,
            job,
            self._parts,
            index=index,
            env_seed=actor_seed(job, index=index, incarnation=incarnation, steps=steps),
            # a lost actor may have been ahead of what counts: draw other random numbers than it did
            first_vector_step=steps // job.num_envs + incarnation * self._parts.lanes.depth,
        )
        self._start(name, FIRST_ACTOR + index, work)

    def _start_evaluator(self) -> None:
        every_s = (self._job.evaluator.every_minutes or 0.0) * 60
        wait_s = max(0.0, self._messages.evaluated_s + every_s - time.monotonic())
        evaluate, evaluations = partial(run_evaluator, self._job, self._parts), self._messages.counters.evaluations
        work = partial(evaluate, spec=self._resolved.spec, evaluations=evaluations, wait_s=wait_s)
        self._start("evaluator", EVALUATOR, work)

    # Training

    def train(self, requested_stop: RequestedStop) -> Outcome:
        """Train until a limit is reached or a stop is requested; always leave a checkpoint."""
        return drain(self.readings(requested_stop))

    def readings(self, requested_stop: RequestedStop) -> Readings:
        """Do the same, and yield every reading; closing the generator requests a stop."""
        return run_out(self._train(requested_stop), self._finish)

    def _train(self, requested_stop: RequestedStop) -> Generator[Gauges, None, str]:
        job, messages = self._job, self._messages
        self.run.open_records()
        self.event("process", role="supervisor", pid=os.getpid())
        self._monitor.begin()
        for index in range(job.actors):
            self._start_actor(index)
        messages.begin()
        if job.evaluator.every_minutes:
            self._start_evaluator()
        metrics, save = Every(METRICS_INTERVAL_S, at_once=True), Every(job.checkpoint_minutes * 60)
        told: Gauges | None = None
        while (reason := requested_stop() or messages.limit) is None:
            self._attend()
            if metrics.is_due():
                messages.record()
                self._monitor.attend()
            if save.is_due():
                self._status.order_save()
            if messages.gauges is not None and messages.gauges is not told:
                told = messages.gauges
                yield told
        return reason

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Suspend all processes within the block."""
        self._pool.signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._pool.signal(signal.SIGCONT)

    @property
    def done(self) -> tuple[int, int]:
        return self._status.run_steps, self._status.run_updates

    @property
    def waited_s(self) -> dict[str, dict[str, float]]:
        waited_s = self._status.waited_s
        return {
            name: dict(zip(WAITS, waited_s[member.slot].tolist(), strict=True))
            for name, member in self._pool.members.items()
        }

    def _finish(self, reason: str) -> Outcome:
        """End all processes but the learner, let it save a last checkpoint, and raise the error if the run gave up."""
        messages, status = self._messages, self._status
        messages.is_ending = True
        self._monitor.close()
        for member in list(self._pool.members.values()):
            if member.slot != LEARNER:
                self._take(self._pool.end(member))
        self.event("stop", reason=reason)
        status.order_save(is_last=True)
        end_s = time.monotonic() + FINAL_SAVE_S
        while messages.saves_answered < status.saves_ordered and time.monotonic() < end_s:
            self._attend()
        if messages.save_error is not None or messages.checkpoint is None or messages.gauges is None:
            raise CheckpointError(messages.save_error or "the learner did not save a last checkpoint in time")
        messages.record()
        if self._given_up is not None:
            raise self._given_up
        self.outcome = Outcome(
            reason=reason,
            gauges=messages.gauges,
            learning_steps_per_s=messages.learning_steps_per_s,
            run=self.run.path,
            env_id=self._job.env.id,
            checkpoint=messages.checkpoint,
            solved=solved_by(self._job, messages.counters, messages.scores),
        )
        return self.outcome

    def _attend(self) -> None:
        """Take messages, and replace lost processes."""
        self._take(self._pool.receive(TICK_S))
        if not self._pool.is_look_due:
            return
        losses = self._pool.find_lost()
        if losses:
            self._take([message for loss in losses for message in loss.messages] + self._pool.receive(0.0))
        for loss in sorted(losses, key=lambda loss: loss.member.slot):  # the learner's first
            self._take_loss(loss)

    def _take(self, messages: list[Message]) -> None:
        for message in messages:
            self._messages.take(message)

    # Losses

    def _take_loss(self, loss: Loss) -> None:
        member, error = loss.member, loss.error
        said = f"{loss.why}: {error['type']}: {error['message']}" if error else loss.why
        self.event("process-lost", role=member.name, pid=member.pid, why=said, trace=error["trace"] if error else None)
        if member.slot == LEARNER:
            self._end_without_learner(error, said)
        elif not self._is_worth_replacing(loss):
            self._give_up(loss, said)
        else:
            self._log.display.note(f"{member.name} (pid {member.pid}) {said}; another takes its place")
            if member.slot == EVALUATOR:
                self._start_evaluator()
            else:
                self._start_actor(member.slot - FIRST_ACTOR)

    def _end_without_learner(self, error: Message | None, said: str) -> None:
        if error is not None:
            if error["type"] in ERRORS:
                raise ERRORS[error["type"]](error["message"])
            raise RuntimeError(f"the learner failed\n{error['trace']}")
        saved, steps = self._messages.checkpoint, self._status.run_steps
        if self._is_new and saved is None:
            raise CheckpointError(f"the learner {said} before it had saved a first checkpoint: nothing can be resumed")
        env_id = self._job.env.id
        typed = f" --env {env_id}" if ":" in env_id else ""
        stands = f"checkpoint {saved.name} stands" if saved else "the newest checkpoint stands"
        raise LearnerLostError(
            f"the learner {said} at step {steps:,}; {stands}: go on with redline resume {self.run.path}{typed}"
        )

    def _is_worth_replacing(self, loss: Loss) -> bool:
        """Tell whether a process makes progress before it is lost, and does not fail again and again."""
        member, now_s = loss.member, time.monotonic()
        has_done_some = self._done_by(member.slot) > self._done_at_start[member.name]
        key = member.name, loss.was_killed
        self._idle_losses[key] = count = 1 if has_done_some else self._idle_losses.get(key, 0) + 1
        if loss.was_killed:
            return count < KILLS_IN_A_ROW
        if member.slot != EVALUATOR:
            self._failures_s.append(now_s)
        are_many = len(self._failures_s) == MAX_ACTOR_FAILURES and now_s - self._failures_s[0] < FAILURE_WINDOW_S
        return count < FAILURES_IN_A_ROW and not are_many

    def _done_by(self, slot: int) -> int:
        """Return the progress of a process: evaluations of the evaluator, steps of the others."""
        return self._messages.counters.evaluations if slot == EVALUATOR else int(self._status.steps[slot])

    def _give_up(self, loss: Loss, said: str) -> None:
        """Go on without an evaluator; end the run without an actor."""
        name, error = loss.member.name, loss.error
        if loss.member.slot == EVALUATOR:
            self._log.warn(f"{name} {said}, again and again: training goes on without it")
            return
        kind = ERRORS.get(error["type"], EnvError) if error else EnvError
        self._messages.limit = f"{name} {said}, again and again: the run ends, its checkpoint stands"
        self._given_up = kind(self._messages.limit)

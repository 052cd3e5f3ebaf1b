"""One invocation of a run: train until a limit or a request to stop, and leave a checkpoint."""

import os
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch

from redline.errors import CheckpointError
from redline.exploration import Sampled
from redline.runs.checkpoints import CheckpointStore
from redline.runtime.actor import RequestedStop, StoppedWhileEvaluatingError
from redline.runtime.config import Job, Limits
from redline.runtime.counters import Counters, Scores
from redline.runtime.evaluation import (
    EPISODES,
    EXPECTED_S,
    Evaluator,
    describe_acting,
    evaluation_is_due,
    record_evaluation,
)
from redline.runtime.gauges import Gauges
from redline.runtime.loop import METRICS_INTERVAL_S, Every, Loop
from redline.runtime.run_log import RunLog, RunMonitor
from redline.runtime.training import Trainer

LEFT = "the loop was left"  # why a run stopped


class StoppedWhileResumingError(Exception):
    """A stop was requested before the run had come back; its checkpoint is as it was."""


@dataclass(frozen=True)
class Solved:
    """How the target of evaluations was reached."""

    elapsed_s: float  # starting, training and evaluating, over all resumes
    mean_return: float  # of the confirming games
    how: str  # how actions were chosen in them
    argmax_return: float | None = None  # mean of greedy play, where a policy draws its actions; None: unknown


@dataclass(frozen=True)
class Outcome:
    """How an invocation ended."""

    reason: str  # the limit that was reached, or the signal
    gauges: Gauges
    learning_steps_per_s: float | None  # since the warm-up, over all resumes
    run: Path
    env_id: str
    checkpoint: Path | None
    solved: Solved | None = None


Readings = Generator[Gauges, None, Outcome]  # one about every second, and in the end the outcome


def run_out(loop: Generator[Gauges, None, str], finish: Callable[[str], Outcome]) -> Readings:
    """Yield the readings of a loop, and finish for the reason that it returns, or because the generator is closed."""
    try:
        reason = yield from loop
    except GeneratorExit:
        finish(LEFT)
        raise
    return finish(reason)


def drain(readings: Readings) -> Outcome:
    """Take all readings, and return the outcome."""
    while True:
        try:
            next(readings)
        except StopIteration as ended:
            outcome: Outcome = ended.value
            return outcome


def solved_by(job: Job, counters: Counters, scores: Scores) -> Solved | None:
    """Return how a run reached its target, if it did."""
    if scores.confirmed_return is None or not job.limits.is_solved(scores):
        return None
    return Solved(counters.solved_s, scores.confirmed_return, how=describe_acting(job))


class Session(AbstractContextManager["Session"]):
    """A locked run directory, a trainer, and the log that also shows the run."""

    def __init__(self, store: CheckpointStore, trainer: Trainer, log: RunLog, *, begun_s: float) -> None:
        """Take a trainer as it is to go on; `begun_s` is the monotonic time at which the user began to wait."""
        self.run = log.run
        self.outcome: Outcome | None = None  # once the run has ended
        self.store = store
        self.trainer = trainer
        self._log = log
        self.event = log.event  # writes a row to events.jsonl
        self._evaluator: Evaluator | None = None  # from the first evaluation on
        self._evaluation_s = EXPECTED_S  # duration of the newest one
        self._argmax_mean: float | None = None  # of greedy play, where a policy draws its actions
        self._monitor = RunMonitor(log, trainer.job.monitor)
        self._started_s = time.monotonic()
        self._waited_from_s = begun_s - trainer.counters.elapsed_s  # as if all invocations had followed each other
        self._loop = Loop(trainer, folder=log.run.path, waited_from_s=self._waited_from_s)
        self._last_checkpoint: Path | None = None
        self._skipped_steps = trainer.counters.skipped_steps  # when the display last heard of it

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close everything that the run holds, and release its directory."""
        self._monitor.close()
        self._log.close()
        self.trainer.close()
        self.store.close()
        self.run.close()

    def save_first(self) -> None:
        self.checkpoint(is_last=True)

    def train(self, requested_stop: RequestedStop) -> Outcome:
        """Train until a limit is reached or a stop is requested; always leave a checkpoint."""
        return drain(self.readings(requested_stop))

    def readings(self, requested_stop: RequestedStop) -> Readings:
        """Do the same, and yield every reading; closing the generator requests a stop."""
        return run_out(self._train(requested_stop), self._finish)

    def _train(self, requested_stop: RequestedStop) -> Generator[Gauges, None, str]:
        self.run.open_records()
        self._log.begin()
        self.event("process", role="inline", pid=os.getpid(), threads=torch.get_num_threads())
        self._monitor.begin()
        self._started_s = time.monotonic()
        metrics, checkpoint = Every(METRICS_INTERVAL_S, at_once=True), Every(self.trainer.job.checkpoint_minutes * 60)
        self._loop.begin()
        trainer = self.trainer
        while (reason := requested_stop() or self._limit_reached()) is None:
            for episode in self._loop.step():
                self._log.episode(episode)
            if evaluation_is_due(trainer.job, trainer.counters, trainer.scores, expected_s=self._evaluation_s):
                with self._loop.pause():
                    self._evaluate(requested_stop)
            if self._loop.reading_is_due():
                gauges = self._show()
                if metrics.is_due():
                    self._log.metrics(gauges)
                with self._loop.pause():  # the caller's work with a reading is no training
                    yield gauges
            if checkpoint.is_due():
                self.checkpoint(is_last=False)
        return reason

    def _finish(self, reason: str) -> Outcome:
        gauges = self._show()
        self._log.metrics(gauges)
        self._monitor.close()
        self.event("stop", reason=reason)
        self.checkpoint(is_last=True)
        solved = solved_by(self.trainer.job, self.trainer.counters, self.trainer.scores)
        self.outcome = Outcome(
            reason=reason,
            gauges=gauges,
            learning_steps_per_s=self.trainer.counters.learning_steps_per_s,
            run=self.run.path,
            env_id=self.trainer.job.env.id,
            checkpoint=self._last_checkpoint,
            solved=solved and replace(solved, argmax_return=self._argmax_mean),
        )
        return self.outcome

    def _evaluate(self, requested_stop: RequestedStop) -> None:
        """Play the evaluation that is due; it stays due if a stop is requested or the minutes are over."""
        trainer, begun_s = self.trainer, time.monotonic()
        job, counters, scores = trainer.job, trainer.counters, trainer.scores
        finished = partial(record_evaluation, job=job, counters=counters, scores=scores, log=self._log)
        self._evaluator = evaluator = self._evaluator or Evaluator(job, trainer.spec, counters.evaluations, finished)
        evaluator.network.load_state_dict(trainer.learner.online.state_dict())
        prepared_s, evaluated_at_s = time.monotonic() - begun_s, counters.evaluated_at_s
        minutes = Limits(max_steps=None, max_minutes=job.limits.max_minutes)
        try:
            evaluator.evaluate(counters.steps, lambda: requested_stop() or self._limit_reached(minutes))
        except StoppedWhileEvaluatingError as stopped:
            self._log.display.note(f"evaluation {counters.evaluations + 1} dropped: {stopped}")
            counters.evaluated_at_s = evaluated_at_s  # the confirming games are due again as soon as there is time
        # without the confirming games: after a failed confirmation the run would have to wait for minutes
        self._evaluation_s = prepared_s + evaluator.spent_s
        counters.evaluation_s += self._evaluation_s
        if job.limits.is_solved(scores):
            counters.elapsed_s = counters.solved_s = self._elapsed_s()
            self.event("solved", elapsed_s=counters.solved_s, mean_return=scores.confirmed_return)
            if isinstance(job.algorithm.explore, Sampled):
                self._compare_with_argmax(evaluator, requested_stop)

    def _compare_with_argmax(self, evaluator: Evaluator, requested_stop: RequestedStop) -> None:
        """Show how a policy that reached its target by drawing actions plays greedily; a greedy game may never end."""
        try:
            self._argmax_mean = evaluator.play_greedily(requested_stop)
            told = f"mean {self._argmax_mean:.2f} of {EPISODES} episodes"
        except StoppedWhileEvaluatingError as stopped:
            told = str(stopped)
        self._log.display.note(f"greedy play (always the likeliest action): {told}")

    def pause(self) -> AbstractContextManager[None]:
        """Rest within the block, which does not count as training time."""
        return self._loop.pause()

    @property
    def done(self) -> tuple[int, int]:
        return self.trainer.counters.steps, self.trainer.counters.updates

    @property
    def waited_s(self) -> dict[str, dict[str, float]]:
        return {"inline": dict(self.trainer.waited_s)}

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._waited_from_s

    def _show(self) -> Gauges:
        gauges = self._log.with_energy(self._loop.read())
        self._log.display.show(gauges)
        self._monitor.attend()
        if (adjustment := self._loop.take_adjustment()) is not None:
            self._log.adjustment(adjustment)
        self._tell_if_annealing()
        return gauges

    def checkpoint(self, *, is_last: bool) -> None:
        """Save a checkpoint; if the disk refuses, warn and go on, unless it is the last one."""
        started_s = time.monotonic()
        self.trainer.counters.elapsed_s = self._elapsed_s()
        try:
            self._log.flush()
            self._last_checkpoint = self.trainer.save(self.store)
        except CheckpointError as error:
            if is_last:
                raise
            self._log.warn(f"{error}; training goes on, the next checkpoint will try again")
            return
        self.event("checkpoint", path=self._last_checkpoint.name, stalled_s=time.monotonic() - started_s)

    def _tell_if_annealing(self) -> None:
        """Show once that annealing began because of `anneal_at_return`."""
        counters = self.trainer.counters
        if counters.skipped_steps == self._skipped_steps:
            return
        self._skipped_steps = counters.skipped_steps
        at_return = self.trainer.job.anneal_at_return
        self._log.display.note(f"ten episodes have a mean return of at least {at_return:g}: annealing begins now")
        self.event("annealing", at_return=at_return, skipped_steps=counters.skipped_steps)

    def _limit_reached(self, limits: Limits | None = None) -> str | None:
        return self.trainer.limit_reached(invocation_s=time.monotonic() - self._started_s, limits=limits)

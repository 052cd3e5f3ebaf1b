"""One invocation of a run: start or resume, train until a limit or a request to stop, leave a checkpoint."""

import os
import time
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import torch

from redline.exploration import Sampled
from redline.runs.checkpoints import CheckpointStore
from redline.runs.directory import RunDirectory
from redline.runs.errors import CheckpointError
from redline.runtime.checkpointing import save_checkpoint
from redline.runtime.counters import Counters, Scores
from redline.runtime.evaluation import (
    Evaluator,
    NumberedEvaluation,
    StoppedWhileEvaluatingError,
    record_evaluation,
)
from redline.runtime.gauges import Gauges
from redline.runtime.job import Job
from redline.runtime.limits import Limits
from redline.runtime.loop import METRICS_INTERVAL_S, Every, Loop
from redline.runtime.recording import Recorder, recording_setting
from redline.runtime.replay_sizing import full_replay
from redline.runtime.run_monitor import RunMonitor
from redline.runtime.sinks import Sinks
from redline.runtime.solving import EPISODES, EXPECTED_S, describe_acting, evaluation_is_due
from redline.runtime.training import Trainer
from redline.runtime.watching import Watcher

LEFT = "the loop was left"  # why a run stopped


@dataclass(frozen=True)
class Solved:
    """How the target of evaluations was reached."""

    elapsed_s: float  # that the user waited: starting, training and evaluating, over all resumes
    mean_return: float  # of the games that confirmed it
    how: str  # actions were chosen in them
    argmax_return: float | None = None  # mean of greedy play of a policy that draws its actions; None: not told


@dataclass(frozen=True)
class Outcome:
    """How an invocation ended."""

    reason: str  # the limit that was reached, or the signal that came
    gauges: Gauges
    learning_steps_per_s: float | None  # since the warm-up, over all resumes
    run: Path
    env_id: str
    checkpoint: Path | None
    solved: Solved | None = None


Readings = Generator[Gauges, None, Outcome]  # of a run under way, one about every second, and how it ended


def run_out(loop: Generator[Gauges, None, str], finish: Callable[[str], Outcome]) -> Readings:
    """Yield the readings of a loop, and finish for the reason it gives; closing this is a reason too."""
    try:
        reason = yield from loop
    except GeneratorExit:
        finish(LEFT)
        raise
    return finish(reason)


def drain(readings: Readings) -> Outcome:
    """Let a run go on to its end, and return how it ended."""
    while True:
        try:
            next(readings)
        except StopIteration as ended:
            outcome: Outcome = ended.value
            return outcome


def solved_by(job: Job, counters: Counters, scores: Scores) -> Solved | None:
    """Return how a run solved its game, if it did."""
    if scores.confirmed is None or not job.limits.is_solved(scores):
        return None
    return Solved(counters.solved_s, scores.confirmed, how=describe_acting(job))


class Session(AbstractContextManager["Session"]):
    """A locked run directory, a trainer, and whoever watches."""

    def __init__(
        self,
        *,
        run: RunDirectory,
        store: CheckpointStore,
        trainer: Trainer,
        watcher: Watcher,
        sinks: Sinks,
        begun_s: float,
    ) -> None:
        """Take a trainer as it is to go on; `begun_s` is the monotonic time at which the user began to wait."""
        self.run = run
        self.outcome: Outcome | None = None  # how it ended, once it has
        self.store = store
        self.trainer = trainer
        self._watcher = watcher
        setting = recording_setting(trainer.job, trainer.spec)
        self._recorder = Recorder(run, trainer.counters, watcher, setting=setting, sinks=sinks)
        self._loop = Loop(trainer, folder=run.path)
        self._evaluator: Evaluator | None = None  # from the first evaluation on
        self._evaluation_s = EXPECTED_S  # that the newest one took
        self._argmax_mean: float | None = None  # of greedy play, of a policy that solved its game by draws
        self._monitor = RunMonitor(trainer.job.monitor, run.path, pid=os.getpid(), event=self.event)
        self._started_s = time.monotonic()
        self._waited_from_s = begun_s - trainer.counters.elapsed_s  # as if all invocations had followed each other
        self._last_checkpoint: Path | None = None
        self._told_of_replay = False
        self._skipped_steps = trainer.counters.skipped_steps  # that the user knows of

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Give back what the run holds, and let others in."""
        self._monitor.close()
        self._recorder.close()
        self.trainer.close()
        self.store.close()
        self.run.close()

    @property
    def _job(self) -> Job:
        return self.trainer.job

    def train(self, requested_stop: Callable[[], str | None]) -> Outcome:
        """Train until a limit is reached or a stop is requested; always leave a checkpoint."""
        return drain(self.readings(requested_stop))

    def readings(self, requested_stop: Callable[[], str | None]) -> Readings:
        """Train in the same way, and yield every reading; whoever closes the generator requests a stop."""
        return run_out(self._train(requested_stop), self._finish)

    def _train(self, requested_stop: Callable[[], str | None]) -> Generator[Gauges, None, str]:
        self.run.open_records()
        self._recorder.begin()
        self.event("process", role="inline", pid=os.getpid(), threads=torch.get_num_threads())
        self._monitor.begin()
        self._started_s = time.monotonic()
        metrics, checkpoint = Every(METRICS_INTERVAL_S, at_once=True), Every(self._job.checkpoint_minutes * 60)
        self._loop.begin()
        while (reason := requested_stop() or self._limit_reached(self._job.limits)) is None:
            for episode in self._loop.step():
                self._recorder.episode(episode)
            if self._evaluation_is_due():
                with self._loop.pause():
                    self._evaluate(requested_stop)
            if self._loop.reading_is_due():
                gauges = self._show()
                if metrics.is_due():
                    self._recorder.metrics(gauges)
                with self._loop.pause():  # what is done with a reading is no training
                    yield gauges
            if checkpoint.is_due():
                self.checkpoint(is_last=False)
        return reason

    def _finish(self, reason: str) -> Outcome:
        gauges = self._show()
        self._recorder.metrics(gauges)
        self._monitor.close()
        self.event("stop", reason=reason)
        self.checkpoint(is_last=True)
        solved = solved_by(self._job, self.trainer.counters, self.trainer.scores)
        self.outcome = Outcome(
            reason=reason,
            gauges=gauges,
            learning_steps_per_s=self.trainer.counters.learning_steps_per_s,
            run=self.run.path,
            env_id=self._job.env.id,
            checkpoint=self._last_checkpoint,
            solved=solved and replace(solved, argmax_return=self._argmax_mean),
        )
        return self.outcome

    def _evaluation_is_due(self) -> bool:
        trainer = self.trainer
        return evaluation_is_due(self._job, trainer.counters, trainer.scores, expected_s=self._evaluation_s)

    def _evaluate(self, requested_stop: Callable[[], str | None]) -> None:
        """Play the evaluation that is due; it stays due if a stop is requested meanwhile or the minutes are over."""
        trainer, counters, begun_s = self.trainer, self.trainer.counters, time.monotonic()
        evaluator = self._evaluator = self._evaluator or Evaluator(
            self._job, trainer.spec, evaluations=counters.evaluations, finished=self._take_evaluation
        )
        evaluator.network.load_state_dict(trainer.learner.online.state_dict())
        prepared_s, evaluated_at_s = time.monotonic() - begun_s, counters.evaluated_at_s
        minutes = Limits(max_steps=None, max_minutes=self._job.limits.max_minutes)
        try:
            evaluator.evaluate(counters.steps, lambda: requested_stop() or self._limit_reached(minutes))
        except StoppedWhileEvaluatingError as stopped:
            self._watcher.note(f"evaluation {counters.evaluations + 1} dropped: {stopped}")
            counters.evaluated_at_s = evaluated_at_s  # if it was to confirm one: due again as soon as there is time
        # without the games that confirm: a run that failed to confirm would have to wait for minutes to try again
        self._evaluation_s = prepared_s + evaluator.spent_s
        counters.evaluation_s += self._evaluation_s
        if self._job.limits.is_solved(trainer.scores):
            counters.elapsed_s = counters.solved_s = self._elapsed_s()
            self.event("solved", elapsed_s=counters.solved_s, mean_return=trainer.scores.confirmed)
            if isinstance(self._job.algorithm.explore, Sampled):
                self._compare_with_argmax(evaluator, requested_stop)

    def _take_evaluation(self, evaluation: NumberedEvaluation) -> None:
        counters, scores = self.trainer.counters, self.trainer.scores
        record_evaluation(evaluation, job=self._job, scores=scores, recorder=self._recorder, watcher=self._watcher)
        scores.greedy = evaluation.mean_return
        counters.evaluations, counters.evaluated_steps = evaluation.number, evaluation.weights_steps
        counters.evaluated_at_s = counters.time_s

    def _compare_with_argmax(self, evaluator: Evaluator, requested_stop: Callable[[], str | None]) -> None:
        """Tell how a policy that solved its game by draws plays greedily; it may never end."""
        try:
            self._argmax_mean = evaluator.play_greedily(requested_stop)
            told = f"mean {self._argmax_mean:.2f} of {EPISODES} episodes"
        except StoppedWhileEvaluatingError as stopped:
            told = str(stopped)
        self._watcher.note(f"greedy play (always the likeliest action): {told}")

    def _elapsed_s(self) -> float:
        return time.monotonic() - self._waited_from_s

    def _show(self) -> Gauges:
        gauges = self._loop.read()
        self._watcher.show(gauges)
        self._monitor.attend()
        self._tell_if_replay_is_full()
        self._tell_if_annealing()
        return gauges

    def checkpoint(self, *, is_last: bool) -> None:
        """Save a checkpoint; where the disk refuses, say so loudly and go on, unless it was the last chance."""
        started_s = time.monotonic()
        self.trainer.counters.elapsed_s = self._elapsed_s()
        try:
            self._recorder.flush()
            self._last_checkpoint = save_checkpoint(self.trainer, self.store)
        except CheckpointError as error:
            if is_last:
                raise
            self._watcher.note(f"warning: {error}; training goes on, the next checkpoint will try again")
            self.event("warning", message=str(error))
            return
        self.event("checkpoint", path=self._last_checkpoint.name, stalled_s=time.monotonic() - started_s)

    def _tell_if_replay_is_full(self) -> None:
        """Say once that the replay memory holds fewer transitions than were asked for."""
        adjustment = None if self._told_of_replay else full_replay(self.trainer.source.memory)
        if adjustment is None:
            return
        self._told_of_replay = True
        self._watcher.note(f"requested → effective: {adjustment}")
        self.event("adjustment", message=str(adjustment))

    def _tell_if_annealing(self) -> None:
        """Say once that the return came at which learning rate and entropy weight begin to fall."""
        counters = self.trainer.counters
        if counters.skipped_steps == self._skipped_steps:
            return
        self._skipped_steps = counters.skipped_steps
        at_return = self._job.anneal_at_return
        self._watcher.note(
            f"ten episodes have a mean return of {at_return:g} or more: learning is annealed from now on"
        )
        self.event("annealing", at_return=at_return, skipped_steps=counters.skipped_steps)

    def event(self, name: str, **details: object) -> None:
        """Write down that something happened."""
        self._recorder.event(name, **details)

    def _limit_reached(self, limits: Limits) -> str | None:
        trainer = self.trainer
        return limits.reached(
            trainer.counters,
            trainer.scores,
            frames_per_step=trainer.spec.frames_per_step,
            invocation_s=time.monotonic() - self._started_s,
        )

"""One invocation of a run: start or resume, train until a limit or a request to stop, leave a checkpoint."""

import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch

from redline.runs.checkpoints import CheckpointStore
from redline.runs.directory import RunDirectory
from redline.runs.errors import CheckpointError
from redline.runtime.checkpointing import save_checkpoint
from redline.runtime.curves import Curves
from redline.runtime.gauges import Gauges
from redline.runtime.inline import InlineTrainer
from redline.runtime.job import Job
from redline.runtime.measuring import Measurer
from redline.runtime.recording import Recorder
from redline.runtime.watching import Watcher
from redline.types import Adjustment

METRICS_INTERVAL_S = 5.0
DISPLAY_INTERVAL_S = 1.0


@dataclass(frozen=True)
class Outcome:
    """How an invocation ended."""

    reason: str  # the limit that was reached, or the signal that came
    gauges: Gauges
    learning_steps_per_s: float | None  # since the warm-up, over all resumes
    run: Path
    checkpoint: Path | None


class Session(AbstractContextManager["Session"]):
    """A locked run directory, a trainer, and whoever watches."""

    def __init__(
        self, *, run: RunDirectory, store: CheckpointStore, trainer: InlineTrainer, watcher: Watcher, curves: Curves
    ) -> None:
        self.run = run
        self.store = store
        self.trainer = trainer
        self._watcher = watcher
        self._curves = curves
        self._recorder = Recorder(run, trainer.counters, watcher)
        self._measurer = Measurer(trainer)
        self._invocation_s = 0.0
        self._last_checkpoint: Path | None = None
        self._told_of_replay = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._curves.close()
        self.trainer.close()
        self.store.close()
        self.run.close()

    @property
    def _job(self) -> Job:
        return self.trainer.job

    def train(self, requested_stop: Callable[[], str | None]) -> Outcome:
        """Train until a limit is reached or a stop is requested; always leave a checkpoint."""
        self.run.open_records()
        self.event("process", role="inline", pid=os.getpid(), threads=torch.get_num_threads())
        last_s = time.monotonic()
        next_show_s, next_metrics_s = last_s + DISPLAY_INTERVAL_S, last_s
        next_checkpoint_s = last_s + self._job.checkpoint_minutes * 60
        while (reason := requested_stop() or self._limit_reached()) is None:
            for episode in self.trainer.vector_step():
                self._recorder.episode(episode)
            now_s = time.monotonic()
            self._count_time(now_s - last_s)
            last_s = now_s
            if now_s >= next_show_s:
                next_show_s = now_s + DISPLAY_INTERVAL_S
                gauges = self._measurer.read()
                self.trainer.check_loss(gauges.loss)
                self._watcher.show(gauges)
                self._tell_if_replay_is_full()
                if now_s >= next_metrics_s:
                    next_metrics_s = now_s + METRICS_INTERVAL_S
                    self._recorder.metrics(gauges)
                    self._curves.add(gauges)
            if now_s >= next_checkpoint_s:
                next_checkpoint_s = now_s + self._job.checkpoint_minutes * 60
                self.checkpoint(is_last=False)
        gauges = self._measurer.read()
        self.trainer.check_loss(gauges.loss)
        self._watcher.show(gauges)
        self._tell_if_replay_is_full()
        self._recorder.metrics(gauges)
        self._curves.add(gauges)
        self.event("stop", reason=reason)
        self.checkpoint(is_last=True)
        return Outcome(
            reason=reason,
            gauges=gauges,
            learning_steps_per_s=self._learning_steps_per_s(),
            run=self.run.path,
            checkpoint=self._last_checkpoint,
        )

    def checkpoint(self, *, is_last: bool) -> None:
        """Save a checkpoint; where the disk refuses, say so loudly and go on, unless it was the last chance."""
        started_s = time.monotonic()
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
        memory = self.trainer.source.memory
        if memory is None or memory.full_at is None or self._told_of_replay:
            return
        self._told_of_replay = True
        if memory.frames.is_short:
            why = "the machine has no more to spare"
        elif memory.layout.budget_bytes is not None:
            why = "its bytes are full; see --replay.bytes"
        else:
            why = "episodes are short, and each keeps one frame more than it has steps"
        asked, held = memory.layout.capacity, memory.full_at
        adjustment = Adjustment("replay.capacity", f"{asked:,}", f"about {held:,}", why)
        self._watcher.note(f"requested → effective: {adjustment}")
        self.event("adjustment", message=str(adjustment))

    def event(self, name: str, **details: object) -> None:
        """Write down that something happened."""
        self._recorder.event(name, **details)

    def _count_time(self, seconds: float) -> None:
        counters = self.trainer.counters
        self._invocation_s += seconds
        counters.time_s += seconds
        if counters.updates == 0:
            counters.warmup_time_s += seconds
            counters.warmup_steps = counters.steps

    def _learning_steps_per_s(self) -> float | None:
        counters = self.trainer.counters
        steps = counters.steps - counters.warmup_steps
        seconds = counters.time_s - counters.warmup_time_s
        return steps / seconds if counters.updates and seconds > 0 else None

    def _limit_reached(self) -> str | None:
        limits, counters, scores = self._job.limits, self.trainer.counters, self.trainer.scores
        frames_per_step = self.trainer.env.spec.frames_per_step
        if limits.target_return is not None and scores.reached(limits.target_return):
            return f"target-return {limits.target_return:g} reached"
        if limits.max_steps is not None and counters.steps >= limits.max_steps:
            return f"max-steps {limits.max_steps:,} reached"
        if limits.max_frames is not None and counters.steps * frames_per_step >= limits.max_frames:
            return f"max-frames {limits.max_frames:,} reached"
        if limits.max_episodes is not None and counters.episodes >= limits.max_episodes:
            return f"max-episodes {limits.max_episodes:,} reached"
        if limits.max_minutes is not None and self._invocation_s >= limits.max_minutes * 60:
            return f"max-minutes {limits.max_minutes:g} reached"
        return None

"""The loop that trains: vector steps one after another, with their time counted and a reading every second.

Whoever trains takes its steps here: a session, the learner of an asynchronous run, a bench.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from redline.runtime.actor import Episode
from redline.runtime.gauges import Gauges
from redline.runtime.measuring import Measurer
from redline.runtime.training import Trainer

READING_INTERVAL_S = 1.0
METRICS_INTERVAL_S = 5.0


class Every:
    """Tells when something is due that comes at intervals; first when an interval is over, or at once."""

    def __init__(self, interval_s: float, *, at_once: bool = False) -> None:
        self._interval_s = interval_s
        self._next_s = time.monotonic() + (0.0 if at_once else interval_s)

    def is_due(self) -> bool:
        """Tell whether it is time; then the next interval begins."""
        now_s = time.monotonic()
        if now_s < self._next_s:
            return False
        self._next_s = now_s + self._interval_s
        return True


class Loop:
    """Takes the vector steps of a trainer, and counts how long they and all between them take."""

    def __init__(self, trainer: Trainer, *, folder: Path, role: str = "inline") -> None:
        self.trainer = trainer
        self.invocation_s = 0.0  # of training since `begin`
        self._measurer = Measurer(trainer, folder=folder, role=role)
        self._steps_at_start = trainer.counters.steps
        self.begin()

    def begin(self) -> None:
        """Count from now on."""
        self._reading = Every(READING_INTERVAL_S)
        self._counted_s = time.monotonic()  # up to which time is counted
        self.trainer.phases.skip()

    def step(self) -> list[Episode]:
        """Take one vector step and return the episodes that ended with it.

        Time counts from the first step on: before it, envs in other processes are being started.
        """
        episodes, now_s = self.trainer.vector_step(), time.monotonic()
        if self.trainer.counters.steps == self._steps_at_start:
            self.trainer.phases.forget()
        else:
            self.invocation_s += now_s - self._counted_s
            self.trainer.counters.count_time(now_s - self._counted_s)
        self._counted_s = now_s
        return episodes

    def reading_is_due(self) -> bool:
        """Tell whether the newest reading is a second old; then the next second begins."""
        return self._reading.is_due()

    def read(self) -> Gauges:
        """Return what the gauges show now; NonFiniteError where the loss is no number."""
        gauges = self._measurer.read()
        self.trainer.check_loss(gauges.loss)
        return gauges

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Leave out of the training time what is done within."""
        self.trainer.phases.lap("other")
        begun_s = time.monotonic()
        try:
            yield
        finally:
            self._counted_s += time.monotonic() - begun_s
            self.trainer.phases.skip()

"""Numbers in shared memory that the processes of a run show each other, each written by one process only.

Heartbeats are the exception: a supervisor that was suspended itself renews them, since all processes may have been.
"""

from __future__ import annotations

import math
import os
import select
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.reduction import DupFd
from typing import Any, Generic, TypeVar

from redline.replay.backing import SharedBlock
from redline.runtime.counters import Counters, Scores
from redline.types import Array

T = TypeVar("T")

LEARNER, EVALUATOR, FIRST_ACTOR = 0, 1, 2  # slots
WAITS = ("learner", "actors", "gather", "envs", "rest")  # reasons for which a process may wait
STARTING_S = 90.0  # in which a process must show its first heartbeat, and envs must have started
BEAT_INTERVAL_S = 0.25  # a waiting process shows a heartbeat at least this often


class Doorbell:
    """Wakes a process that waits: a counter in the kernel. A ring that comes while nobody waits is kept."""

    def __init__(self, *, descriptor: int = -1) -> None:
        if descriptor < 0:
            descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._descriptor = descriptor
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)
        self.close = weakref.finalize(self, os.close, descriptor)

    def ring(self) -> None:
        """Wake the process that waits, or make its next wait end at once."""
        with suppress(BlockingIOError):  # the counter is full: it rings already
            os.eventfd_write(self._descriptor, 1)

    def wait(self, timeout_s: float) -> None:
        """Return when it has rung since the last wait, or when the time is over."""
        if self._poll.poll(timeout_s * 1000):
            with suppress(BlockingIOError):
                os.eventfd_read(self._descriptor)

    def __reduce__(self) -> tuple[Callable[..., Doorbell], tuple[Any, ...]]:
        """Let a process that is being started have the same bell."""
        return _attach, (DupFd(self._descriptor),)


def _attach(descriptor: Any) -> Doorbell:
    return Doorbell(descriptor=descriptor.detach())


class Cell(Generic[T]):
    """A number in one of the shared arrays of a status; reads as an attribute."""

    def __init__(self, array: str, index: int, kind: Callable[[Any], T]) -> None:
        self._array, self._index, self._kind = array, index, kind

    def __get__(self, status: Any, _: object = None) -> T:
        return self._kind(getattr(status, self._array)[self._index])


class SharedStatus:
    """Cells in shared memory, with a slot per process; a store of eight bytes is atomic."""

    is_stopped = Cell("_orders", 0, bool)  # all processes are to end
    saves_ordered = Cell("_orders", 1, int)  # checkpoints, so far
    sync_answered = Cell("_orders", 2, int)  # number of the newest request to sync the run's files that was answered
    sync_failed = Cell("_orders", 3, int)  # number of the newest such request that failed
    is_finishing = Cell("_orders", 4, bool)  # the newest order is for the last checkpoint
    run_steps = Cell("_progress", 0, int)  # of the run that count: those in the replay memory
    run_updates = Cell("_progress", 1, int)  # of the run

    def __init__(self, actors: int) -> None:
        slots = FIRST_ACTOR + actors
        fields = {
            "orders": ((8,), "int64"),  # the supervisor's
            "results": ((8,), "float64"),  # the supervisor's
            "progress": ((8,), "int64"),  # the learner's
            "beat_s": ((slots, 8), "float64"),
            "steps": ((slots, 8), "int64"),
            "age": ((slots, 8), "float64"),
            "waited_s": ((slots, len(WAITS)), "float64"),
        }
        self._block = SharedBlock("redline-status", fields)
        self.bells = [Doorbell() for _ in range(slots)]
        self._map()

    def _map(self) -> None:
        block = self._block
        self._orders, self._results, self._progress = block["orders"], block["results"], block["progress"]
        self.beat_s: Array = block["beat_s"][:, 0]  # [slots] monotonic time of the newest heartbeat
        self.steps: Array = block["steps"][:, 0]  # [slots] played there, ever
        self.age_updates: Array = block["age"]  # [slots, 2 …] sum of the ages of weights, and their count
        self.waited_s: Array = block["waited_s"]  # [slots, WAITS]

    def __getstate__(self) -> tuple[SharedBlock, list[Doorbell]]:
        return self._block, self.bells

    def __setstate__(self, state: tuple[SharedBlock, list[Doorbell]]) -> None:
        self._block, self.bells = state
        self._map()

    # Orders of the supervisor

    def stop(self) -> None:
        """Let all processes end."""
        self._orders[0] = 1
        for bell in self.bells:
            bell.ring()

    def order_save(self, *, is_last: bool = False) -> None:
        """Order a checkpoint from the learner; after the last one it learns nothing more."""
        self._orders[1] += 1
        self._orders[4] = is_last  # written last: a reader that sees it sees the order
        self.bells[LEARNER].ring()

    def answer_sync(self, number: int, *, is_safe: bool) -> None:
        """Tell the learner whether the rows that it sent before a request are on the disk."""
        if not is_safe:
            self._orders[3] = number
        self._orders[2] = number
        self.bells[LEARNER].ring()

    # Results of evaluations: the learner's checkpoints keep them

    def show_evaluations(self, counters: Counters, scores: Scores) -> None:
        """Show the learner the results of the evaluations so far."""
        returns = scores.greedy_return, scores.confirmed_return, scores.solved_target
        known = [math.nan if value is None else value for value in returns]
        self._results[1:6] = counters.evaluated_steps, *known, counters.solved_s
        self._results[0] = counters.evaluations  # written last: a reader that sees it sees the rest

    def read_evaluations(self, counters: Counters, scores: Scores) -> None:
        """Take over results that are newer."""
        number, steps, *returns, solved_s = self._results[:6].tolist()
        if number > counters.evaluations:
            counters.evaluations, counters.evaluated_steps, counters.solved_s = int(number), int(steps), solved_s
            known = [None if math.isnan(value) else value for value in returns]
            scores.greedy_return, scores.confirmed_return, scores.solved_target = known

    # Progress of the learner

    def show_progress(self, *, steps: int, updates: int) -> None:
        """Show all processes how far the run is."""
        self._progress[0] = steps
        self._progress[1] = updates


class Slot:
    """The slot of one process: shows its heartbeat, and what it waits for."""

    def __init__(self, status: SharedStatus, index: int) -> None:
        self.status = status
        self.index = index
        self.bell = status.bells[index]

    def beat(self, silent_for_s: float = 0.0) -> None:
        """Show a heartbeat, and how long the next may take."""
        self.status.beat_s[self.index] = time.monotonic() + silent_for_s

    def wait_until(self, is_true: Callable[[], bool], *, on: str, timeout_s: float | None = None) -> bool:
        """Wait until a condition holds, which a process rings the bell for; False on a timeout or if the run ends."""
        begun_s = last_s = time.monotonic()
        column = WAITS.index(on)
        while not (found := is_true()) and not self.status.is_stopped:
            if timeout_s is not None and last_s - begun_s >= timeout_s:
                break
            left_s = BEAT_INTERVAL_S if timeout_s is None else min(BEAT_INTERVAL_S, timeout_s - (last_s - begun_s))
            self.bell.wait(left_s)
            now_s = time.monotonic()
            self.status.waited_s[self.index, column] += now_s - last_s
            # a longer silence may be allowed
            self.status.beat_s[self.index] = max(now_s, self.status.beat_s[self.index])
            last_s = now_s
        return found

    @contextmanager
    def waiting(self, on: str) -> Iterator[None]:
        """Count the time of a block as waiting."""
        begun_s = time.monotonic()
        try:
            yield
        finally:
            self.status.waited_s[self.index, WAITS.index(on)] += time.monotonic() - begun_s

    def played(self, steps: int) -> None:
        """Count steps played here."""
        self.status.steps[self.index] += steps

    def acted_with(self, weights_updates: int) -> None:
        """Count by how many updates the weights that act here lag behind."""
        self.status.age_updates[self.index, :2] += (max(0, self.status.run_updates - weights_updates), 1)

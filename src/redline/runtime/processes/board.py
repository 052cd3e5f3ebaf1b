"""The board: numbers that the processes of a run show each other, each written by one of them only.

Signs of life are the exception: a supervisor that was stopped itself renews them, for all may have been.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from redline.experience.shared_block import SharedBlock
from redline.runtime.processes.doorbell import Doorbell
from redline.types import Array

LEARNER, EVALUATOR, FIRST_ACTOR = 0, 1, 2  # places at the board
WAITS = ("learner", "actors", "gather", "envs", "rest")  # what a process may wait for
STARTING_S = 90.0  # in which a process must show its first sign of life, and envs must be there
BEAT_INTERVAL_S = 0.25  # a process that waits shows at least so often that it lives


class Board:
    """Cells in shared memory; a store of eight bytes is whole or not there at all."""

    def __init__(self, actors: int) -> None:
        places = FIRST_ACTOR + actors
        fields = {
            "orders": ((8,), "int64"),  # the supervisor's
            "greedy": ((8,), "float64"),  # the supervisor's
            "progress": ((8,), "int64"),  # the learner's
            "beat_s": ((places, 8), "float64"),
            "steps": ((places, 8), "int64"),
            "age": ((places, 8), "float64"),
            "waited_s": ((places, len(WAITS)), "float64"),
        }
        self._block = SharedBlock("redline-board", fields)
        self.bells = [Doorbell() for _ in range(places)]
        self._look()

    def _look(self) -> None:
        block = self._block
        self._orders, self._greedy, self._progress = block["orders"], block["greedy"], block["progress"]
        self.beat_s: Array = block["beat_s"][:, 0]  # [places] monotonic time of the newest sign of life
        self.steps: Array = block["steps"][:, 0]  # [places] played there, ever
        self.age_updates: Array = block["age"]  # [places, 2 …] sum of ages of weights, and how many
        self.waited_s: Array = block["waited_s"]  # [places, WAITS]

    def __getstate__(self) -> tuple[SharedBlock, list[Doorbell]]:
        return self._block, self.bells

    def __setstate__(self, state: tuple[SharedBlock, list[Doorbell]]) -> None:
        self._block, self.bells = state
        self._look()

    # Orders of the supervisor

    @property
    def is_stopped(self) -> bool:
        """Whether all processes are to end."""
        return bool(self._orders[0])

    def stop(self) -> None:
        """Let all processes end."""
        self._orders[0] = 1
        for bell in self.bells:
            bell.ring()

    @property
    def saves_ordered(self) -> int:
        """Checkpoints that were asked for so far."""
        return int(self._orders[1])

    @property
    def is_finishing(self) -> bool:
        """Whether the checkpoint ordered last is the last."""
        return bool(self._orders[4])

    def order_save(self, *, is_last: bool = False) -> None:
        """Ask the learner for a checkpoint, and perhaps to learn nothing after it."""
        self._orders[1] += 1
        self._orders[4] = is_last  # last: who sees it sees the order
        self.bells[LEARNER].ring()

    @property
    def sync_answered(self) -> int:
        """Number of the newest request to write the records out that was answered."""
        return int(self._orders[2])

    @property
    def sync_failed(self) -> int:
        """Number of the newest that could not be carried out."""
        return int(self._orders[3])

    def answer_sync(self, number: int, *, is_safe: bool) -> None:
        """Tell the learner whether the rows that it sent before a request are on the disk."""
        if not is_safe:
            self._orders[3] = number
        self._orders[2] = number
        self.bells[LEARNER].ring()

    # The newest evaluation

    @property
    def evaluation(self) -> tuple[int, int, float]:
        """Number of evaluations so far, steps of the weights of the newest, and its mean return."""
        number, steps, mean = self._greedy[:3].tolist()
        return int(number), int(steps), mean

    def show_evaluation(self, *, number: int, steps: int, mean: float) -> None:
        """Tell the learner, whose checkpoint keeps it."""
        self._greedy[1:3] = steps, mean
        self._greedy[0] = number  # last: who sees it sees what belongs to it

    @property
    def solved(self) -> tuple[float, float, float] | None:
        """Mean return of the games that confirmed it, the target, and the seconds that it took; None before."""
        is_solved, mean, target, elapsed_s = self._greedy[3:7].tolist()
        return (mean, target, elapsed_s) if is_solved else None

    def show_solved(self, *, mean: float, target: float, elapsed_s: float) -> None:
        """Tell the learner, whose checkpoint keeps it."""
        self._greedy[4:7] = mean, target, elapsed_s
        self._greedy[3] = 1.0  # last: who sees it sees what belongs to it

    # Progress of the learner

    @property
    def run_steps(self) -> int:
        """Steps of the run that count: those in the replay memory."""
        return int(self._progress[0])

    @property
    def run_updates(self) -> int:
        """Updates of the run."""
        return int(self._progress[1])

    def show_progress(self, *, steps: int, updates: int) -> None:
        """Tell all how far the run is."""
        self._progress[0] = steps
        self._progress[1] = updates


class Place:
    """One process's own place at the board: shows that it lives, and what it waits for."""

    def __init__(self, board: Board, index: int) -> None:
        self.board = board
        self.index = index
        self.bell = board.bells[index]

    def beat(self, silent_for_s: float = 0.0) -> None:
        """Show that this process lives, and that it may be silent for a while."""
        self.board.beat_s[self.index] = time.monotonic() + silent_for_s

    def wait_until(self, is_true: Callable[[], bool], *, on: str, timeout_s: float | None = None) -> bool:
        """Wait for something that somebody rings the bell for; False if the time is over or the run is."""
        begun_s = last_s = time.monotonic()
        column = WAITS.index(on)
        while not (found := is_true()) and not self.board.is_stopped:
            if timeout_s is not None and last_s - begun_s >= timeout_s:
                break
            left_s = BEAT_INTERVAL_S if timeout_s is None else min(BEAT_INTERVAL_S, timeout_s - (last_s - begun_s))
            self.bell.wait(left_s)
            now_s = time.monotonic()
            self.board.waited_s[self.index, column] += now_s - last_s
            self.board.beat_s[self.index] = max(now_s, self.board.beat_s[self.index])  # it may be silent for longer
            last_s = now_s
        return found

    @contextmanager
    def waiting(self, on: str) -> Iterator[None]:
        """Count the time of a block as waiting."""
        begun_s = time.monotonic()
        try:
            yield
        finally:
            self.board.waited_s[self.index, WAITS.index(on)] += time.monotonic() - begun_s

    def played(self, steps: int) -> None:
        """Count steps played here."""
        self.board.steps[self.index] += steps

    def acted_with(self, weights_updates: int) -> None:
        """Note how many updates the weights that act here lag behind."""
        age = max(0, self.board.run_updates - weights_updates)
        cells = self.board.age_updates[self.index]
        cells[:2] += (age, 1)


def mean_ages(before: Array, now: Array) -> Array:
    """Return the mean age of the weights at each place between two readings of `age_updates`; NaN if nobody acted."""
    sums, counts = (now - before)[:, :2].T
    with np.errstate(invalid="ignore", divide="ignore"):
        mean: Array = sums / counts
    return mean

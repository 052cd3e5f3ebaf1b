"""Rows of a run's records; one that a full disk refuses is kept and written later, in its place."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from redline.runs.directory import RunDirectory
from redline.runs.errors import CheckpointError, explain
from redline.runtime.actor import Episode
from redline.runtime.counters import Counters
from redline.runtime.gauges import Gauges
from redline.runtime.watching import Watcher

WARNING_INTERVAL_S = 60.0


class Recorder:
    """Writes metrics, episodes and events in the order in which they happened."""

    def __init__(self, run: RunDirectory, counters: Counters, watcher: Watcher) -> None:
        self._run = run
        self._counters = counters
        self._watcher = watcher
        self._waiting: deque[Callable[[], None]] = deque()
        self._next_warning_s = 0.0

    def metrics(self, gauges: Gauges) -> None:
        """Write a reading."""
        self._write(partial(self._run.metrics.write, gauges.row()))

    def episode(self, episode: Episode) -> None:
        """Write an episode that was finished while training."""
        self._episode(episode, {"role": "actor"})

    def greedy_episode(self, episode: Episode, *, evaluation: int, weights_steps: int) -> None:
        """Write an episode of an evaluation, with the steps at which its weights were taken."""
        self._episode(episode, {"role": "greedy", "evaluation": evaluation, "weights_steps": weights_steps})

    def _episode(self, episode: Episode, role: Mapping[str, object]) -> None:
        row: Mapping[str, object] = {
            "time_s": self._counters.time_s,
            "unix_s": time.time(),
            "steps": self._counters.steps,
            **role,
            "return": episode.total_reward,
            "length_steps": episode.length_steps,
            "lane": episode.lane,
            "seed": episode.key_seed,
            "seed_offset_steps": episode.key_offset_steps,
        }
        self._write(partial(self._run.episodes.write, row))

    def event(self, name: str, **details: object) -> None:
        """Write down that something happened."""
        counters = self._counters
        now = {"unix_s": time.time(), "time_s": counters.time_s, "steps": counters.steps}
        self._write(partial(self._run.events.write, {"event": name, **now, **details}))

    def flush(self) -> None:
        """Write what is waiting, or raise: a checkpoint must not outlive rows from before it."""
        try:
            self._drain()
        except OSError as error:
            raise CheckpointError(f"records can't be written: {self._explain(error)}") from error

    def _write(self, write: Callable[[], None]) -> None:
        self._waiting.append(write)
        try:
            self._drain()
        except OSError as error:
            if time.monotonic() >= self._next_warning_s:
                self._next_warning_s = time.monotonic() + WARNING_INTERVAL_S
                self._watcher.note(f"warning: {self._explain(error)}; rows wait in memory, training goes on")

    def _drain(self) -> None:
        while self._waiting:
            self._waiting[0]()
            self._waiting.popleft()

    def _explain(self, error: OSError) -> str:
        return explain(error, Path(error.filename or self._run.path))

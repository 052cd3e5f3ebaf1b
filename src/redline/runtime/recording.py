"""Rows of a run's records; one that a full disk refuses is kept and written later, in its place."""

import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from redline.errors import UserError
from redline.exploration import Sampled
from redline.recordings.episode import EPISODE, encode_episode
from redline.recordings.setting import SETTING, Setting, describe
from redline.records import RecordWriter, Row
from redline.runs.blocks import MAX_PAYLOAD_BYTES
from redline.runs.directory import RunDirectory
from redline.runs.errors import CheckpointError, explain
from redline.runtime.actor import Episode
from redline.runtime.counters import Counters
from redline.runtime.gauges import Gauges
from redline.runtime.job import Job
from redline.runtime.sinks import EPISODES, EVENTS, METRICS, Sinks
from redline.runtime.watching import Watcher
from redline.types import EnvSpec

WARNING_INTERVAL_S = 60.0


def recording_setting(job: Job, spec: EnvSpec) -> Setting | None:
    """Return what the recordings of a run have in common; None if it records nothing."""
    return None if job.recording.is_off else setting_of(job, spec)


def setting_of(job: Job, spec: EnvSpec) -> Setting:
    """Return what all recordings of a job have in common."""
    thoughts = "logits" if isinstance(job.algorithm.explore, Sampled) else "q"
    values = thoughts if job.recording.record_values else None
    return describe(job.env, num_actions=spec.num_actions, values=values)


class Recorder:
    """Writes metrics, episodes with their recordings, and events in the order in which they happened."""

    def __init__(
        self,
        run: RunDirectory,
        counters: Counters,
        watcher: Watcher,
        *,
        setting: Setting | None,
        sinks: Sinks | None = None,
    ) -> None:
        self._run = run
        self._sinks = sinks  # that are told the same as the run's files
        self._counters = counters
        self._watcher = watcher
        self._is_recording = setting is not None
        self._setting = setting  # of the recordings, until it is written in front of the first
        self._waiting: deque[Callable[[], None]] = deque()
        self._next_warning_s = 0.0

    def begin(self) -> None:
        """Open the sinks and the recordings; a run whose episodes can't be recorded says so, and goes on."""
        if self._sinks is not None:
            self._sinks.begin()
        if self._setting is None:
            return
        try:
            self._run.recordings.sync()
        except (OSError, UserError) as error:
            self._setting, self._is_recording = None, False
            why = self._explain(error) if isinstance(error, OSError) else str(error)
            self._watcher.note(f"warning: no episode is recorded: {why}")

    def metrics(self, gauges: Gauges) -> None:
        """Write a reading."""
        self._tell_troubles()
        self._row(METRICS, self._run.metrics, gauges.row())

    def episode(self, episode: Episode) -> None:
        """Write an episode that was finished while training."""
        self._episode(episode, {"role": "actor"})

    def greedy_episode(self, episode: Episode, *, evaluation: int, weights_steps: int) -> None:
        """Write an episode of an evaluation, with the steps at which its weights were taken."""
        self._episode(episode, {"role": "greedy", "evaluation": evaluation, "weights_steps": weights_steps})

    def _episode(self, episode: Episode, role: Mapping[str, object]) -> None:
        if episode.trace is not None and self._is_recording:
            self._recording(episode.trace, role)
        row: Row = {
            "time_s": self._counters.time_s,
            "unix_s": time.time(),
            "steps": self._counters.steps,
            **role,
            "return": episode.total_reward,
            "length_steps": episode.length_steps,
            "lane": episode.lane,
            "seed": episode.reset_seed,
            "seed_offset_steps": episode.seed_offset_steps,
        }
        self._row(EPISODES, self._run.episodes, row)

    def _recording(self, trace: bytes, role: Mapping[str, object]) -> None:
        steps, payload = self._counters.steps, encode_episode(trace, **role, unix_s=time.time())
        if len(payload) > MAX_PAYLOAD_BYTES:
            self._watcher.note(f"warning: an episode takes {len(payload):,} bytes, too many to be recorded")
            return
        if self._setting is not None:
            self._write(partial(self._append, SETTING, steps, self._setting.encode()))
            self._setting = None
        self._write(partial(self._append, EPISODE, steps, payload))

    def _append(self, kind: int, steps: int, payload: bytes) -> None:
        self._run.recordings.append(kind, steps, payload)

    def event(self, name: str, **details: object) -> None:
        """Write down that something happened."""
        counters = self._counters
        now = {"unix_s": time.time(), "time_s": counters.time_s, "steps": counters.steps}
        self._row(EVENTS, self._run.events, {"event": name, **now, **details})

    def close(self) -> None:
        """Let the sinks finish, and say which could not."""
        if self._sinks is not None:
            self._sinks.close()
            self._tell_troubles()

    def _row(self, kind: str, writer: RecordWriter, row: Row) -> None:
        self._write(partial(writer.write, row))
        if self._sinks is not None:
            self._sinks.write(kind, row)

    def _tell_troubles(self) -> None:
        for trouble in [] if self._sinks is None else self._sinks.take_troubles():
            self._watcher.note(f"warning: {trouble}")
            self.event("warning", message=trouble)

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

"""The log of a run: rows, recordings of episodes, and the events of the monitor beside it.

Rows that a full disk refuses wait in memory and are written later, in order.
"""

import os
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from redline.episodes.episode import EPISODE, encode_episode
from redline.episodes.setting import SETTING, Setting, describe
from redline.errors import CheckpointError, UserError
from redline.exploration import Sampled
from redline.files import explain
from redline.jsonl import RecordWriter, Row
from redline.monitor.attaching import MonitorProcess
from redline.monitor.hardware import HARDWARE
from redline.monitor.machine import EnergyTail
from redline.runs.blocks import MAX_PAYLOAD_BYTES
from redline.runs.directory import RunDirectory
from redline.runtime.actor import Episode
from redline.runtime.config import Job, MonitorConfig
from redline.runtime.counters import Counters
from redline.runtime.gauges import Display, Gauges
from redline.runtime.sinks import EPISODES, EVENTS, METRICS, Sinks
from redline.types import EnvSpec

WARNING_INTERVAL_S = 60.0


def setting_of(job: Job, spec: EnvSpec) -> Setting:
    """Return what all recordings of a job have in common."""
    thoughts = "logits" if isinstance(job.algorithm.explore, Sampled) else "q"
    values = thoughts if job.recording.record_values else None
    return describe(job.env, num_actions=spec.num_actions, values=values)


class RunLog:
    """Writes metrics, episodes with their recordings, and events, in the order in which they happened."""

    def __init__(
        self, run: RunDirectory, job: Job, spec: EnvSpec, counters: Counters, *, display: Display, sinks: Sinks
    ) -> None:
        self.run = run
        self._sinks = sinks  # get the same rows as the run's files
        self._counters = counters
        self._energy = EnergyTail(run.path / HARDWARE)
        self.display = display
        self._is_recording = not job.recording.is_off
        # of the recordings; None once it is written, before the first of them
        self._setting = setting_of(job, spec) if self._is_recording else None
        self._waiting: deque[Callable[[], None]] = deque()
        self._next_warning_s = 0.0

    def begin(self) -> None:
        """Open the sinks and the recordings; if episodes can't be recorded, warn and go on."""
        self._sinks.begin()
        if self._setting is None:
            return
        try:
            self.run.recordings.sync()
        except (OSError, UserError) as error:
            self._setting, self._is_recording = None, False
            why = self._explain(error) if isinstance(error, OSError) else str(error)
            self.display.note(f"warning: no episode is recorded: {why}")

    def with_energy(self, gauges: Gauges) -> Gauges:
        """Return a reading with what the monitor beside the run tells of power and energy."""
        told = self._energy.read()
        return replace(gauges, power_w=told.get("power_w"), energy_j=told.get("energy_j"))

    def metrics(self, gauges: Gauges) -> None:
        self._tell_troubles()
        self._row(METRICS, self.run.metrics, gauges.row())

    def episode(self, episode: Episode, role: str = "actor", **details: object) -> None:
        """Write an episode of training, or of an evaluation with its details."""
        if episode.trace is not None and self._is_recording:
            self._recording(episode.trace, role=role, **details)
        row: Row = {
            "time_s": self._counters.time_s,
            "unix_s": time.time(),
            "steps": self._counters.steps,
            "role": role,
            **details,
            "return": episode.total_reward,
            "length_steps": episode.length_steps,
            "lane": episode.lane,
            "seed": episode.reset_seed,
            "seed_offset_steps": episode.seed_offset_steps,
        }
        self._row(EPISODES, self.run.episodes, row)

    def _recording(self, trace: bytes, **role: object) -> None:
        steps, payload = self._counters.steps, encode_episode(trace, **role, unix_s=time.time())
        if len(payload) > MAX_PAYLOAD_BYTES:
            self.display.note(f"warning: an episode takes {len(payload):,} bytes, too many to be recorded")
            return
        if self._setting is not None:
            self._write(partial(self._append, SETTING, steps, self._setting.encode()))
            self._setting = None
        self._write(partial(self._append, EPISODE, steps, payload))

    def _append(self, kind: int, steps: int, payload: bytes) -> None:
        self.run.recordings.append(kind, steps, payload)

    def event(self, name: str, **details: object) -> None:
        counters = self._counters
        now = {"unix_s": time.time(), "time_s": counters.time_s, "steps": counters.steps}
        self._row(EVENTS, self.run.events, {"event": name, **now, **details})

    def warn(self, message: str) -> None:
        self.display.note(f"warning: {message}")
        self.event("warning", message=message)

    def adjustment(self, message: str) -> None:
        """Show and log a setting that turned out otherwise than requested."""
        self.display.note(f"requested → effective: {message}")
        self.event("adjustment", message=message)

    def close(self) -> None:
        """Let the sinks finish, and warn of those that did not."""
        self._sinks.close()
        self._tell_troubles()

    def _row(self, kind: str, writer: RecordWriter, row: Row) -> None:
        self._write(partial(writer.write, row))
        self._sinks.write(kind, row)

    def _tell_troubles(self) -> None:
        for trouble in self._sinks.take_troubles():
            self.warn(trouble)

    def flush(self) -> None:
        """Write the waiting rows, or raise: a checkpoint must not outlive rows from before it."""
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
                self.display.note(f"warning: {self._explain(error)}; rows wait in memory, training goes on")

    def _drain(self) -> None:
        while self._waiting:
            self._waiting[0]()
            self._waiting.popleft()

    def _explain(self, error: OSError) -> str:
        return explain(error, Path(error.filename or self.run.path))


NOT_DETAILS = ("event", "schema")


class RunMonitor:
    """The process that records the hardware from `begin` to `close`; its messages go to the run's events.

    The run goes on without it if it can't be started.
    """

    def __init__(self, log: RunLog, config: MonitorConfig) -> None:
        self._log = log
        self._hz = config.hz
        self._process: MonitorProcess | None = None

    def begin(self) -> None:
        """Start the process, unless the rate is 0."""
        if self._hz == 0:
            return
        try:
            self._process = MonitorProcess(self._log.run.path, hz=self._hz, pid=os.getpid(), is_run=True)
        except OSError as error:
            self._log.event("monitor-warning", message=f"the monitor can't be started: {error.strerror}")

    def attend(self) -> None:
        """Write its events since the last call; never waits."""
        if self._process is not None:
            self._write(self._process.take_events())

    def close(self) -> None:
        """Let it take a last sample and end."""
        if self._process is not None:
            self._write(self._process.close())
            self._process = None

    def _write(self, events: list[Row]) -> None:
        for event in events:
            details = {name: value for name, value in event.items() if name not in NOT_DETAILS}
            self._log.event(event["event"], **details)

"""The monitor beside a run: a process that records what the hardware does; the run goes on without it if it must."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from redline.errors import UserError
from redline.monitor.attaching import MonitorProcess
from redline.monitor.sampling import DEFAULT_HZ, MAX_HZ, MIN_HZ
from redline.records import Row

NOT_DETAILS = ("event", "schema")


@dataclass(frozen=True)
class MonitorConfig:
    """How the hardware is watched while a run trains."""

    hz: float = DEFAULT_HZ
    """Samples of the hardware per second, into hardware.jsonl (0: none)."""

    def __post_init__(self) -> None:
        if not (self.hz == 0 or (math.isfinite(self.hz) and MIN_HZ <= self.hz <= MAX_HZ)):
            raise UserError(f"monitor.hz is {self.hz:g}: use 0 for no monitor, or {MIN_HZ:g} to {MAX_HZ:g}")


class RunMonitor:
    """Watches this process and its children from `begin` to `close`; what it tells goes to the run's events."""

    def __init__(self, config: MonitorConfig, folder: Path, *, pid: int, event: Callable[..., None]) -> None:
        self._config = config
        self._folder = folder
        self._pid = pid
        self._event = event
        self._monitor: MonitorProcess | None = None

    def begin(self) -> None:
        """Start the process, unless none is wanted."""
        if self._config.hz == 0:
            return
        try:
            self._monitor = MonitorProcess(self._folder, hz=self._config.hz, pid=self._pid, is_run=True)
        except OSError as error:
            self._event("monitor-warning", message=f"the monitor can't be started: {error.strerror}")

    def attend(self) -> None:
        """Write down what it told since the last call; never waits."""
        if self._monitor is not None:
            self._write(self._monitor.take_events())

    def close(self) -> None:
        """Let it take a last sample and end."""
        if self._monitor is not None:
            self._write(self._monitor.close())
            self._monitor = None

    def _write(self, events: list[Row]) -> None:
        for event in events:
            self._event(event["event"], **{name: value for name, value in event.items() if name not in NOT_DETAILS})

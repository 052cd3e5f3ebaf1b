"""One sample after another: the watched processes, the machine and its GPUs in one row, with what the looking cost."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from redline.monitor.gpus import Gpus, open_gpus
from redline.monitor.machine import MachineProbe, machine_facts
from redline.monitor.process_totals import Identity
from redline.monitor.process_tree import ProcessTree
from redline.records import Row


class Sampler:
    """Asks all probes. It is meant for a process of its own, whose CPU time is the cost of the recording."""

    def __init__(
        self, pid: int, *, folder: Path, roles: Callable[[], Mapping[Identity, str]], is_new: bool = False
    ) -> None:
        self._roles = roles
        self._tree = ProcessTree(pid, excluded_pid=os.getpid(), is_new=is_new)
        self._machine = MachineProbe(folder)
        self._gpus, self._why_no_gpus = open_gpus()
        self.end_descriptors = _open_process(pid)
        self._begun_unix_s, self._begun_s = time.time(), time.monotonic()
        self._sampled_s = self._begun_s
        self._tree.sample(0.0, {})  # the base of the first rates

    @property
    def elapsed_s(self) -> float:
        """Time since the recording began."""
        return time.monotonic() - self._begun_s

    @property
    def since_sample_s(self) -> float:
        """Time since the last sample."""
        return time.monotonic() - self._sampled_s

    @property
    def target_has_ended(self) -> bool:
        """Tell whether the watched process runs no more."""
        return self._tree.has_ended

    def facts(self) -> Row:
        """Return what does not change while the recording lasts, and why something is missing in all samples."""
        absent = {**self._machine.absent, **({"gpus": self._why_no_gpus} if self._gpus is None else {})}
        names = [] if self._gpus is None else self._gpus.names
        return {"pid": self._tree.pid, **machine_facts(), "gpus": names, "absent": absent}

    def sample(self) -> tuple[Row | None, list[Row]]:
        """Return a sample, None if the watched process is gone, and what happened to the GPUs since the one before."""
        now_s = time.monotonic()
        elapsed_s, interval_s = now_s - self._begun_s, now_s - self._sampled_s
        processes = self._tree.sample(interval_s, self._roles())
        if processes is None:
            return None, []
        self._sampled_s = now_s
        gpus, events = _sample_gpus(self._gpus)
        row: Row = {
            "unix_s": self._begun_unix_s + elapsed_s,
            "elapsed_s": elapsed_s,
            "interval_s": interval_s,
            **processes,
            **self._machine.sample(interval_s),
            **gpus,
            "monitor_cpu_s": time.process_time(),
        }
        return row, events

    def close(self) -> None:
        """Give back what the probes hold."""
        if self._gpus is not None:
            self._gpus.close()
        for descriptor in self.end_descriptors:
            os.close(descriptor)
        self.end_descriptors = []


def _open_process(pid: int) -> list[int]:
    """Return a descriptor that can be read once the process has ended; none where it has, or can't be had."""
    with suppress(OSError, OverflowError, AttributeError):
        return [os.pidfd_open(pid)]
    return []


def _sample_gpus(gpus: Gpus | None) -> tuple[Row, list[Row]]:
    if gpus is None:
        return {}, []
    rows, events = gpus.sample()
    said: list[Row] = [{"event": event.name, "gpu": event.index, "message": event.message} for event in events]
    return {"gpus": rows} if rows else {}, said

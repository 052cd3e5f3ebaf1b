"""How much processor and memory a process uses, and what its machine has left; never blocks, never fails."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

MIN_INTERVAL_S = 0.1


@dataclass(frozen=True)
class Usage:
    """One sample; the percentages are over the time since the sample before."""

    interval_s: float
    cpu_percent_of_core: float  # 250: two and a half cores busy
    cpu_percent_of_machine: float
    rss_bytes: int  # summed: a page shared by several processes counts in each
    processes: int


class ProcessUsage:
    """Samples a process and all its descendants, by default the calling process.

    Time that a child used after the last sample before it ended is not seen.
    """

    def __init__(self, pid: int | None = None, *, with_children: bool = True) -> None:
        self._with_children = with_children
        self._cores = os.cpu_count() or 1
        self._process: psutil.Process | None = None
        with suppress(psutil.Error):  # it may be gone already
            self._process = psutil.Process(pid)
        self._cpu_s_by_process, _ = self._measure()
        self._sampled_s = time.monotonic()

    def sample(self) -> Usage | None:
        """Return what was used since the last sample, or since construction; None if the process is gone."""
        now_s = time.monotonic()
        interval_s = now_s - self._sampled_s
        cpu_s_by_process, rss_bytes = self._measure()
        if not cpu_s_by_process:
            return None
        used_s = sum(cpu_s - self._cpu_s_by_process.get(process, 0.0) for process, cpu_s in cpu_s_by_process.items())
        self._cpu_s_by_process, self._sampled_s = cpu_s_by_process, now_s
        # the kernel counts in ticks of 10 ms: over less than a few of them a percentage means nothing
        percent = 100.0 * used_s / interval_s if interval_s >= MIN_INTERVAL_S else 0.0
        return Usage(
            interval_s=interval_s,
            cpu_percent_of_core=percent,
            cpu_percent_of_machine=percent / self._cores,
            rss_bytes=rss_bytes,
            processes=len(cpu_s_by_process),
        )

    def _measure(self) -> tuple[dict[psutil.Process, float], int]:
        cpu_s_by_process: dict[psutil.Process, float] = {}
        rss_bytes = 0
        for process in self._family():
            try:
                with process.oneshot():
                    times, memory = process.cpu_times(), process.memory_info()
            except psutil.Error:
                continue  # ended between being listed and being measured
            cpu_s_by_process[process] = times.user + times.system
            rss_bytes += memory.rss
        return cpu_s_by_process, rss_bytes

    def _family(self) -> list[psutil.Process]:
        """Return the process and those it started; nothing if it has ended, or another has taken its number."""
        process = self._process
        try:
            if process is None or not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
                return []
            return [process, *(process.children(recursive=True) if self._with_children else [])]
        except psutil.Error:
            return []


@dataclass(frozen=True)
class Machine:
    """What the machine has left; None where it does not tell."""

    load_average: float | None  # processes that ran or waited to run, over the last minute
    memory_available_bytes: int | None  # can be had without swapping
    disk_free_bytes: int | None  # this user can still write


def read_machine(folder: Path) -> Machine:
    """Return what the machine has left, and the file system of `folder`."""
    load_average = memory_bytes = disk_bytes = None
    with suppress(OSError, AttributeError):  # Windows has no load average
        load_average = os.getloadavg()[0]
    with suppress(OSError, psutil.Error):
        memory_bytes = int(psutil.virtual_memory().available)
    with suppress(OSError):
        disk_bytes = int(psutil.disk_usage(str(folder)).free)
    return Machine(load_average, memory_bytes, disk_bytes)

"""How much processor and memory this process and its children use; never blocks."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

import psutil

MIN_INTERVAL_S = 0.1


@dataclass(frozen=True)
class Usage:
    """One sample; the percentages are over the time since the sample before."""

    interval_s: float
    cpu_percent_of_core: float  # 250: two and a half cores busy
    cpu_percent_of_machine: float
    rss_bytes: int  # summed: a page shared by several processes counts in each
    available_bytes: int  # memory of the machine that can be had without swapping
    processes: int


class ProcessUsage:
    """Samples a process and all its descendants, by default the calling process.

    Time that a child used after the last sample before it ended is not seen.
    """

    def __init__(self, pid: int | None = None) -> None:
        self._process = psutil.Process(pid)
        self._cores = os.cpu_count() or 1
        self._cpu_s_by_process, _ = self._measure()
        self._sampled_s = time.monotonic()

    def sample(self) -> Usage:
        """Return what was used since the last sample, or since construction."""
        now_s = time.monotonic()
        interval_s = now_s - self._sampled_s
        cpu_s_by_process, rss_bytes = self._measure()
        used_s = sum(cpu_s - self._cpu_s_by_process.get(process, 0.0) for process, cpu_s in cpu_s_by_process.items())
        self._cpu_s_by_process, self._sampled_s = cpu_s_by_process, now_s
        # the kernel counts in ticks of 10 ms: over less than a few of them a percentage means nothing
        percent = 100.0 * used_s / interval_s if interval_s >= MIN_INTERVAL_S else 0.0
        return Usage(
            interval_s=interval_s,
            cpu_percent_of_core=percent,
            cpu_percent_of_machine=percent / self._cores,
            rss_bytes=rss_bytes,
            available_bytes=psutil.virtual_memory().available,
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
        try:
            return [self._process, *self._process.children(recursive=True)]
        except psutil.Error:
            return [self._process]

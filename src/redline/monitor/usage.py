"""How much processor and memory one process uses; never blocks, never fails."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from redline.monitor.process_files import ProcessStat, read_stat

MIN_INTERVAL_S = 0.1


@dataclass(frozen=True)
class Usage:
    """One sample; the percentage is over the time since the sample before."""

    interval_s: float
    cpu_percent: float  # 250: two and a half cores busy
    rss_bytes: int


class ProcessUsage:
    """Samples one process, by default the calling process; children don't count."""

    def __init__(self, pid: int | None = None) -> None:
        self._pid = os.getpid() if pid is None else pid
        self._last = read_stat(self._pid)
        self._sampled_s = time.monotonic()

    def sample(self) -> Usage | None:
        """Return what was used since the last sample, or since construction; None if the process is gone."""
        last, now = self._last, self._read()
        if last is None or now is None:
            return None
        now_s = time.monotonic()
        interval_s, self._last, self._sampled_s = now_s - self._sampled_s, now, now_s
        # the kernel counts in ticks of 10 ms: over less than a few of them a percentage means nothing
        percent = 100.0 * (now.cpu_s - last.cpu_s) / interval_s if interval_s >= MIN_INTERVAL_S else 0.0
        return Usage(interval_s=interval_s, cpu_percent=percent, rss_bytes=now.rss_bytes)

    def _read(self) -> ProcessStat | None:
        """Return a reading; None if the process has ended, or another has taken its number."""
        now = read_stat(self._pid)
        if now is None or now.has_ended or self._last is None or now.identity != self._last.identity:
            return None
        return now

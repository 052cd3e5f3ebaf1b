"""A recording: samples at a steady rate into hardware.jsonl until there is a reason to stop; never fails its target."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from redline.monitor.hardware import HARDWARE
from redline.monitor.process_files import read_stat
from redline.monitor.process_totals import Identity
from redline.monitor.sampling import Sampler
from redline.records import RecordTail, RecordWriter, Row

EVENTS = "events.jsonl"
DEFAULT_HZ, MIN_HZ, MAX_HZ = 1.0, 0.05, 20.0
MIN_INTERVAL_S = 0.05  # the kernel counts in ticks of 10 ms: over less, a rate means nothing
CLOCK_SLACK_S = 1.0
TARGET_ENDED = "the watched process ended"

Say = Callable[[Row], None]
Wait = Callable[[float], str | None]


def check_hz(hz: float) -> float:
    """Return a rate that can be kept, or raise."""
    if not MIN_HZ <= hz <= MAX_HZ:
        raise ValueError(f"hz is {hz:g}: use {MIN_HZ:g} to {MAX_HZ:g}, such as 1")
    return hz


@contextmanager
def unobtrusive() -> Iterator[None]:
    """Let this process wait until a core is free, rather than take one from what it watches when it wakes."""
    before = os.sched_getscheduler(0)
    if before == os.SCHED_OTHER:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    try:
        yield
    finally:
        if before == os.SCHED_OTHER:
            os.sched_setscheduler(0, before, os.sched_param(0))


class NamedRoles:
    """Who is who among the processes of a run, by what its events say; without a run nobody has a name."""

    def __init__(self, events: Path | None) -> None:
        self._tail = None if events is None else RecordTail(events)
        self._roles: dict[Identity, str] = {}

    def __call__(self) -> Mapping[Identity, str]:
        """Return the roles by process, with those of processes started since the last call."""
        for row in self._tail.new_rows() if self._tail else []:
            pid, unix_s = row.get("pid"), row.get("unix_s")
            if row.get("event") != "process" or not isinstance(pid, int) or not isinstance(unix_s, int | float):
                continue
            stat = read_stat(pid)
            # a number that was named before the process was started is that of an earlier one, before a resume
            if stat is not None and unix_s > stat.started_unix_s - CLOCK_SLACK_S:
                self._roles[stat.identity] = str(row.get("role"))
        return self._roles


class Recording:
    """Takes samples and writes them; what the disk refuses is lost, said once, and not the end."""

    def __init__(self, sampler: Sampler, out: Path, *, hz: float, say: Say) -> None:
        self._sampler = sampler
        self._writer = RecordWriter(out / HARDWARE)
        self._period_s = 1 / check_hz(hz)
        self._say = say
        self._samples = 0
        self._starting_cpu_s = 0.0  # of this process, before it began to watch
        self._cpu_s = 0.0
        self._peak_rss_bytes: int | None = None  # until a process was seen
        self._is_refused = False

    @property
    def end_descriptors(self) -> list[int]:
        """What can be read once the watched process has ended, for those that wait; none where that can't be told."""
        return self._sampler.end_descriptors

    def run(self, wait: Wait, **facts: object) -> str:
        """Record until `wait`, which is given seconds to wait, returns a reason, or the watched process ends."""
        with unobtrusive():
            return self._run(wait, facts)

    def _run(self, wait: Wait, facts: Mapping[str, object]) -> str:
        self._starting_cpu_s = time.process_time()
        start = {"hz": 1 / self._period_s, **self._sampler.facts(), "monitor_cpu_s": self._starting_cpu_s}
        self._tell("monitor-start", **start, **facts)
        next_s = time.monotonic() + self._period_s
        while (reason := wait(max(0.0, next_s - time.monotonic()))) is None:
            now_s = time.monotonic()
            if now_s < next_s:
                continue
            if self._sampler.target_has_ended:
                reason = TARGET_ENDED
                break
            self.take()
            next_s += self._period_s * ((now_s - next_s) // self._period_s + 1)  # what was missed is not made up for
        time.sleep(max(0.0, MIN_INTERVAL_S - self._sampler.since_sample_s))
        self.take()
        return reason

    def take(self) -> None:
        """Take one sample, if the watched process is still there, and write it."""
        row, events = self._sampler.sample()
        for event in events:
            self._tell(event.pop("event"), **event)
        if row is None:
            return
        self._cpu_s = row["cpu_s"]
        if "rss_bytes" in row:
            self._peak_rss_bytes = max(self._peak_rss_bytes or 0, row["rss_bytes"])
        try:
            self._writer.write(row)
            self._samples += 1
        except (OSError, ValueError) as error:  # the disk is full, or the row too long
            if not self._is_refused:
                self._is_refused = True
                self._tell("monitor-warning", message=f"samples can't be written: {error}")

    def finish(self, reason: str, **facts: object) -> Row:
        """Say how it ended and what it cost, and close the file; return what was said."""
        elapsed_s, cpu_s = self._sampler.elapsed_s, time.process_time()
        share = (cpu_s - self._starting_cpu_s) / max(elapsed_s * (os.cpu_count() or 1), 1e-9)
        end: Row = {
            "reason": reason,
            "samples": self._samples,
            "elapsed_s": elapsed_s,
            "cpu_s": self._cpu_s,
            **({} if self._peak_rss_bytes is None else {"peak_rss_bytes": self._peak_rss_bytes}),
            "monitor_cpu_s": cpu_s,
            "monitor_cpu_share": share,
            **facts,
        }
        self._tell("monitor-stop", **end)
        self._writer.close()
        self._sampler.close()
        return end

    def _tell(self, event: str, **facts: object) -> None:
        self._say({"event": event, "unix_s": time.time(), **facts})

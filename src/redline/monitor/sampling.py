"""Samples of processes, machine and GPUs, written to hardware.jsonl at a steady rate; never fails its target."""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

from redline.jsonl import RecordTail, RecordWriter, Row, encode_row
from redline.monitor.gpus import open_gpus
from redline.monitor.hardware import HARDWARE
from redline.monitor.machine import MACHINE_ENERGY, MachineProbe, PowerProbe, energy_before, machine_facts, power_of
from redline.monitor.processes import Identity, ProcessTree, read_stat

EVENTS = "events.jsonl"
DEFAULT_HZ, MIN_HZ, MAX_HZ = 1.0, 0.05, 20.0
MIN_INTERVAL_S = 0.05  # the kernel counts ticks of 10 ms: over less, a rate means nothing
CLOCK_SLACK_S = 1.0
TARGET_ENDED = "the watched process ended"

Say = Callable[[Row], None]
Wait = Callable[[float], str | None]


def check_hz(hz: float) -> float:
    """Return the rate, or raise if it is out of range."""
    if not MIN_HZ <= hz <= MAX_HZ:
        raise ValueError(f"hz is {hz:g}: use {MIN_HZ:g} to {MAX_HZ:g}, such as 1")
    return hz


@contextmanager
def unobtrusive() -> Iterator[None]:
    """Let this process wait for a free core instead of preempting the watched process."""
    before = os.sched_getscheduler(0)
    if before == os.SCHED_OTHER:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    try:
        yield
    finally:
        if before == os.SCHED_OTHER:
            os.sched_setscheduler(0, before, os.sched_param(0))


class NamedRoles:
    """The roles of a run's processes, read from its events."""

    def __init__(self, events: Path) -> None:
        self._tail = RecordTail(events)
        self._roles: dict[Identity, str] = {}

    def __call__(self) -> Mapping[Identity, str]:
        """Return the roles of all processes named so far."""
        for row in self._tail.new_rows():
            pid, unix_s = row.get("pid"), row.get("unix_s")
            if row.get("event") != "process" or not isinstance(pid, int) or not isinstance(unix_s, int | float):
                continue
            stat = read_stat(pid)
            # a row older than the process names an earlier one with the same id, from before a resume
            if stat is not None and unix_s > stat.started_unix_s - CLOCK_SLACK_S:
                self._roles[stat.identity] = str(row.get("role"))
        return self._roles


class HardwareRecorder:
    """Reads all probes into one row at a time, and writes it to a folder.

    It runs in its own process, whose CPU time is the cost of the recording. Samples that can't be written are lost and
    reported once; sampling goes on.
    """

    def __init__(self, pid: int, out: Path, *, hz: float, say: Say, is_new: bool = False) -> None:
        self._period_s = 1 / check_hz(hz)
        self._say = say
        self._roles = NamedRoles(out / EVENTS)
        self._tree = ProcessTree(pid, excluded_pid=os.getpid(), is_new=is_new)
        self._machine = MachineProbe(out)
        self._gpus, self._why_no_gpus = open_gpus()
        self._power = PowerProbe()
        self._energy_j = energy_before(out / HARDWARE)
        self._writer = RecordWriter(out / HARDWARE)
        self.end_descriptors: list[int] = []  # become readable when the watched process ends
        with suppress(OSError, OverflowError, AttributeError):  # it has ended, or pidfds are not supported
            self.end_descriptors = [os.pidfd_open(pid)]
        self._begun_unix_s, self._begun_s = time.time(), time.monotonic()
        self._sampled_s = self._begun_s
        self._tree.sample(0.0, {})  # the baseline of the first rates
        self._samples = 0
        self._starting_cpu_s = 0.0  # of this process, before watching
        self._cpu_s = 0.0
        self._peak_rss_bytes: int | None = None  # None before the first sample
        self._is_refused = False

    def run(self, wait: Wait, **facts: object) -> str:
        """Record until `wait(seconds)` returns a reason or the watched process ends; return the reason."""
        with unobtrusive():
            return self._run(wait, facts)

    def _run(self, wait: Wait, facts: Mapping[str, object]) -> str:
        self._starting_cpu_s = time.process_time()
        start = {"hz": 1 / self._period_s, **self.facts(), "monitor_cpu_s": self._starting_cpu_s}
        self._tell("monitor-start", **start, **facts)
        next_s = time.monotonic() + self._period_s
        while (reason := wait(max(0.0, next_s - time.monotonic()))) is None:
            now_s = time.monotonic()
            if now_s < next_s:
                continue
            if self._tree.has_ended:
                reason = TARGET_ENDED
                break
            self.take()
            next_s += self._period_s * ((now_s - next_s) // self._period_s + 1)  # missed samples are skipped
        time.sleep(max(0.0, MIN_INTERVAL_S - (time.monotonic() - self._sampled_s)))
        self.take()
        return reason

    def facts(self) -> Row:
        """Return what stays the same during the recording, and why some fields are absent."""
        absent = {
            **self._machine.absent,
            **self._power.absent,
            **({"gpus": self._why_no_gpus} if self._gpus is None else {}),
        }
        names = [] if self._gpus is None else self._gpus.names
        return {"pid": self._tree.pid, **machine_facts(), "gpus": names, "absent": absent}

    def take(self) -> None:
        """Take and write one sample if the watched process still exists."""
        row = self._sample()
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

    def _sample(self) -> Row | None:
        """Return a sample, and report GPU events since the last one."""
        now_s = time.monotonic()
        elapsed_s, interval_s = now_s - self._begun_s, now_s - self._sampled_s
        processes = self._tree.sample(interval_s, self._roles())
        if processes is None:
            return None
        self._sampled_s = now_s
        gpus, events = ([], []) if self._gpus is None else self._gpus.sample()
        for event in events:
            self._tell(event.pop("event"), **event)
        row = {
            "unix_s": self._begun_unix_s + elapsed_s,
            "elapsed_s": elapsed_s,
            "interval_s": interval_s,
            **processes,
            **self._machine.sample(interval_s),
            **self._power.sample(interval_s),
            **({"gpus": gpus} if gpus else {}),
            "monitor_cpu_s": time.process_time(),
        }
        if (power_w := power_of(row)) is not None:
            self._energy_j += power_w * interval_s
            row[MACHINE_ENERGY] = self._energy_j
        return row

    def finish(self, reason: str, **facts: object) -> Row:
        """Report the end and the cost, close everything, and return the report."""
        elapsed_s, cpu_s = time.monotonic() - self._begun_s, time.process_time()
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
        if self._gpus is not None:
            self._gpus.close()
        for descriptor in self.end_descriptors:
            os.close(descriptor)
        return end

    def _tell(self, event: str, **facts: object) -> None:
        self._say({"event": event, "unix_s": time.time(), **facts})


# The process of its own


def main() -> None:
    """Record as the process that `record` starts: until its target ends, SIGTERM, or a line or the end of stdin.

    It prints events as JSON lines, and writes them to events.jsonl unless a run, which writes its own, is recorded.
    """
    pid, out, hz, kind = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # these are for the watched process; when it ends, so does the monitor
    terminated, terminate = os.pipe()  # a handler alone does not wake select
    signal.signal(signal.SIGTERM, lambda *_: os.write(terminate, b"."))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})  # the starter may have blocked it
    os.set_blocking(sys.stdout.fileno(), False)  # the starter may not read
    writer = None if kind == "run" else RecordWriter(Path(out) / EVENTS)
    recording = HardwareRecorder(int(pid), Path(out), hz=float(hz), say=partial(_say, writer))
    reasons = {sys.stdin.fileno(): "closed", terminated: "SIGTERM"}
    reasons |= dict.fromkeys(recording.end_descriptors, TARGET_ENDED)

    def wait(seconds: float) -> str | None:
        """Wait until a descriptor is readable or closed, and return its reason."""
        readable, _, _ = select.select(list(reasons), [], [], seconds)
        return reasons[readable[0]] if readable else None

    recording.finish(recording.run(wait))


def _say(writer: RecordWriter | None, row: Row) -> None:
    with suppress(OSError):  # a full pipe or a full disk must not end the recording
        os.write(sys.stdout.fileno(), encode_row(row))
    if writer is not None:
        with suppress(OSError):
            writer.write(row)

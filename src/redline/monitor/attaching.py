"""Watches this process from a separate process, so that the monitor takes no time from its threads."""

from __future__ import annotations

import fcntl
import gc
import os
import select
import signal
import subprocess
import sys
import time
import warnings
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import IO, cast

from redline.files import PRIVATE, make_folder, make_numbered_folder, open_own
from redline.jsonl import RecordWriter, Row, parse_row
from redline.monitor.hardware import HARDWARE
from redline.monitor.processes import ProcessStat, read_stat
from redline.monitor.sampling import DEFAULT_HZ, EVENTS, check_hz

START_PATIENCE_S = 10.0
STOP_PATIENCE_S = 5.0
KILL_PATIENCE_S = 1.0
CLAIM_PATIENCE_S = 0.5  # the monitor of a process just killed is about to end

# If the monitor were our child, code that waits for all children would wait for it and count its CPU time. So the
# process that we start forks before it imports anything, and ends.
BOOT = """\
import os
pid = os.fork()
if pid:
    os.write(1, b'{"event":"monitor-process","pid":%d}\\n' % pid)
    os._exit(0)
from redline.monitor.sampling import main
main()
"""


class MonitorProcess:
    """The recording process, as seen by the watched process; it is not a child."""

    def __init__(self, out: Path, *, hz: float, pid: int, is_run: bool, lock: int | None = None) -> None:
        kind = "run" if is_run else "recording"
        self._starter = subprocess.Popen(
            [sys.executable, "-P", "-c", BOOT, str(pid), str(out), str(hz), kind],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # other lines than events: the reason of a failure
            start_new_session=True,  # Ctrl-C is meant for the watched process
            pass_fds=() if lock is None else (lock,),  # held until the monitor ends
        )
        self._stdin, self._stdout = cast(IO[bytes], self._starter.stdin), cast(IO[bytes], self._starter.stdout)
        os.set_blocking(self._stdout.fileno(), False)
        self._owner_pid = os.getpid()
        self._identity: tuple[int, int] | None = None
        self._unread = b""
        self._events: list[Row] = []
        self.last_words = ""  # the last line of output that is not an event: the error, if it failed
        self.is_over = self._has_stopped = self._is_loss_told = False
        with suppress(subprocess.TimeoutExpired):
            self._starter.wait(START_PATIENCE_S)
        self._read()

    @property
    def pid(self) -> int | None:
        """Its process id; None if it is not known yet or did not start."""
        return None if self._identity is None else self._identity[0]

    def take_events(self) -> list[Row]:
        """Return its events since the last call without waiting; report its loss once, as a warning."""
        self._read()
        events, self._events = self._events, []
        if self.is_over and not self._has_stopped and not self._is_loss_told:
            self._is_loss_told = True
            why = f" ({self.last_words})" if self.last_words else ""
            message = f"the monitor was lost{why}: hardware.jsonl stops here, the rest goes on"
            events.append({"event": "monitor-warning", "unix_s": time.time(), "message": message})
        return events

    def wait_until_recording(self) -> list[Row]:
        """Wait for a limited time until it records, and return its events."""
        self._wait(lambda: bool(self._events), START_PATIENCE_S)
        return self.take_events()

    def close(self) -> list[Row]:
        """Let it take a last sample and end; return its events. A second call, or a call in a fork, does nothing."""
        if self._stdout.closed:
            return []
        events: list[Row] = []
        if os.getpid() == self._owner_pid:  # else it is our parent's and goes on
            events = self._end()
        self._stdin.close()
        self._stdout.close()
        return events

    def _end(self) -> list[Row]:
        self._read()
        if not self.is_over:
            with suppress(OSError):  # it may be gone
                self._stdin.write(b"stop\n")  # closing the pipe is not enough: a fork may hold it open
        self._wait(lambda: False, STOP_PATIENCE_S)
        if not self.is_over and (stat := self._now()) is not None:
            os.kill(stat.pid, signal.SIGKILL)
            self._wait(lambda: False, KILL_PATIENCE_S)
        self._starter.poll()
        if self.is_over and (stat := self._now()) is not None and stat.parent == os.getpid():
            with suppress(ChildProcessError):  # it is our child if we adopt orphans, as process 1 does
                os.waitpid(stat.pid, 0)
        return self.take_events()

    def _now(self) -> ProcessStat | None:
        """Return its current reading; None if it is gone, even if another process has its id."""
        stat = None if self._identity is None else read_stat(self._identity[0])
        return stat if stat is not None and stat.identity == self._identity else None

    def _wait(self, is_enough: Callable[[], bool], patience_s: float) -> None:
        """Read its output until `is_enough`, its end, or a timeout."""
        poll = select.poll()  # select() takes no descriptor beyond 1,023
        poll.register(self._stdout, select.POLLIN)
        end_s = time.monotonic() + patience_s
        while not (self.is_over or is_enough()) and (left_s := end_s - time.monotonic()) > 0:
            poll.poll(left_s * 1_000)
            self._read()

    def _read(self) -> None:
        with suppress(BlockingIOError):
            while more := os.read(self._stdout.fileno(), 65_536):
                self._unread += more
            self.is_over = True
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            row = parse_row(line)
            if row is None:
                self.last_words = line.decode(errors="replace").strip() or self.last_words
            elif row.get("event") == "monitor-process":
                stat = read_stat(row["pid"])
                self._identity = None if stat is None else stat.identity
            else:
                self._has_stopped |= row.get("event") == "monitor-stop"
                self._events.append(row)


class AttachedRecording(AbstractContextManager["AttachedRecording"]):
    """A recording that lasts until it is closed or garbage-collected."""

    def __init__(self, path: Path, monitor: MonitorProcess, *, hz: float) -> None:
        self.path = path
        self.hz = hz
        self._monitor = monitor
        self._end = weakref.finalize(self, monitor.close)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take a last sample and end the recording; warn if it is incomplete. Closing twice is harmless.

        In a forked process this only drops the reference: the recording goes on.
        """
        events: list[Row] = self._end() or []
        told = [str(event.get("message")) for event in events if event.get("event") == "monitor-warning"]
        if told:
            warnings.warn(f"{self.path}: {'; '.join(told)}", RuntimeWarning, stacklevel=2)


def record(out: Path | str, *, hz: float = DEFAULT_HZ, pid: int | None = None) -> AttachedRecording:
    """Record the hardware use of this process, or of `pid`, and its children into the folder `out`.

    A folder takes one recording at a time; a later one appends its rows. The recording process is not a child of this
    process, unless this process adopts orphans, as the first process of a container does.
    """
    check_hz(hz)
    target = os.getpid() if pid is None else _running(pid)
    path = Path(out).absolute()  # the program may change its working directory
    make_folder(path, mode=PRIVATE)
    lock = _claim(path)
    try:
        RecordWriter(path / EVENTS).close()  # raises if it can't be written
        monitor = MonitorProcess(path, hz=hz, pid=target, is_run=False, lock=lock)
    finally:
        os.close(lock)
    recording = AttachedRecording(path, monitor, hz=hz)
    events = monitor.wait_until_recording()
    if monitor.is_over and not any(event.get("event") == "monitor-start" for event in events):
        recording.close()
        raise RuntimeError(f"the monitor did not start: {monitor.last_words or 'it ended at once'}")
    if not events:
        message = f"{path}: the monitor did not begin within {START_PATIENCE_S:g} s: the first samples are missing"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    return recording


def new_folder() -> Path:
    """Make and return a folder for an unnamed recording: `monitor/<date and time>`."""
    return make_numbered_folder(Path("monitor", time.strftime("%Y%m%d-%H%M%S")))


def _running(pid: int) -> int:
    stat = read_stat(pid)
    if stat is None or stat.has_ended:
        raise ValueError(f"there is no process {pid}: ps -e lists those that run")
    return pid


def _claim(path: Path) -> int:
    """Open and lock the file of samples: no other recording can start there until the descriptor is closed."""
    descriptor = open_own(path / HARDWARE, os.O_RDWR | os.O_CREAT | os.O_APPEND)
    try:
        if not _try_lock(descriptor):
            gc.collect()  # ends a recording in a reference cycle, as after an interrupted learn()
        end_s = time.monotonic() + CLAIM_PATIENCE_S
        while not _try_lock(descriptor):
            if time.monotonic() > end_s:
                raise ValueError(
                    f"{path} is being recorded already: use another folder, or give what record() returned in its "
                    "place (of an env: its episode_log.recording); around a vector of envs use one MonitorVectorEnv"
                )
            time.sleep(0.02)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True

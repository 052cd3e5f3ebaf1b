"""Attaches the monitor to this process, from a process of its own: it takes no time from the threads that work here."""

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
from itertools import count
from pathlib import Path
from typing import IO, Self

from redline.monitor.hardware import HARDWARE
from redline.monitor.process_files import ProcessStat, read_stat
from redline.monitor.sampling import DEFAULT_HZ, EVENTS, check_hz
from redline.records import RecordWriter, Row, parse_row

START_PATIENCE_S = 10.0
STOP_PATIENCE_S = 5.0
KILL_PATIENCE_S = 1.0
CLAIM_PATIENCE_S = 0.5  # a watcher whose process was killed a moment ago is about to end
PRIVATE = 0o700  # what runs here, and how, is nobody else's business

# A watcher that were a child of ours would be waited for by whoever waits for all children, and its CPU time would be
# counted as theirs. So the process that we start forks, before it imports anything, and ends.
BOOT = """\
import os
pid = os.fork()
if pid:
    os.write(1, b'{"event":"monitor-process","pid":%d}\\n' % pid)
    os._exit(0)
from redline.monitor.__main__ import main
main()
"""


class Watcher:
    """The process that records, as the watched process sees it. It is no child of anybody here."""

    def __init__(self, out: Path, *, hz: float, pid: int, is_run: bool, lock: int | None = None) -> None:
        command = [sys.executable, "-P", "-c", BOOT, "--pid", str(pid), "--out", str(out), "--hz", str(hz)]
        self._starter = subprocess.Popen(
            [*command, *(["--run"] if is_run else [])],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,  # lines that are no events: the reason, if it fails
            start_new_session=True,  # Ctrl-C is meant for the watched process
            pass_fds=() if lock is None else (lock,),  # held until the watcher ends
        )
        self._stdin, self._stdout = _given(self._starter.stdin), _given(self._starter.stdout)
        os.set_blocking(self._stdout.fileno(), False)
        self._owner_pid = os.getpid()
        self._identity: tuple[int, int] | None = None
        self._unread = b""
        self._events: list[Row] = []
        self._last_words = ""
        self._is_over = self._has_stopped = self._is_loss_told = False
        with suppress(subprocess.TimeoutExpired):
            self._starter.wait(START_PATIENCE_S)
        self._read()

    @property
    def pid(self) -> int | None:
        """Number of the process; None if it is not known yet, or never came to be."""
        return None if self._identity is None else self._identity[0]

    @property
    def is_over(self) -> bool:
        """Tell whether it is gone."""
        return self._is_over

    @property
    def last_words(self) -> str:
        """The last line it said that is no event: of a failure, the error."""
        return self._last_words

    def take_events(self) -> list[Row]:
        """Return what it told since the last call, without waiting; its loss is told once, as a warning."""
        self._read()
        events, self._events = self._events, []
        if self._is_over and not self._has_stopped and not self._is_loss_told:
            self._is_loss_told = True
            why = f" ({self._last_words})" if self._last_words else ""
            message = f"the monitor was lost{why}: hardware.jsonl stops here, the rest goes on"
            events.append({"event": "monitor-warning", "unix_s": time.time(), "message": message})
        return events

    def wait_until_recording(self) -> list[Row]:
        """Return when it has begun, with what it told; a monitor that does not begin is no reason to wait longer."""
        self._wait(lambda: bool(self._events), START_PATIENCE_S)
        return self.take_events()

    def close(self) -> list[Row]:
        """Let it take a last sample and end; return what it told. Twice, or in a forked process, it does nothing."""
        if self._stdout.closed:
            return []
        events: list[Row] = []
        if os.getpid() == self._owner_pid:  # else it is our parent's, and goes on
            events = self._end()
        self._stdin.close()
        self._stdout.close()
        return events

    def _end(self) -> list[Row]:
        self._read()
        if not self._is_over:
            with suppress(OSError):  # it may be gone
                self._stdin.write(b"stop\n")  # a process that we forked may hold the pipe open
        self._wait(lambda: False, STOP_PATIENCE_S)
        if not self._is_over and (stat := self._now()) is not None:
            os.kill(stat.pid, signal.SIGKILL)
            self._wait(lambda: False, KILL_PATIENCE_S)
        self._starter.poll()
        if self._is_over and (stat := self._now()) is not None and stat.parent == os.getpid():
            with suppress(ChildProcessError):  # orphans are ours where we are the first process, as in a container
                os.waitpid(stat.pid, 0)
        return self.take_events()

    def _now(self) -> ProcessStat | None:
        """Return a reading of it, unless it is gone, even if another process has its number by now."""
        stat = None if self._identity is None else read_stat(self._identity[0])
        return stat if stat is not None and stat.identity == self._identity else None

    def _wait(self, is_enough: Callable[[], bool], patience_s: float) -> None:
        """Read until it is enough, it is gone, or patience ends."""
        poll = select.poll()  # select() takes no descriptor beyond 1,023
        poll.register(self._stdout, select.POLLIN)
        end_s = time.monotonic() + patience_s
        while not (self._is_over or is_enough()) and (left_s := end_s - time.monotonic()) > 0:
            poll.poll(left_s * 1_000)
            self._read()

    def _read(self) -> None:
        with suppress(BlockingIOError):
            while more := os.read(self._stdout.fileno(), 65_536):
                self._unread += more
            self._is_over = True
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            row = parse_row(line)
            if row is None:
                self._last_words = line.decode(errors="replace").strip() or self._last_words
            elif row.get("event") == "monitor-process":
                stat = read_stat(row["pid"])
                self._identity = None if stat is None else stat.identity
            else:
                self._has_stopped |= row.get("event") == "monitor-stop"
                self._events.append(row)


def _given(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise RuntimeError("the process was started without a pipe")
    return pipe


class AttachedRecording(AbstractContextManager["AttachedRecording"]):
    """A recording that lasts until it is closed, or nobody refers to it any more."""

    def __init__(self, path: Path, watcher: Watcher, *, hz: float) -> None:
        self.path = path
        self.hz = hz
        self._watcher = watcher
        self._end = weakref.finalize(self, watcher.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take a last sample and end the recording, and warn if it is not whole; closing twice is harmless.

        In a process that was forked off meanwhile it only forgets the recording, which goes on.
        """
        events: list[Row] = self._end() or []
        told = [str(event.get("message")) for event in events if event.get("event") == "monitor-warning"]
        if told:
            warnings.warn(f"{self.path}: {'; '.join(told)}", RuntimeWarning, stacklevel=2)


def record(out: Path | str, *, hz: float = DEFAULT_HZ, pid: int | None = None) -> AttachedRecording:
    """Record what this process and its children use of the machine, or those of `pid`, into the folder `out`.

    A folder takes one recording at a time; the rows of a later one are appended. The process that records is no child
    of this one, unless this one adopts orphans, as the first process of a container does.
    """
    check_hz(hz)
    target = os.getpid() if pid is None else _running(pid)
    path = Path(out).absolute()  # the program may change its folder
    path.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
    lock = _claim(path)
    try:
        RecordWriter(path / EVENTS).close()  # what can't be written is said here
        watcher = Watcher(path, hz=hz, pid=target, is_run=False, lock=lock)
    finally:
        os.close(lock)
    recording = AttachedRecording(path, watcher, hz=hz)
    events = watcher.wait_until_recording()
    if watcher.is_over and not any(event.get("event") == "monitor-start" for event in events):
        recording.close()
        raise RuntimeError(f"the monitor did not start: {watcher.last_words or 'it ended at once'}")
    if not events:
        message = f"{path}: the monitor did not begin within {START_PATIENCE_S:g} s: the first samples are missing"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    return recording


def new_folder() -> Path:
    """Make and return a folder for a recording that nobody has named: `monitor/<date and time>`."""
    began = time.strftime("%Y%m%d-%H%M%S")
    for attempt in count(1):
        path = Path("monitor") / (began if attempt == 1 else f"{began}-{attempt}")
        with suppress(FileExistsError):
            path.mkdir(mode=PRIVATE, parents=True)
            return path
    raise AssertionError("count() has no end")


def _running(pid: int) -> int:
    stat = read_stat(pid)
    if stat is None or stat.has_ended:
        raise ValueError(f"there is no process {pid}: ps -e lists those that run")
    return pid


def _claim(path: Path) -> int:
    """Open the file of samples and return its descriptor, which keeps others from recording there while it is open."""
    descriptor = os.open(path / HARDWARE, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        if not _try_lock(descriptor):
            gc.collect()  # ends a recording that only a cycle still refers to, such as after an interrupted learn()
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

"""Attaches the monitor to this process, from a process of its own: it takes no time from the threads that work here."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import IO, Self

from redline.monitor.recording import DEFAULT_HZ, check_hz
from redline.records import Row, parse_row

START_PATIENCE_S = 10.0
STOP_PATIENCE_S = 5.0


class Watcher:
    """The process that records, as the watched process sees it."""

    def __init__(self, out: Path, *, hz: float, pid: int, is_run: bool) -> None:
        command = [sys.executable, "-P", "-m", "redline.monitor", "--pid", str(pid), "--out", str(out), "--hz", str(hz)]
        self._process = subprocess.Popen(
            [*command, *(["--run"] if is_run else [])],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is meant for the watched process
        )
        self._stdin, self._stdout = _given(self._process.stdin), _given(self._process.stdout)
        os.set_blocking(self._stdout.fileno(), False)
        self._unread = b""
        self._is_over = False

    @property
    def pid(self) -> int:
        """Number of the process."""
        return self._process.pid

    def take_events(self) -> list[Row]:
        """Return what it told since the last call, without waiting; its loss is told once, as a warning."""
        with suppress(BlockingIOError):
            while more := os.read(self._stdout.fileno(), 65_536):
                self._unread += more
        *lines, self._unread = self._unread.split(b"\n")
        events = [row for line in lines if (row := parse_row(line)) is not None]
        if not self._is_over and self._process.poll() is not None:
            self._is_over = True
            if not any(event.get("event") == "monitor-stop" for event in events):
                code = self._process.returncode
                message = f"the monitor ended with {code}: hardware.jsonl stops here, the rest goes on"
                events.append({"event": "monitor-warning", "unix_s": time.time(), "message": message})
        return events

    def wait_until_recording(self) -> list[Row]:
        """Return when it has begun, with what it told; a monitor that does not begin is no reason to wait longer."""
        end_s = time.monotonic() + START_PATIENCE_S
        while not (events := self.take_events()) and time.monotonic() < end_s:
            time.sleep(0.002)
        return events

    def close(self) -> list[Row]:
        """Let it take a last sample and end; return what it told. Closing twice is harmless."""
        if self._stdout.closed:
            return []
        self._is_over = True
        with suppress(OSError):  # it may be gone
            self._stdin.write(b"stop\n")  # a process that we forked may hold the pipe open
            self._stdin.flush()
        try:
            self._process.wait(STOP_PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        events = self.take_events()
        with suppress(OSError):
            self._stdin.close()
        self._stdout.close()
        return events


def _given(pipe: IO[bytes] | None) -> IO[bytes]:
    if pipe is None:
        raise RuntimeError("the process was started without a pipe")
    return pipe


class AttachedRecording(AbstractContextManager["AttachedRecording"]):
    """A recording of this process that lasts until it is closed."""

    def __init__(self, path: Path, watcher: Watcher) -> None:
        self.path = path
        self._watcher = watcher

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take a last sample and end the recording; closing twice is harmless."""
        self._watcher.close()


def record(out: Path | str, *, hz: float = DEFAULT_HZ, pid: int | None = None) -> AttachedRecording:
    """Record what this process and its children use of the machine, or those of `pid`, into the folder `out`."""
    path = Path(out)
    path.mkdir(parents=True, exist_ok=True)
    watcher = Watcher(path, hz=check_hz(hz), pid=os.getpid() if pid is None else pid, is_run=False)
    events = watcher.wait_until_recording()
    if not any(event.get("event") == "monitor-start" for event in events):
        watcher.close()
        why = "; ".join(str(event.get("message")) for event in events) or f"not within {START_PATIENCE_S:g} s"
        raise RuntimeError(f"the monitor did not start: {why}")
    return AttachedRecording(path, watcher)

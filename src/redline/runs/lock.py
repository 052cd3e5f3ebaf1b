"""One process per run directory: an advisory lock that dies with its holder and says who that is."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

import psutil

from redline.errors import UserError
from redline.files import explained, open_own, open_regular, write_all
from redline.jsonl import SCHEMA, parse_row, plain_text

LOCK_NAME = "run.lock"
MAX_LOCK_BYTES = 4096


class RunLock:
    """Holds `run.lock` of a directory until released or until the process ends, however it ends."""

    def __init__(self, directory: Path, name: str = LOCK_NAME) -> None:
        path = directory / name
        with explained(UserError, path):
            descriptor = open_own(path, os.O_RDWR | os.O_CREAT)
            try:
                _lock(descriptor, directory)
                os.ftruncate(descriptor, 0)
                write_all(descriptor, json.dumps(_holder()).encode())
            except (OSError, UserError):
                os.close(descriptor)
                raise
        self._descriptor: int | None = descriptor

    def share(self) -> SharedLock:
        """Return the lock for a process that is being started: others get in when both have let go."""
        if self._descriptor is None:
            raise ValueError("the lock was released")
        return SharedLock(os.dup(self._descriptor))

    def release(self) -> None:
        """Let others in; releasing twice is harmless."""
        if self._descriptor is None:
            return
        # the file stays: removing it would let two openers lock two files of one name
        with suppress(OSError):
            os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)
        self._descriptor = None


def is_held(directory: Path) -> bool | None:
    """Tell whether a run is being written, by the holder that its lock names; None if that is on another host.

    The lock is not tried: a process that wants it at that moment would be refused.
    """
    try:
        with open_regular(directory / LOCK_NAME) as file:
            holder = parse_row(file.read(MAX_LOCK_BYTES)) or {}
    except OSError:
        return False
    pid, host = holder.get("pid"), holder.get("host")
    if not isinstance(pid, int):
        return False
    return None if host != platform.node() else _is_alive(pid, holder.get("process_start_unix_s"))


class SharedLock:
    """The lock, held by another process until that ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.close = weakref.finalize(self, os.close, descriptor)

    def __reduce__(self) -> tuple[Callable[..., SharedLock], tuple[Any, ...]]:
        """Let a process that is being started hold it too."""
        return _attach, (DupFd(self._descriptor),)


def _attach(descriptor: Any) -> SharedLock:
    return SharedLock(descriptor.detach())


def _lock(descriptor: int, directory: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = _describe_holder(os.pread(descriptor, MAX_LOCK_BYTES, 0))
        raise UserError(f"{directory} is in use by {holder}") from error


def _holder() -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "pid": os.getpid(),
        "process_start_unix_s": psutil.Process().create_time(),
        "locked_unix_s": time.time(),
        "host": platform.node(),
    }


def _describe_holder(content: bytes) -> str:
    holder = parse_row(content) or {}
    pid, locked_unix_s, host = (holder.get(key) for key in ("pid", "locked_unix_s", "host"))
    if not isinstance(pid, int) or not isinstance(locked_unix_s, int | float):
        return "another process that is just starting: try again"
    since = "an unknown time"
    with suppress(ValueError, OverflowError, OSError):  # a moment that no clock can show
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(locked_unix_s))
    if host != platform.node():
        return f"process {plain_text(pid)} on {plain_text(host)} since {since}: stop it there first"
    if not _is_alive(pid, holder.get("process_start_unix_s")):
        return f"a child of process {pid}, which is gone: end the child or try again in a few seconds"
    return f"process {pid} since {since}: stop it first"


def _is_alive(pid: int, start_unix_s: object) -> bool:
    try:
        process = psutil.Process(pid)
        # a recycled pid has another start time; the clock's resolution is 10 ms
        is_same = isinstance(start_unix_s, int | float) and abs(process.create_time() - start_unix_s) < 1.0
        return is_same and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, ValueError, OverflowError):  # gone, or no valid process id
        return False

"""Where the frames lie: anonymous memory or a file, reserved before it is written.

Nothing is written to what is not reserved, because a page that does not exist when it is touched ends the process
(SIGBUS) instead of raising an error. Space is reserved piece by piece, as it is needed, up to a bound known before.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import numpy as np

from redline.errors import UserError
from redline.experience.free_memory import available_bytes
from redline.types import Array

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EFBIG)
MARGIN_BYTES = 64 * 1024**2  # left to the rest of the machine


class ReplayError(Exception):
    """The replay memory cannot go on: its disk fails, or not even the least that it needs is there."""


class Backing(Protocol):
    """Bytes from 0 to `max_bytes`, of which the first `reserved_bytes` may be used."""

    reserved_bytes: int

    def reserve(self, num_bytes: int) -> bool:
        """Make the first `num_bytes` usable; False if the machine has not that much."""
        ...

    def read(self, offset: int, length: int) -> bytes | memoryview:
        """Return a part."""
        ...

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Set a part."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


class Ram:
    """An anonymous mapping: gone with the last process that holds it, and never a file in a folder.

    Shared and reserved by the kernel where it can be. With `huge_pages` it is private and reserved by touching it:
    shared memory gets none, and raw frames, read at random, gain by them.
    """

    def __init__(
        self, max_bytes: int, free_bytes: Callable[[], int] = available_bytes, *, huge_pages: bool = False
    ) -> None:
        self.reserved_bytes = 0
        self._free_bytes = free_bytes
        self._descriptor: int | None = None
        if hasattr(os, "memfd_create") and not huge_pages:
            self._descriptor = os.memfd_create("redline-replay", os.MFD_CLOEXEC)
            self._end = weakref.finalize(self, os.close, self._descriptor)
        mapping = self._map(max_bytes)
        self.array: Array = np.frombuffer(mapping, np.uint8)
        self._view = memoryview(mapping)

    def _map(self, max_bytes: int) -> mmap.mmap:
        try:
            if self._descriptor is not None:
                os.ftruncate(self._descriptor, max_bytes)
                return mmap.mmap(self._descriptor, max_bytes)
            mapping = mmap.mmap(-1, max_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise ReplayError(f"{max_bytes:_} bytes can't be mapped: {error.strerror}") from None
        if hasattr(mmap, "MADV_HUGEPAGE"):
            mapping.madvise(mmap.MADV_HUGEPAGE)
        return mapping

    def reserve(self, num_bytes: int) -> bool:
        """Take pages for the part that is new, if the machine and its control groups can spare them."""
        more = num_bytes - self.reserved_bytes
        if more <= 0:
            return True
        if more > self._free_bytes() - MARGIN_BYTES:
            return False
        if self._descriptor is None:
            self.array[self.reserved_bytes : num_bytes] = 0
        elif not _allocate(self._descriptor, self.reserved_bytes, more):
            return False
        self.reserved_bytes = num_bytes
        return True

    def read(self, offset: int, length: int) -> memoryview:
        """Return a part without copying it."""
        return self._view[offset : offset + length]

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Copy into the mapping."""
        self._view[offset : offset + len(data)] = data

    def close(self) -> None:
        """Close the descriptor; the pages go with the last array that shows them."""
        if self._descriptor is not None:
            self._end()
            self._descriptor = -1  # the number may soon be another file's


class Disk:
    """A file without a name in a folder of the user's choice: its space is free again when the process ends."""

    def __init__(self, folder: Path) -> None:
        self.reserved_bytes = 0
        self._folder = folder
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._descriptor, name = tempfile.mkstemp(prefix="redline-replay-", dir=folder)
            self._end = weakref.finalize(self, os.close, self._descriptor)
            Path(name).unlink()
        except OSError as error:
            raise UserError(f"replay.path {folder} can't be used: {error.strerror}: choose another folder") from None

    def reserve(self, num_bytes: int) -> bool:
        """Take blocks on the disk for the part that is new."""
        more = num_bytes - self.reserved_bytes
        if more <= 0:
            return True
        if not _allocate(self._descriptor, self.reserved_bytes, more):
            return False
        self.reserved_bytes = num_bytes
        return True

    def read(self, offset: int, length: int) -> bytes:
        """Read a part; the page cache keeps what was read lately, and gives it up when memory is short."""
        try:
            data = os.pread(self._descriptor, length, offset)
        except OSError as error:
            raise ReplayError(f"the replay in {self._folder} can't be read: {error.strerror}") from None
        if len(data) != length:
            raise ReplayError(f"the replay in {self._folder} is cut short: somebody changed its file")
        return data

    def write(self, offset: int, data: bytes | memoryview) -> None:
        """Write a part."""
        try:
            written = os.pwrite(self._descriptor, data, offset)
        except OSError as error:
            raise ReplayError(f"the replay in {self._folder} can't be written: {error.strerror}") from None
        if written != len(data):
            raise ReplayError(f"the replay in {self._folder} can't be written: {written} of {len(data)} bytes were")

    def close(self) -> None:
        """Close the file, which ends it."""
        self._end()
        self._descriptor = -1  # the number may soon be another file's


def _allocate(descriptor: int, offset: int, length: int) -> bool:
    try:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(descriptor, offset, length)
        else:  # pragma: no cover - not on Linux
            os.truncate(descriptor, offset + length)
    except OSError as error:
        if error.errno in NO_SPACE:
            return False
        raise ReplayError(f"space for the replay can't be reserved: {error.strerror}") from None
    return True

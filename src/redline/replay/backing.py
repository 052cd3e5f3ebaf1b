"""Memory from the kernel: room for frames, and memory that processes share.

Only reserved space is written: touching a page that the machine can't provide kills the process (SIGBUS) instead of
raising an error. Space is reserved piece by piece, as it is needed, up to a bound known before.
"""

from __future__ import annotations

import errno
import mmap
import os
import tempfile
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from math import prod
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any

import numpy as np

from redline.errors import UserError
from redline.files import explained, make_folder
from redline.runs.host import available_bytes
from redline.types import Array, IntArray

NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.ENOMEM, errno.EFBIG)
MARGIN_BYTES = 64 * 1024**2  # left to the rest of the machine
CACHE_LINE_BYTES = 64  # arrays do not share one, so that two writers do not slow each other

Fields = Mapping[str, tuple[tuple[int, ...], str]]  # name → shape, dtype


class ReplayError(Exception):
    """The replay memory cannot continue: its disk failed, or the machine lacks the minimum that it needs."""


class Ram:
    """An anonymous mapping: freed with the last process that holds it, never a file in a folder.

    The kernel shares and reserves it where it can. With `huge_pages` it is private and reserved by touching it: shared
    memory gets no huge pages, and raw frames, read at random, are faster with them.
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
        """Take pages for the new part, if the machine and its control groups can spare them."""
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
        """Close the descriptor; the pages are freed with the last array that shows them."""
        if self._descriptor is not None:
            self._end()
            self._descriptor = -1  # the number may soon be another file's


class Disk:
    """An unnamed file in a folder of the user's choice: its space is free again when the process ends."""

    def __init__(self, folder: Path) -> None:
        self.reserved_bytes = 0
        self._folder = folder
        with explained(UserError, folder, before="replay.path can't be used: ", after=": choose another folder"):
            make_folder(folder)
            self._descriptor, name = tempfile.mkstemp(prefix="redline-replay-", dir=folder)
            self._end = weakref.finalize(self, os.close, self._descriptor)
            Path(name).unlink()

    def reserve(self, num_bytes: int) -> bool:
        """Take blocks on the disk for the new part."""
        more = num_bytes - self.reserved_bytes
        if more <= 0:
            return True
        if not _allocate(self._descriptor, self.reserved_bytes, more):
            return False
        self.reserved_bytes = num_bytes
        return True

    def read(self, offset: int, length: int) -> bytes:
        """Read a part; the page cache keeps recent parts and drops them when memory is short."""
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
            raise ReplayError(
                f"the replay in {self._folder} can't be written: only {written} of {len(data)} bytes were"
            )

    def close(self) -> None:
        """Close the file, which deletes it."""
        self._end()
        self._descriptor = -1  # the number may soon be another file's


Backing = Ram | Disk  # bytes of which the first `reserved_bytes` may be used


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


class Arena:
    """Room for blobs of any length that leave in the order in which they came: segments, reserved one at a time.

    Blobs are written one after another into segments; a segment is free again when its last blob has left. Because the
    oldest leave first, at most two segments are not full at any time, and the waste is known beforehand.
    """

    def __init__(self, backing: Backing, *, segment_bytes: int, max_segments: int, segments_ahead: int = 0) -> None:
        self.backing = backing
        self._segment_bytes = segment_bytes
        self._max_segments = max_segments
        self._segments_ahead = segments_ahead  # reserved before they are needed
        self.num_reserved = 0
        self._free: deque[int] = deque()  # segments that hold nothing
        self._blobs: IntArray = np.zeros(max_segments, np.int64)  # held in each segment
        self._current = -1  # the segment being filled; none yet
        self._used_bytes = segment_bytes  # of it
        self.is_short = False  # the machine had less than was asked for

    def has_room(self, length: int) -> bool:
        """Tell whether a blob of `length` fits, reserving another segment if need be."""
        while len(self._free) < self._segments_ahead and self._reserve_another():
            pass
        return self._fits_current(length) or bool(self._free) or self._reserve_another()

    def put(self, blob: bytes | memoryview) -> int:
        """Write a blob for which there is room; return its offset."""
        if not self._fits_current(len(blob)):
            full = self._current
            self._current = self._free.popleft()
            self._used_bytes = 0
            if full >= 0 and not self._blobs[full]:
                self._free.append(full)
        offset = self._current * self._segment_bytes + self._used_bytes
        self.backing.write(offset, blob)
        self._used_bytes += len(blob)
        self._blobs[self._current] += 1
        return offset

    def drop(self, offset: int) -> None:
        """Give up the blob at `offset`."""
        segment = offset // self._segment_bytes
        self._blobs[segment] -= 1
        if not self._blobs[segment] and segment != self._current:
            self._free.append(segment)

    def _fits_current(self, length: int) -> bool:
        return self._used_bytes + length <= self._segment_bytes

    def _reserve_another(self) -> bool:
        if self.num_reserved == self._max_segments or self.is_short:
            return False
        if not self.backing.reserve((self.num_reserved + 1) * self._segment_bytes):
            self.is_short = True
            return False
        self._free.append(self.num_reserved)
        self.num_reserved += 1
        return True


class SharedBlock:
    """Named arrays of zeros that several processes map: reserved at once, unnamed, freed with the last process.

    Pickled for a process that is being started, it maps the same memory there.
    """

    def __init__(self, name: str, fields: Fields, *, descriptor: int = -1) -> None:
        self._name = name
        self._fields = dict(fields)
        num_bytes = sum(_padded(shape, dtype) for shape, dtype in fields.values())
        if descriptor < 0:
            descriptor = os.memfd_create(name, os.MFD_CLOEXEC)
            try:
                os.posix_fallocate(descriptor, 0, num_bytes)  # reserved now: touching it later can't fail
            except OSError as error:
                os.close(descriptor)
                raise UserError(f"{num_bytes:_} bytes of shared memory are not available: {error.strerror}") from None
        self._descriptor = descriptor
        self.close = weakref.finalize(self, os.close, descriptor)
        self._memory: Array = np.frombuffer(mmap.mmap(descriptor, num_bytes), np.uint8)
        starts = np.cumsum([0, *(_padded(shape, dtype) for shape, dtype in fields.values())]).tolist()
        self._start = dict(zip(fields, starts, strict=False))

    def __getitem__(self, name: str) -> Array:
        shape, dtype = self._fields[name]
        start, size = self._start[name], prod(shape) * np.dtype(dtype).itemsize
        array: Array = self._memory[start : start + size].view(dtype).reshape(shape)
        return array

    def __reduce__(self) -> tuple[Callable[..., SharedBlock], tuple[Any, ...]]:
        """Let a process that is being started map the same memory."""
        return _attach, (self._name, self._fields, DupFd(self._descriptor))


def _padded(shape: tuple[int, ...], dtype: str) -> int:
    size = prod(shape) * np.dtype(dtype).itemsize
    return -(-size // CACHE_LINE_BYTES) * CACHE_LINE_BYTES


def _attach(name: str, fields: Fields, descriptor: Any) -> SharedBlock:
    return SharedBlock(name, fields, descriptor=descriptor.detach())

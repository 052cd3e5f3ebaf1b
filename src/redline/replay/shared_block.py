"""Arrays in memory that several processes map: reserved at once, unnamed, freed with the last process."""

from __future__ import annotations

import mmap
import os
import weakref
from collections.abc import Callable, Mapping
from math import prod
from multiprocessing.reduction import DupFd
from typing import Any

import numpy as np

from redline.errors import UserError
from redline.types import Array

CACHE_LINE_BYTES = 64  # arrays do not share one, so that two writers do not slow each other

Fields = Mapping[str, tuple[tuple[int, ...], str]]  # name → shape, dtype


class SharedBlock:
    """Named arrays of zeros; pickled for a process that is being started, it maps the same memory there."""

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
        self.num_bytes = num_bytes
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

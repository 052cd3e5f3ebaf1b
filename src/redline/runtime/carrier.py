"""Brings batches from the memory of their source to the device of the learner.

On a CPU there is nothing to do. A GPU copies on a stream of its own, while it computes on another: the learner's stream
waits for the copy, and so does the source, before it overwrites what is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import torch

from redline.algorithms.family import batch_tensors
from redline.replay.batches import Wait, nothing
from redline.types import AnyBatch, Array

BatchT = TypeVar("BatchT", bound=AnyBatch)


class Carrier(Protocol):
    """Carries batches to one device."""

    def carry(self, batches: Sequence[BatchT]) -> tuple[list[BatchT], Wait]:
        """Return the batches on the device, and what their source waits for before it overwrites its own."""


class Staying:
    """The learner reads batches where they are."""

    def carry(self, batches: Sequence[BatchT]) -> tuple[list[BatchT], Wait]:
        return list(batches), nothing


class Copying:
    """Copies batches to a GPU beside what it computes; from pinned memory without waiting."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def carry(self, batches: Sequence[BatchT]) -> tuple[list[BatchT], Wait]:
        computing = torch.cuda.current_stream(self._device)
        with torch.cuda.stream(self._stream):
            moved = [to_device(batch, self._device) for batch in batches]
            copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            copied.record(self._stream)
        computing.wait_event(copied)
        for batch in moved:
            for tensor in batch_tensors(batch).values():
                tensor.record_stream(computing)  # its memory is not given to another copy while it is read
        return moved, copied.synchronize


def download(tensor: torch.Tensor) -> tuple[torch.Tensor, Wait]:
    """Return a tensor's copy on the CPU, and what to wait for before it is read; a GPU computes on meanwhile."""
    if tensor.device.type != "cuda":
        return tensor.cpu(), nothing
    host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    host.copy_(tensor, non_blocking=True)
    copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
    copied.record(torch.cuda.current_stream(tensor.device))
    return host, copied.synchronize


def make_carrier(device: torch.device) -> Carrier:
    """Return the carrier to a device."""
    return Copying(device) if device.type == "cuda" else Staying()


def to_device(batch: BatchT, device: torch.device) -> BatchT:
    """Return a batch on a device, perhaps before its copy has ended."""
    moved: dict[str, Any] = {name: value.to(device, non_blocking=True) for name, value in batch_tensors(batch).items()}
    return replace(batch, **moved)


class Upload:
    """Brings observations to a device; to a GPU through pinned memory, which is used again for the next ones.

    The actions that are read from the device in between come after the copy.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._staged: torch.Tensor | None = None

    def __call__(self, obs: Array) -> torch.Tensor:
        given = torch.from_numpy(obs)
        if self._device.type != "cuda":
            return given.to(self._device)
        if self._staged is None or self._staged.shape != given.shape:
            self._staged = torch.empty_like(given, pin_memory=True)
        self._staged.copy_(given)
        return self._staged.to(self._device, non_blocking=True)

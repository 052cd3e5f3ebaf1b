"""Weights for everybody: written by the learner without waiting, read by others without being waited for.

Versions go round in a few slots. A reader copies the newest and looks afterwards whether the writer has come round
to its slot meanwhile; if so, it copies again. A writer that dies leaves the versions before as they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from redline.experience.shared_block import SharedBlock
from redline.types import Array

SLOTS = 3

Tensors = Mapping[str, torch.Tensor]


@dataclass(frozen=True)
class Version:
    """Which weights these are."""

    number: int
    updates: int  # that made them
    steps: int  # of the run when they were published


class SharedWeights:
    """The newest weights of a network, in memory that several processes map."""

    def __init__(self, example: Tensors, *, readers: int) -> None:
        num_bytes = sum(_padded(tensor) for tensor in example.values())
        fields = {
            "newest": ((8,), "int64"),
            "wanted": ((readers, 8), "int64"),
            "facts": ((SLOTS, 2), "int64"),
            "data": ((SLOTS, num_bytes), "uint8"),
        }
        self._look_at(SharedBlock("redline-weights", fields))

    def _look_at(self, block: SharedBlock) -> None:
        self._block = block
        self._newest: Array = block["newest"]
        self._wanted: Array = block["wanted"][:, 0]  # [readers] the version that a reader would like to have
        self._facts, self._data = block["facts"], block["data"]

    def __getstate__(self) -> SharedBlock:
        return self._block

    def __setstate__(self, block: SharedBlock) -> None:
        self._look_at(block)

    @property
    def number(self) -> int:
        """Number of the newest version; 0 before the first."""
        return int(self._newest[0])

    @property
    def is_wanted(self) -> bool:
        """Whether a reader asks for a version newer than all there are."""
        return bool(self._wanted.max() > self.number)

    def ask(self, reader: int) -> None:
        """Ask for a newer version than there is now."""
        self._wanted[reader] = self.number + 1

    def publish(self, weights: Tensors, *, updates: int, steps: int) -> None:
        """Make these the newest version."""
        number = self.number + 1
        for view, value in zip(self._views(number % SLOTS, weights), weights.values(), strict=True):
            view.copy_(value)
        self._facts[number % SLOTS] = updates, steps
        self._newest[0] = number  # what it counts is there: now it counts

    def read(self, into: Tensors) -> Version:
        """Copy the newest version into tensors of the same shapes."""
        while True:
            number = self.number
            for view, target in zip(self._views(number % SLOTS, into), into.values(), strict=True):
                target.copy_(view)
            updates, steps = self._facts[number % SLOTS].tolist()
            if self.number < number + SLOTS - 1:  # else the slot may have been written over meanwhile
                return Version(number, updates, steps)

    def _views(self, slot: int, like: Tensors) -> list[torch.Tensor]:
        views, start = [], 0
        for tensor in like.values():
            size = tensor.numel() * tensor.element_size()
            part = self._data[slot, start : start + size].view(_numpy_dtype(tensor))
            views.append(torch.from_numpy(part).view(tensor.shape))
            start += _padded(tensor)
        return views


def _padded(tensor: torch.Tensor) -> int:
    return -(-tensor.numel() * tensor.element_size() // 64) * 64


def _numpy_dtype(tensor: torch.Tensor) -> np.dtype[np.generic]:
    dtype: np.dtype[np.generic] = torch.empty(0, dtype=tensor.dtype).numpy().dtype
    return dtype

"""An update that a GPU repeats from a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from redline.algorithms.family import batch_tensors
from redline.types import AnyBatch


class CapturedUpdate:
    """Repeats an update from a CUDA graph: one launch in place of hundreds.

    The first updates are done as usual, so that everything is there that they allocate once.
    """

    WARM_UP_UPDATES = 3

    def __init__(self, step: Callable[[AnyBatch], torch.Tensor], device: torch.device) -> None:
        self._step = step
        self._device = device
        self._done = 0
        self._graph: torch.cuda.CUDAGraph | None = None
        self._batch: AnyBatch | None = None  # what the graph reads
        self._out = torch.empty(0)

    def __call__(self, batch: AnyBatch) -> torch.Tensor:
        """Learn from a batch; what is returned is overwritten by the next call."""
        with torch.cuda.device(self._device):  # streams and graphs are of the device at hand
            self._done += 1
            if self._done <= self.WARM_UP_UPDATES:
                return self._step_aside(batch)
            if self._graph is None:
                copies: dict[str, Any] = {name: value.clone() for name, value in batch_tensors(batch).items()}
                self._batch, self._graph = replace(batch, **copies), torch.cuda.CUDAGraph()
                with torch.cuda.graph(self._graph):
                    self._out = self._step(self._batch)
            elif self._batch is not None:
                for name, value in batch_tensors(batch).items():
                    getattr(self._batch, name).copy_(value)
            self._graph.replay()
            return self._out

    def _step_aside(self, batch: AnyBatch) -> torch.Tensor:
        """Learn on another stream, as PyTorch asks for before a capture."""
        computing, aside = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(computing)
        with torch.cuda.stream(aside):
            out = self._step(batch)
        computing.wait_stream(aside)
        return out

"""Where the plain loop computes, and how batches get there."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

import torch

from redline.bench.ladder.replay_parts import Drawn

Carrier = Callable[[Drawn], Drawn]  # of a batch to the device


class DevicePart(Protocol):
    """A device, and the way to it."""

    @property
    def device(self) -> torch.device:
        """Where the network is."""
        ...

    @property
    def pins_memory(self) -> bool:
        """Whether batches lie in memory that a GPU can read by itself."""
        ...

    def carrier(self) -> Carrier:
        """Return what carries a loop's batches to the device."""
        ...


@dataclass(frozen=True)
class OnHost:
    """All in the machine's own memory."""

    device: ClassVar[torch.device] = torch.device("cpu")
    pins_memory: ClassVar[bool] = False

    def carrier(self) -> Carrier:
        """Leave batches where they are."""
        return lambda batch: batch


@dataclass(frozen=True)
class OnGpu:
    """The network on a GPU; the host waits for each copy."""

    device: ClassVar[torch.device] = torch.device("cuda")
    pins_memory: ClassVar[bool] = False

    def carrier(self) -> Carrier:
        """Copy, and wait."""
        return lambda batch: type(batch)(*(column.to(self.device) for column in batch))


@dataclass(frozen=True)
class OnGpuUnawaited:
    """The network on a GPU that copies from pinned memory while the host goes on."""

    device: ClassVar[torch.device] = torch.device("cuda")
    pins_memory: ClassVar[bool] = True

    def carrier(self) -> Carrier:
        """Order the copies, and go on."""
        return _Unawaited(self.device)


class _Unawaited:
    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._copied: torch.cuda.Event | None = None

    def __call__(self, batch: Drawn) -> Drawn:
        if self._copied is not None:  # the buffer of the batch before is filled anew from now on
            self._copied.synchronize()
        carried = type(batch)(*(column.to(self._device, non_blocking=True) for column in batch))
        self._copied = torch.cuda.current_stream().record_event()
        return carried

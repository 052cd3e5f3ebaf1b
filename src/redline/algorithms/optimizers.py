"""Optimisers, their learning rate and gradient clipping."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch

from redline.errors import UserError, check_positive, check_range
from redline.schedules import Linear

FUSED_ON = ("cpu", "cuda")  # kinds of devices
UNBIASED_STEP = 1e9  # after so many steps decay ** steps is 0: the bias correction of a moment has no effect


@runtime_checkable
class Optimizer(Protocol):
    """A recipe for an optimiser."""

    def lr_at(self, steps: int) -> float:
        """Return the learning rate after `steps` steps."""

    def max_norm(self) -> float | None:
        """Return the norm to which larger gradients are clipped; None: never."""

    def annealed_from(self) -> int:
        """Return the step at which the learning rate begins to fall; 0 if it never does."""

    def annealed_at(self) -> int:
        """Return the step at which the learning rate stops falling; 0 if it never falls."""

    def build(self, parameters: Iterable[torch.nn.Parameter], *, capturable: bool = False) -> torch.optim.Optimizer:
        """Return the optimiser over `parameters`; if `capturable`, a CUDA graph can hold its steps."""


@dataclass(frozen=True, kw_only=True)
class Annealed(Optimizer):
    """An optimiser whose learning rate may fall and whose gradients may be clipped."""

    lr: float
    """Learning rate."""
    eps: float
    """Added to the denominator."""
    clip_norm: float = 0.0
    """Norm of the gradient beyond which it is scaled down; 0 never."""
    anneal_steps: int = 0
    """Steps over which the learning rate falls; 0: it stays."""
    anneal_after_steps: int = 0
    """Steps before it begins to fall."""
    final_share: float = 0.0
    """Share of the learning rate that is left after those steps."""

    def __post_init__(self) -> None:
        for name, value in (("lr", self.lr), ("eps", self.eps)):
            check_positive(f"optimizer.{name}", value)
        if not 0.0 <= self.clip_norm < math.inf:
            raise UserError(f"optimizer.clip-norm is {self.clip_norm}: use a finite number above 0, or 0 for never")
        check_range("optimizer.anneal-steps", self.anneal_steps, 0, use="1 or more steps, or 0 for never")
        check_range("optimizer.anneal-after-steps", self.anneal_after_steps, 0)
        check_range("optimizer.final-share", self.final_share, 0, 1, use="0 to 1, a share of the learning rate")

    def lr_at(self, steps: int) -> float:
        if not self.anneal_steps:
            return self.lr
        return Linear(self.lr, self.lr * self.final_share, self.anneal_steps, self.anneal_after_steps).at(steps)

    def max_norm(self) -> float | None:
        return self.clip_norm or None

    def annealed_from(self) -> int:
        return self.anneal_after_steps if self.anneal_steps else 0

    def annealed_at(self) -> int:
        return self.anneal_after_steps + self.anneal_steps if self.anneal_steps else 0


@dataclass(frozen=True, kw_only=True)
class Adam(Annealed):
    """Adam, fused into one pass over the parameters."""

    lr: float = 1e-4
    eps: float = 1.5e-4
    """Added to the denominator; large, as is usual for DQN, so that small gradients stay small."""

    def build(self, parameters: Iterable[torch.nn.Parameter], *, capturable: bool = False) -> torch.optim.Optimizer:
        return fused_adam(list(parameters), lr=self.lr, eps=self.eps, capturable=capturable)


@dataclass(frozen=True, kw_only=True)
class Rmsprop(Annealed):
    """RMSProp without momentum, as A3C has it."""

    lr: float = 7e-4
    eps: float = 1e-5
    clip_norm: float = 0.5
    decay: float = 0.99
    """Share of the mean square that is kept at each update."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0.0 <= self.decay < 1.0:
            raise UserError(f"optimizer.decay is {self.decay}: use a number from 0 to below 1")

    def build(self, parameters: Iterable[torch.nn.Parameter], *, capturable: bool = False) -> torch.optim.Optimizer:
        """Return Adam whose first moment is the gradient itself, without bias correction.

        That is RMSProp, for which torch has no fused version: four passes over the parameters become one.
        """
        listed = list(parameters)
        adam = fused_adam(listed, lr=self.lr, eps=self.eps, betas=(0.0, self.decay), capturable=capturable)
        for parameter in listed:
            adam.state[parameter] = {
                "step": torch.tensor(UNBIASED_STEP, device=parameter.device if counts_on_device(adam) else None),
                "exp_avg": torch.zeros_like(parameter),
                "exp_avg_sq": torch.zeros_like(parameter),
            }
        return adam


@dataclass(frozen=True, kw_only=True)
class Radam(Annealed):
    """Adam with its early steps rectified (arXiv:1908.03265)."""

    lr: float = 2.5e-4
    eps: float = 1e-8
    clip_norm: float = 10.0

    def build(self, parameters: Iterable[torch.nn.Parameter], *, capturable: bool = False) -> torch.optim.Optimizer:
        listed = list(parameters)
        lr = _readable(self.lr, listed, capturable=capturable)
        # one parameter after the other, as is the default on a CPU, takes five times as long
        return torch.optim.RAdam(listed, lr=lr, eps=self.eps, foreach=True, capturable=capturable)


def fused_adam(
    parameters: Sequence[torch.nn.Parameter],
    *,
    lr: float,
    eps: float,
    betas: tuple[float, float] = (0.9, 0.999),
    capturable: bool = False,
) -> torch.optim.Adam:
    """Return Adam in one pass over the parameters, where torch has that."""
    can_fuse = all(parameter.device.type in FUSED_ON for parameter in parameters)
    rate = _readable(lr, parameters, capturable=capturable)
    return torch.optim.Adam(parameters, lr=rate, eps=eps, betas=betas, fused=can_fuse, capturable=capturable)


def _readable(lr: float, parameters: Sequence[torch.nn.Parameter], *, capturable: bool) -> float | torch.Tensor:
    """Return the learning rate as a CUDA graph can read it, if one will: a number would be a part of the graph."""
    return torch.tensor(lr, device=parameters[0].device) if capturable else lr


def counts_on_device(optimizer: torch.optim.Optimizer) -> bool:
    """Tell whether an optimiser keeps its count of steps beside the weights; others read it at every step."""
    return bool(optimizer.defaults.get("fused") or optimizer.defaults.get("capturable"))

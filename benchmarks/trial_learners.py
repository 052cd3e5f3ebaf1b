"""Learners with one thing changed: what learner_trials.py compares."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from redline.algorithms.named.a2c import A2C
from redline.algorithms.named.dqn import DQN
from redline.algorithms.on_policy import OnPolicy
from redline.algorithms.q_learning import QLearning
from redline.bench.example_batches import example_batch
from redline.cli.flags import parse_train
from redline.learner import Learner
from redline.networks.torsos import ConvolutionalTorso
from redline.types import AnyBatch, EnvSpec
from trial_torsos import OtherTorso, nchw

PONG = EnvSpec("pong", (84, 84), "uint8", stack=4, num_actions=6, frames_per_step=4)
CPU = torch.device("cpu")
NUM_BATCHES = 8

Torso = Callable[[ConvolutionalTorso], torch.nn.Module]


class Learning:
    """A learner that learns from a few batches in turn, `group` of them precomputed at once."""

    def __init__(
        self,
        algorithm: QLearning | OnPolicy = DQN,
        *,
        spec: EnvSpec = PONG,
        torso: Torso | None = None,
        group: int = 1,
    ) -> None:
        self.learner = Learner(algorithm, spec, seed=1, device=CPU)
        if torso is not None:
            for network in {self.learner.online, self.learner.target}:
                network.torso = torso(network.torso)  # type: ignore[arg-type]
        rng = np.random.default_rng(1)
        self.batches = [example_batch(algorithm, spec, rng) for _ in range(NUM_BATCHES)]
        self._group = group
        self._rng = rng

    def __call__(self, count: int) -> None:
        for first in range(0, count, self._group):
            group = [self.batches[i % NUM_BATCHES] for i in range(first, min(first + self._group, count))]
            for batch, precomputed in zip(group, self.learner.precompute_targets(group), strict=True):
                self.learner.update(batch, steps=0, rng=self._rng, precomputed=precomputed)


def of_recipe(torso: Torso | None = None) -> Learning:
    """Return the learner of the recipe pong: a small network, pictures of 48 × 48, batches of 64."""
    job = parse_train(["--recipe", "pong"]).job
    return Learning(job.algorithm, spec=replace(PONG, frame_shape=(job.env.size, job.env.size)), torso=torso)


class OneThread:
    """A learner that is given one thread for each of its turns."""

    def __init__(self, learning: Learning) -> None:
        self._learning = learning

    def __call__(self, count: int) -> None:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            self._learning(count)
        finally:
            torch.set_num_threads(threads)


class Rollouts:
    """A2C's acting and learning on rollouts of 16 × 5, with or without what acting computed."""

    def __init__(self, *, keep: bool) -> None:
        self._learning = Learning(A2C)
        self._keep = keep

    def __call__(self, count: int) -> None:
        learner = self._learning.learner
        for i in range(count):
            batch: Any = self._learning.batches[i % NUM_BATCHES]
            kept = []
            for obs in batch.obs.split(16):
                with torch.set_grad_enabled(self._keep):
                    kept.append(learner.online.torso(obs))
                with torch.no_grad():
                    learner.online.head(kept[-1])
            whole: AnyBatch = replace(batch, features=tuple(kept)) if self._keep else batch
            learner.update(whole, steps=0, rng=np.random.default_rng(0))


def with_optimizer(make: Callable[[Any], torch.optim.Optimizer], *, flat: bool = False) -> Learning:
    """Return a learner whose weights are moved by another optimiser, as one flat tensor if so wished."""
    learning = Learning()
    parameters = list(learning.learner.online.parameters())
    learning.learner.optimizer = FlatOptimizer(make, parameters) if flat else make(parameters)  # type: ignore[assignment]
    return learning


class FlatOptimizer:
    """One tensor holds all weights, another all gradients, which are therefore added to and not replaced."""

    def __init__(self, make: Callable[[Any], torch.optim.Optimizer], parameters: list[torch.nn.Parameter]) -> None:
        self._parameters = parameters
        self._flat = torch.nn.Parameter(
            torch.cat([value.detach().permute(_order(value)).flatten() for value in parameters])
        )
        self._gradient = torch.zeros_like(self._flat)
        for value, weights, gradient in zip(
            parameters, self._views(self._flat.data), self._views(self._gradient), strict=True
        ):
            value.data, value.grad = weights, gradient
        self._flat.grad = self._gradient
        self._optimizer = make([self._flat])
        self.param_groups = self._optimizer.param_groups

    def _views(self, flat: torch.Tensor) -> Iterator[torch.Tensor]:
        begin = 0
        for value in self._parameters:
            order = _order(value)
            shape = [value.shape[axis] for axis in order]
            back = [order.index(axis) for axis in range(value.dim())]
            yield flat[begin : begin + value.numel()].view(shape).permute(back)
            begin += value.numel()

    def zero_grad(self, set_to_none: bool) -> None:
        """Begin a new sum."""
        self._gradient.zero_()

    def step(self) -> None:
        """Move all weights at once."""
        self._optimizer.step()


def _order(value: torch.Tensor) -> tuple[int, ...]:
    return (0, 2, 3, 1) if value.dim() == 4 else tuple(range(value.dim()))


def default_adam(parameters: Any) -> torch.optim.Optimizer:
    """Return Adam as a user writes it."""
    return torch.optim.Adam(parameters, lr=1e-4, eps=1.5e-4)


def fused_adam(parameters: Any) -> torch.optim.Optimizer:
    """Return Adam in one pass."""
    return torch.optim.Adam(parameters, lr=1e-4, eps=1.5e-4, fused=True)


def plain_nchw() -> Learning:
    """Return the learner with the channels outermost everywhere."""
    learning = Learning(torso=lambda torso: OtherTorso(torso, convert=nchw, as_it_lies=False))
    for network in (learning.learner.online, learning.learner.target):
        for value in network.parameters():
            value.data = value.data.contiguous()
    return learning


class Bf16:
    """A learner whose products are computed in bf16, its weights and sums in float32."""

    def __init__(self, learning: Learning) -> None:
        self.learner = learning.learner
        self._learning = learning

    def __call__(self, count: int) -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            self._learning(count)


class TransposedLinear(torch.nn.Linear):
    """A dense layer whose result lies with the rows innermost, and its gradients likewise."""

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        return torch.mm(self.weight, features.t()).t() + self.bias


def dense_transposed() -> Learning:
    """Return the learner with its widest layer computed the other way round."""
    learning = Learning()
    for network in (learning.learner.online, learning.learner.target):
        for layer in network.head.modules():
            if isinstance(layer, torch.nn.Linear) and layer.in_features > 1_000:
                layer.__class__ = TransposedLinear
    return learning


def compiled() -> Learning:
    """Return the learner with its networks compiled."""
    learning = Learning()
    for network in (learning.learner.online, learning.learner.target):
        network.torso.compile()
        network.head.compile()
    return learning


class Moving:
    """The optimiser's step alone, on gradients that stay."""

    def __init__(self, make: Callable[[Any], torch.optim.Optimizer]) -> None:
        network = copy.deepcopy(Learning().learner.online)
        for value in network.parameters():
            value.grad = torch.randn_like(value)
        self._optimizer = make(network.parameters())

    def __call__(self, count: int) -> None:
        for _ in range(count):
            self._optimizer.step()

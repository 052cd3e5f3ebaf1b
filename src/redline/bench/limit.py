"""The machine's limit: a training that only multiplies matrices, as fast as this run ever did, and only emulates.

limit = 1 / (FLOP per step ÷ best sgemm rate + env seconds per step)
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from redline.algorithms.on_policy import OnPolicy
from redline.algorithms.q_learning import QLearning
from redline.bench.example_batches import example_batch
from redline.losses import weighted_mean
from redline.runs.host import usable_cores
from redline.types import EnvSpec

SIZES = (256, 512, 1024, 2048)  # of the square matrices
TRY_SECONDS = 0.15


@dataclass(frozen=True)
class Work:
    """The arithmetic that an algorithm needs, whatever computes it."""

    flop_per_update: float
    flop_per_step: float

    def as_dict(self) -> dict[str, float]:
        """Return it as plain data."""
        return asdict(self)


@dataclass(frozen=True)
class Limit:
    """The most that a training could reach on this machine."""

    sgemm_gflops: float  # the best of this run
    work: Work
    env_s_per_step: float = 0.0  # of the bare emulators on all cores

    @property
    def steps_per_s(self) -> float:
        """Return the steps per second of a training that only computes and emulates."""
        return 1.0 / (self.work.flop_per_step / (self.sgemm_gflops * 1e9) + self.env_s_per_step)

    @property
    def updates_per_s(self) -> float:
        """Return the updates per second of a learner that only computes."""
        return self.sgemm_gflops * 1e9 / self.work.flop_per_update


class Sgemm:
    """Multiplies square matrices of several sizes, and remembers the best rate of all tries."""

    def __init__(self, threads: Sequence[int] = ()) -> None:
        self._threads = sorted(set(threads) | {usable_cores()})
        generator = torch.Generator().manual_seed(1)
        self._pairs = [
            (torch.rand(size, size, generator=generator), torch.rand(size, size, generator=generator)) for size in SIZES
        ]
        self._out = [torch.empty(size, size) for size in SIZES]
        self.best_gflops = 0.0

    def measure(self) -> float:
        """Try every size with every number of threads; return the best rate of this call, in GFLOP/s."""
        before = torch.get_num_threads()
        try:
            best = max(self._try(threads, number) for threads in self._threads for number in range(len(SIZES)))
        finally:
            torch.set_num_threads(before)
        self.best_gflops = max(self.best_gflops, best)
        return best

    def _try(self, threads: int, number: int) -> float:
        torch.set_num_threads(threads)
        (left, right), out = self._pairs[number], self._out[number]
        torch.mm(left, right, out=out)  # wakes the threads, warms the caches
        count, begun_s, spent_s = 0, time.perf_counter(), 0.0
        while spent_s < TRY_SECONDS:
            torch.mm(left, right, out=out)
            count += 1
            spent_s = time.perf_counter() - begun_s
        return 2.0 * float(SIZES[number]) ** 3 * count / spent_s / 1e9


def count_work(algorithm: QLearning | OnPolicy, spec: EnvSpec) -> Work:
    """Count the FLOP of convolutions and matrix products, two for each multiply-add.

    An update counts every forward pass of its loss, and the backward pass without the gradient of the pixels. A step
    counts its share of the updates. With rollouts it also counts the forward pass of acting. With a replay memory it
    does not: acting is 3 % of DQN's work, and none of it while actions are random.
    """
    network = algorithm.build_network(spec, torch.Generator().manual_seed(1))
    batch = example_batch(algorithm, spec, np.random.default_rng(1))
    with FlopCounterMode(display=False) as counter:
        losses, weights, _ = algorithm.losses(batch, stack=spec.stack, online=network, target=network)
        weighted_mean(losses, weights).backward()  # type: ignore[no-untyped-call]
    flop_per_update = float(counter.get_total_flops())
    flop_per_step = flop_per_update * algorithm.samples_per_step / algorithm.batch_size
    if algorithm.replay is None:
        flop_per_step += count_forward(algorithm, spec)
    return Work(flop_per_update, flop_per_step)


def count_forward(algorithm: QLearning | OnPolicy, spec: EnvSpec) -> float:
    """Count the FLOP of the network for one observation."""
    network = algorithm.build_network(spec, torch.Generator().manual_seed(1))
    dtype = torch.uint8 if spec.frame_dtype == "uint8" else torch.float32
    obs = torch.zeros((1, spec.stack, *spec.frame_shape), dtype=dtype)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network.step(obs, torch.zeros(1, network.state_width))
    return float(counter.get_total_flops())

"""`redline bench learner`: updates per second, beside the arithmetic that this machine can do.

The machine's limit is the speed of a training that only emulates and multiplies matrices, as fast as this run ever did:
1 / (FLOP per step ÷ best sgemm rate + env seconds per step).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from redline.algorithms.catalog import canonical_name, find_algorithm
from redline.algorithms.on_policy import OnPolicy
from redline.algorithms.q_learning import QLearning
from redline.bench.measuring import Contender, Measuring, Progress, alternate, goal, rate_of, silent, why_not_judged
from redline.envs.catalog import env_spec
from redline.envs.config import EnvConfig
from redline.learner import Learner
from redline.losses import weighted_mean
from redline.runs.host import usable_cores
from redline.runtime.building import prepare_process
from redline.runtime.carrier import to_device
from redline.runtime.config import Job, LearnerConfig
from redline.runtime.counters import Purpose, stream
from redline.runtime.example_batches import Algorithm, example_batch, example_batches, example_frames
from redline.runtime.precision import learnt_in
from redline.runtime.resolve import ResolvedJob, resolve_job
from redline.runtime.sources import RolloutSource, largest_group
from redline.types import AnyBatch, EnvSpec, Precision

SIZES = (256, 512, 1024, 2048)  # of the square matrices
TRY_SECONDS = 0.15


class Work(NamedTuple):
    """The arithmetic that an algorithm needs."""

    flop_per_update: float
    flop_per_step: float


@dataclass(frozen=True)
class Limit:
    """The highest speed that a training could reach on this machine."""

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

    def figures(self) -> dict[str, float]:
        """Return the inputs of the limit."""
        return {**self.work._asdict(), "sgemm_gflops": self.sgemm_gflops}


class Sgemm:
    """Multiplies square matrices of several sizes and keeps the best rate."""

    def __init__(self, threads: Sequence[int] = (), device: torch.device | None = None) -> None:
        self._threads = sorted(set(threads) | {usable_cores()})
        self._device = device or torch.device("cpu")
        generator = torch.Generator().manual_seed(1)
        self._matrices = [torch.rand(3, size, size, generator=generator).to(self._device).unbind() for size in SIZES]
        self.best_gflops = 0.0

    def measure(self) -> float:
        """Try every size with every number of threads and return the best rate in GFLOP/s."""
        before = torch.get_num_threads()
        try:
            best = max(self._try(threads, *matrices) for threads in self._threads for matrices in self._matrices)
        finally:
            torch.set_num_threads(before)
        self.best_gflops = max(self.best_gflops, best)
        return best

    def _try(self, threads: int, left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> float:
        torch.set_num_threads(threads)
        torch.mm(left, right, out=out)  # starts the threads, warms the caches
        count, begun_s, spent_s = 0, time.perf_counter(), 0.0
        while spent_s < TRY_SECONDS:
            torch.mm(left, right, out=out)
            wait_for_device(self._device)
            count += 1
            spent_s = time.perf_counter() - begun_s
        return 2.0 * float(len(out)) ** 3 * count / spent_s / 1e9


def count_work(algorithm: Algorithm, spec: EnvSpec) -> Work:
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


def count_forward(algorithm: Algorithm, spec: EnvSpec) -> float:
    """Count the FLOP of the network for one observation."""
    network = algorithm.build_network(spec, torch.Generator().manual_seed(1))
    obs = example_frames(spec, 1, spec.stack, np.random.default_rng(1))
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        network.step(obs, torch.zeros(1, network.state_width))
    return float(counter.get_total_flops())


# Updates per second

GOAL_FRACTION = 0.60  # of the limit, for DQN at batch 32
GOAL_BATCH_SIZE = 32
SLICES = 5  # of a turn


@dataclass(frozen=True)
class LearnerBench:
    """The options of the bench."""

    algo: str = "dqn"
    batch_size: int | None = None  # None: the algorithm's own
    threads: int = 0  # 0: as a training chooses
    precision: Precision = "float32"
    device: str = "cpu"
    rounds: int = 7
    turn_s: float = 2.0  # of each contender in each round
    seed: int = 1

    def run(self, progress: Progress = silent) -> dict[str, Any]:
        """Measure and return all figures."""
        measuring, resolved = Measuring(), self.resolve()
        prepare_process(resolved)
        job, algorithm, spec = resolved.job, resolved.job.algorithm, env_spec(resolved.job.env)
        sgemm = Sgemm([job.learner.threads], resolved.device)
        learning = Learning(resolved, spec, example_batches(algorithm, spec, seed=self.seed), seed=self.seed)

        def multiply(count: int) -> None:
            for _ in range(count):
                sgemm.measure()  # only the best rate counts

        turns: dict[str, Contender] = {"redline": learning, "sgemm": multiply}
        measured = alternate(turns, rounds=self.rounds, turn_s=self.turn_s, slices=SLICES, progress=progress)
        updates, others_percent = measured["redline"], measuring.others_percent()
        limit = Limit(sgemm.best_gflops, count_work(algorithm, spec))
        fraction = rate_of([value / limit.updates_per_s for value in updates])
        why_not = why_not_judged(rounds=self.rounds, others_percent=others_percent)
        if (canonical_name(self.algo), algorithm.batch_size) != ("dqn", GOAL_BATCH_SIZE):
            why_not = f"the goal is for dqn with batches of {GOAL_BATCH_SIZE}"
        if self.precision != "float32":
            why_not = "the limit is that of float32"
        steps_per_update = algorithm.batch_size / algorithm.samples_per_step
        found = {
            "config": self._config(job, learning),
            "updates_per_s": rate_of(updates),
            "steps_per_s": rate_of([value * steps_per_update for value in updates]),
            "limit_fraction": fraction,
            "limit": {**limit.figures(), "updates_per_s": limit.updates_per_s},
            "goals": {"limit_fraction": goal(fraction, GOAL_FRACTION, why_not=why_not)},
            "rounds": [{"redline": value} for value in updates],
        }
        return measuring.result(found, others_percent=others_percent)

    def _config(self, job: Job, learning: Learning) -> dict[str, Any]:
        algorithm = job.algorithm
        return {
            "algo": canonical_name(self.algo),
            "env": "pong",
            "batch_size": algorithm.batch_size,
            "samples_per_step": algorithm.samples_per_step,
            "threads": job.learner.threads,
            "precision": job.learner.precision,
            "device": str(job.learner.device),
            "batches_in_turn": learning.num_batches,
            "batches_at_once": batches_at_once(job),
            "includes_forward_of_acting": learning.includes_forward_of_acting,
            "rounds": self.rounds,
            "turn_s": self.turn_s,
            "seed": self.seed,
            "low_high": "90 % of the rounds",
        }

    def resolve(self) -> ResolvedJob:
        """Return the job whose updates are measured."""
        preset = find_algorithm(self.algo).atari
        algorithm = preset.algorithm
        if self.batch_size is not None:
            algorithm = replace(algorithm, batch_size=self.batch_size)
        if isinstance(algorithm, QLearning):  # no replay memory is made, so its compression is not measured
            algorithm = replace(algorithm, replay=replace(algorithm.replay, codec="raw"))
        job = Job(
            env=EnvConfig(id="pong", stack=preset.stack),
            algorithm=algorithm,
            num_envs=preset.num_envs,
            learner=LearnerConfig(threads=self.threads, precision=self.precision),
            seed=self.seed,
            device=self.device,
        )
        return resolve_job(job)


class Learning:
    """The learner of a training, with batches in the same groups; called with a number of updates.

    Where a training reuses the forward pass of acting, this learner computes its own.
    """

    def __init__(self, resolved: ResolvedJob, spec: EnvSpec, batches: Sequence[AnyBatch], *, seed: int) -> None:
        algorithm, num_envs = resolved.job.algorithm, resolved.job.num_envs
        self._seed = seed
        self.learner = Learner(algorithm, spec, seed=seed, device=resolved.device, precision=learnt_in(resolved.job))
        self.includes_forward_of_acting = (
            isinstance(algorithm, OnPolicy)
            and RolloutSource(algorithm, spec, num_envs=num_envs, seed=seed, learner=self.learner).keeps_features
        )
        self._group = batches_at_once(resolved.job)
        self.num_batches = len(batches)
        self._batches = cycle([to_device(batch, resolved.device) for batch in batches])

    def __call__(self, count: int) -> None:
        """Do `count` updates, grouped as in a training."""
        while count > 0:
            group = list(islice(self._batches, min(count, self._group)))
            for batch, precomputed in zip(group, self.learner.precompute_targets(group), strict=True):
                rng = stream(self._seed, Purpose.LEARN, self.learner.updates)
                self.learner.update(batch, steps=0, rng=rng, precomputed=precomputed)
            count -= len(group)
        wait_for_device(self.learner.device)


def wait_for_device(device: torch.device) -> None:
    """Wait until a GPU has ended what was begun."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def batches_at_once(job: Job) -> int:
    """Return how many independent updates fall due with a vector step."""
    algorithm = job.algorithm
    if isinstance(algorithm, OnPolicy):
        return 1
    due = round(job.num_envs * algorithm.samples_per_step / algorithm.batch_size)
    return max(1, min(due, largest_group(algorithm)))

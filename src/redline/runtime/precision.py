"""The precision of a learner's products: as asked for, as this machine can, or chosen by a short measurement."""

import time
from collections.abc import Iterator
from itertools import cycle
from statistics import median

import numpy as np
import torch

from redline.learner import Learner, compute_threads
from redline.runs.host import has_bf16
from redline.runtime.carrier import to_device
from redline.runtime.config import Job
from redline.runtime.example_batches import example_batch
from redline.types import Adjustment, EnvSpec, Precision

ROUNDS, TURN_S, LEAST_UPDATES = 5, 0.15, 2  # a turn of each precision in each round
BATCHES = 4  # in turn
BF16_MAJOR = 8  # compute capability of the first GPUs with bf16
LEAST_GAIN = 1.03  # in all rounds but one: bf16 costs precision, and must be worth it

_measured: dict[str, list[float]] = {}  # in this process, by what was measured


def resolve_precision(job: Job, spec: EnvSpec, device: torch.device) -> tuple[Precision, list[Adjustment]]:
    """Return the precision to compute with, and why it is another than was asked for."""
    asked = job.learner.precision
    if asked == "float32":
        return "float32", []
    if not can_bf16(device):
        why = f"{'this processor' if device.type == 'cpu' else device} has no instructions for bf16"
        return "float32", [Adjustment("learner.precision", asked, "float32", why)]
    if asked == "bf16":
        return "bf16", []
    gains = measure_gains(job, spec, device)
    is_faster = sum(gain >= LEAST_GAIN for gain in gains) >= ROUNDS - 1
    chosen: Precision = "bf16" if is_faster else "float32"
    spread = f"{min(gains):.2f} to {max(gains):.2f} in {ROUNDS} rounds"
    why = f"updates in bf16 are {median(gains):.2f} × as fast here, {spread}"
    return chosen, [Adjustment("learner.precision", asked, chosen, why)]


def learnt_in(job: Job) -> Precision:
    """Return the precision in which a resolved job learns."""
    return "bf16" if job.learner.precision == "bf16" else "float32"


def acted_in(job: Job, device: torch.device) -> Precision:
    """Return the precision in which a resolved job acts on a device: as it learns, if the device can."""
    return learnt_in(job) if can_bf16(device) else "float32"


def allow_tf32(*, allowed: bool) -> None:
    """Let GPUs round the inputs of float32 products in this process, or not: PyTorch would for convolutions."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed


def can_bf16(device: torch.device) -> bool:
    """Tell whether a device multiplies bf16 by instructions of its own."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).major >= BF16_MAJOR
    return has_bf16()


def measure_gains(job: Job, spec: EnvSpec, device: torch.device) -> list[float]:
    """Return how many times as fast updates in bf16 are as in float32, in each round; measured once in a process."""
    what = repr((job.algorithm, spec, job.learner.threads, job.learner.tf32, device))
    if what not in _measured:
        allow_tf32(allowed=job.learner.tf32)
        with compute_threads(job.learner.threads):
            turns = {name: _updates(job, spec, device, precision=name) for name in ("float32", "bf16")}
            for updates in turns.values():
                _speed(updates)  # warm-up
            rounds = [{name: _speed(updates) for name, updates in turns.items()} for _ in range(ROUNDS)]
        _measured[what] = [speeds["bf16"] / speeds["float32"] for speeds in rounds]
    return _measured[what]


def _updates(job: Job, spec: EnvSpec, device: torch.device, *, precision: Precision) -> Iterator[torch.Tensor]:
    """Do an update whenever the next one is asked for."""
    learner = Learner(job.algorithm, spec, seed=1, device=device, precision=precision)
    rng = np.random.default_rng(1)
    batches = [to_device(example_batch(job.algorithm, spec, rng), device) for _ in range(BATCHES)]
    for batch in cycle(batches):
        yield learner.update(batch, steps=0, rng=rng)


def _speed(updates: Iterator[torch.Tensor]) -> float:
    """Return updates per second."""
    begun_s, count = time.perf_counter(), 0
    while count < LEAST_UPDATES or time.perf_counter() - begun_s < TURN_S:
        next(updates).sum().item()  # waits for the device
        count += 1
    return count / (time.perf_counter() - begun_s)

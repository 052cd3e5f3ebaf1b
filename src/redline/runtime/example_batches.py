"""Batches of the shape that an algorithm learns from, with random contents: to measure updates without playing."""

from __future__ import annotations

import numpy as np
import torch

from redline.algorithms.family import batch_tensors
from redline.algorithms.on_policy import OnPolicy
from redline.algorithms.q_learning import QLearning
from redline.types import AnyBatch, Array, Batch, EnvSpec, RolloutBatch, SequenceBatch

GAMMA = 0.99
MOST_BATCHES = 16  # a single one would stay in the cache
MOST_BYTES = 256 * 1024**2  # of all batches; two are made in any case

Algorithm = QLearning | OnPolicy


def example_batches(algorithm: Algorithm, spec: EnvSpec, *, seed: int) -> list[AnyBatch]:
    """Return several batches, to be learnt from in turn."""
    rng = np.random.default_rng(seed)
    batches = [example_batch(algorithm, spec, rng)]
    num_bytes = sum(tensor.nbytes for tensor in batch_tensors(batches[0]).values())
    count = min(MOST_BATCHES, max(2, MOST_BYTES // num_bytes))
    return batches + [example_batch(algorithm, spec, rng) for _ in range(count - 1)]


def example_batch(algorithm: Algorithm, spec: EnvSpec, rng: np.random.Generator) -> AnyBatch:
    """Return a batch as a training hands it to the learner."""
    rows = algorithm.batch_size
    if isinstance(algorithm, OnPolicy):
        return RolloutBatch(
            obs=example_frames(spec, rows, spec.stack, rng),
            action=torch.from_numpy(rng.integers(spec.num_actions, size=rows)),
            log_probability=torch.full((rows,), -float(np.log(spec.num_actions))),
            advantage=_tensor(rng.standard_normal(rows)),
            target=_tensor(rng.standard_normal(rows)),
        )
    sequence, n_steps = algorithm.core.sequence(), algorithm.returns.n
    if sequence is None:
        frames = example_frames(spec, rows, spec.stack + n_steps, rng)
        return Batch(frames=frames, offset=torch.full((rows,), n_steps), **_transitions((rows,), spec, rng))
    rows, steps = rows // sequence.length_steps, sequence.burn_in_steps + sequence.length_steps
    frames = example_frames(spec, rows, spec.stack - 1 + steps + n_steps, rng)
    starts = torch.zeros(steps, rows, dtype=torch.bool)
    starts[0] = True
    offset = torch.full((steps, rows), n_steps)
    return SequenceBatch(frames=frames, starts=starts, offset=offset, **_transitions((steps, rows), spec, rng))


def example_frames(spec: EnvSpec, rows: int, count: int, rng: np.random.Generator) -> torch.Tensor:
    shape = (rows, count, *spec.frame_shape)
    if spec.frame_dtype == "uint8":
        return torch.from_numpy(rng.integers(256, size=shape, dtype=np.uint8))
    return _tensor(rng.standard_normal(shape))


def _transitions(shape: tuple[int, ...], spec: EnvSpec, rng: np.random.Generator) -> dict[str, torch.Tensor]:
    return {
        "action": torch.from_numpy(rng.integers(spec.num_actions, size=shape)),
        "reward": _tensor(rng.integers(-1, 2, size=shape)),
        "discount": torch.full(shape, GAMMA),
        "weight": torch.ones(shape),
    }


def _tensor(values: Array) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.float32))

"""The learner: an update is a weighted loss, an optimiser step, and a target sync when due."""

import copy
import math
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
import torch

from redline.algorithms.captured_update import CapturedUpdate
from redline.algorithms.family import Algorithm, batch_tensors
from redline.algorithms.optimizers import counts_on_device
from redline.errors import UserError
from redline.losses import weighted_mean
from redline.types import AnyBatch, EnvSpec, Precision

DIAGNOSIS_PERIOD = 257  # updates: rare enough to cost nothing; prime, to meet every batch of a rollout's epochs
MOST_DIAGNOSES = 64  # kept between two readings

Tensors = Mapping[str, torch.Tensor]


class NonFiniteError(Exception):
    """The loss or the weights are no longer finite: going on would only hide it."""


class Learner:
    """Online network, target network if there is one, and optimiser on one device."""

    def __init__(
        self,
        algorithm: Algorithm,
        spec: EnvSpec,
        *,
        seed: int,
        device: torch.device,
        precision: Precision = "float32",
        captures: bool = False,
    ) -> None:
        """Build the networks; with `captures` a GPU repeats its updates from a CUDA graph, of batches of one shape."""
        self.algorithm = algorithm
        self.device = device
        self.updates = 0
        self._stack = spec.stack
        self.online = algorithm.build_network(spec, torch.Generator().manual_seed(seed)).to(device)
        self.online.precision = precision  # the target network's too, which is a copy
        has_target = algorithm.target_sync_updates is not None
        self.target = copy.deepcopy(self.online).requires_grad_(False) if has_target else self.online
        how = {"capturable": True} if captures else {}  # not every optimiser knows of it
        self.optimizer = algorithm.optimizer.build(self.online.parameters(), **how)
        self._captured = CapturedUpdate(lambda batch: self._step(batch, steps=0), device) if captures else None
        self._loss_sum = torch.zeros((), device=device)
        self._losses_summed = 0
        self._diagnoses: deque[dict[str, torch.Tensor]] = deque(maxlen=MOST_DIAGNOSES)

    def precompute_targets(self, batches: Sequence[AnyBatch]) -> list[torch.Tensor | None]:
        """Return the target network's predictions for each batch of the next updates; None: computed at update time.

        Batches beyond the next target sync get None, because the sync changes the target network.
        """
        if self._captured is not None:
            return [None] * len(batches)
        sync = self.algorithm.target_sync_updates
        known = batches if sync is None else batches[: sync - self.updates % sync]
        precomputed = self.algorithm.precompute_targets(known, stack=self._stack, target=self.target)
        return [*precomputed, *[None] * (len(batches) - len(known))]

    def update(
        self, batch: AnyBatch, *, steps: int, rng: np.random.Generator, precomputed: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Learn from one batch on the learner's device, after `steps` steps; return a priority per row drawn.

        Noisy networks draw their noise from `rng`; `precomputed` is what `precompute_targets` gave.
        """
        if self.online.is_noisy:
            self.online.resample(rng)
            if self.target is not self.online:
                self.target.resample(rng)
        set_lr(self.optimizer, self.algorithm.optimizer.lr_at(steps))
        if self._captured is None or self._is_diagnosed:
            priorities = self._step(batch, steps=steps, precomputed=precomputed)
        else:
            priorities = self._captured(batch)
        self.updates += 1
        sync = self.algorithm.target_sync_updates
        if sync is not None and self.updates % sync == 0:
            self.target.load_state_dict(self.online.state_dict())
        self._losses_summed += 1
        return priorities

    @property
    def _is_diagnosed(self) -> bool:
        return self.updates % DIAGNOSIS_PERIOD == 0

    def _step(self, batch: AnyBatch, *, steps: int, precomputed: torch.Tensor | None = None) -> torch.Tensor:
        """Take one step of the optimiser, with nothing that the CPU must know; return a priority per row drawn."""
        losses, weights, priorities = self.algorithm.losses(
            batch, stack=self._stack, online=self.online, target=self.target, precomputed=precomputed, steps=steps
        )
        loss = weighted_mean(losses, weights)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        norm: torch.Tensor | None = None
        if (max_norm := self.algorithm.optimizer.max_norm()) is not None:
            norm = torch.nn.utils.clip_grad_norm_(self.online.parameters(), max_norm)
        if self._is_diagnosed:
            self._diagnoses.append(self._diagnose(batch, priorities, norm))
        self.optimizer.step()
        self._loss_sum += loss.detach()
        return priorities

    def _diagnose(
        self, batch: AnyBatch, priorities: torch.Tensor, norm: torch.Tensor | None
    ) -> dict[str, torch.Tensor]:
        """Return diagnostics of learning, after the gradient is computed and before the optimiser's step."""
        with torch.no_grad():
            found = self.algorithm.diagnose(batch, stack=self._stack, online=self.online, priorities=priorities)
            if norm is None:
                gradients = [value.grad for value in self.online.parameters() if value.grad is not None]
                norm = torch.nn.utils.get_total_norm(gradients)
        return {**found, "gradient_norm": norm}

    def take_diagnosis(self) -> dict[str, float]:
        """Return the mean of each diagnostic since the last call; this waits for the device."""
        found = list(self._diagnoses)
        self._diagnoses.clear()
        names = dict.fromkeys(name for one in found for name in one)
        means = {name: float(torch.stack([one[name] for one in found if name in one]).mean()) for name in names}
        return {name: mean for name, mean in means.items() if math.isfinite(mean)}

    def take_mean_loss(self) -> float | None:
        """Return the mean loss since the last call, None if there was no update; this waits for the device."""
        if not self._losses_summed:
            return None
        mean = self._loss_sum.item() / self._losses_summed
        self._loss_sum.zero_()
        self._losses_summed = 0
        return mean

    def non_finite_weights(self) -> list[str]:
        """Name the parameters that hold NaN or infinity; this waits for the device."""
        return [name for name, value in self.online.state_dict().items() if not value.isfinite().all()]

    def state(self) -> dict[str, dict[str, torch.Tensor]]:
        """Return the state for a checkpoint, by file; tensors on the host, contiguous."""
        optimizer = {
            f"{name}.{key}": value
            for name, parameter in self.online.named_parameters()
            for key, value in self.optimizer.state[parameter].items()
        }
        parts = {"weights": self.online.state_dict(), "optimizer": optimizer}
        if self.target is not self.online:
            parts["target"] = self.target.state_dict()
        return {part: {key: _host(value) for key, value in tensors.items()} for part, tensors in parts.items()}

    def load_state(self, state: Mapping[str, Tensors], *, updates: int) -> None:
        """Continue from what `state()` returned, after `updates` updates."""
        self.online.take_weights(state["weights"])
        if self.target is not self.online:
            self.target.take_weights(state["target"])
        for name, parameter in self.online.named_parameters():
            prefix = f"{name}."
            saved = {k.removeprefix(prefix): v for k, v in state["optimizer"].items() if k.startswith(prefix)}
            made = self.optimizer.state[parameter]  # not empty for optimisers that do not begin at 0
            is_sound = all(value.shape in ((), parameter.shape) and value.isfinite().all() for value in saved.values())
            if not is_sound or (made and made.keys() != saved.keys()) or bool(saved) != bool(made or updates):
                raise UserError(
                    f"the optimiser's saved state of {name} is not what this version of Redline keeps: "
                    "use an older checkpoint, or train anew"
                )
            self.optimizer.state[parameter] = {
                # a moment keeps its parameter's strides: another layout would change the order of summation
                key: torch.empty_like(parameter).copy_(value) if value.shape == parameter.shape else value.clone()
                for key, value in saved.items()
            }
            if "step" in saved and counts_on_device(self.optimizer):  # else every update would wait to read it
                self.optimizer.state[parameter]["step"] = saved["step"].to(self.device)
        self.updates = updates


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate; where it is a tensor, in its place, because a CUDA graph reads it there."""
    group = optimizer.param_groups[0]
    if isinstance(group["lr"], torch.Tensor):
        group["lr"].fill_(lr)
    else:
        group["lr"] = lr


@contextmanager
def compute_threads(count: int) -> Iterator[None]:
    """Let PyTorch compute with `count` threads for a while."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def describe_batch(batch: AnyBatch) -> str:
    """Return the range of each tensor of a batch in one line, for the report of a non-finite loss."""
    filled = {name: value for name, value in batch_tensors(batch).items() if value.numel()}
    return ", ".join(f"{name} {value.min():.4g} … {value.max():.4g}" for name, value in filled.items())


def _host(value: torch.Tensor) -> torch.Tensor:
    return value.detach().to("cpu", copy=True).contiguous()

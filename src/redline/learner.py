"""The learner: one update = loss × weights, optimiser step, and a target sync when due."""

import copy
from collections.abc import Mapping

import torch

from redline.algorithms.q_learning import QLearning, td_losses
from redline.losses import weighted_mean
from redline.networks import build_value_network
from redline.types import Batch, EnvSpec

Tensors = Mapping[str, torch.Tensor]


class NonFiniteError(Exception):
    """The loss or the weights are no longer numbers: going on would only hide it."""


class Learner:
    """Online network, target network and optimiser on one device."""

    def __init__(self, algorithm: QLearning, spec: EnvSpec, *, seed: int, device: torch.device) -> None:
        self.algorithm = algorithm
        self.device = device
        self.updates = 0
        self._stack = spec.stack
        self.online = build_value_network(
            algorithm.network,
            spec,
            outputs=algorithm.predict.num_outputs(),
            generator=torch.Generator().manual_seed(seed),
        ).to(device)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.optimizer = algorithm.optimizer.build(self.online.parameters())
        self._loss_sum = torch.zeros((), device=device)
        self._losses_summed = 0

    def update(self, batch: Batch) -> torch.Tensor:
        """Learn from one batch on the learner's device; return the rows' new priorities [B]."""
        losses, priorities = td_losses(self.algorithm, batch, stack=self._stack, online=self.online, target=self.target)
        loss = weighted_mean(losses, batch.weight)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        self.updates += 1
        if self.updates % self.algorithm.target_sync_updates == 0:
            self.target.load_state_dict(self.online.state_dict())
        self._loss_sum += loss.detach()
        self._losses_summed += 1
        return priorities

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
        """Return what a checkpoint keeps, by file; tensors on the host, contiguous."""
        optimizer = {
            f"{name}.{key}": value
            for name, parameter in self.online.named_parameters()
            for key, value in self.optimizer.state[parameter].items()
        }
        parts = {"weights": self.online.state_dict(), "target": self.target.state_dict(), "optimizer": optimizer}
        return {part: {key: _host(value) for key, value in tensors.items()} for part, tensors in parts.items()}

    def load_state(self, state: Mapping[str, Tensors], *, updates: int) -> None:
        """Go on from what `state()` gave, after `updates` updates."""
        self.online.load_state_dict(state["weights"])
        self.target.load_state_dict(state["target"])
        for name, parameter in self.online.named_parameters():
            prefix = f"{name}."
            saved = {k.removeprefix(prefix): v for k, v in state["optimizer"].items() if k.startswith(prefix)}
            self.optimizer.state[parameter] = {
                # a moment keeps its parameter's strides: another layout would sum in another order
                key: torch.empty_like(parameter).copy_(value) if value.shape == parameter.shape else value.clone()
                for key, value in saved.items()
            }
            if self.device.type != "cpu" and "step" in saved:  # fused Adam keeps its step count on the device
                self.optimizer.state[parameter]["step"] = saved["step"].to(self.device)
        self.updates = updates


def describe_batch(batch: Batch) -> str:
    """Say in one line what a batch held, for the report of a loss that is no number."""
    reward, discount = batch.reward.float(), batch.discount
    return (
        f"reward {reward.min():.3g} … {reward.max():.3g}, discount {discount.min():.3g} … {discount.max():.3g}, "
        f"weight {batch.weight.min():.3g} … {batch.weight.max():.3g}, "
        f"frames {batch.frames.min()} … {batch.frames.max()}, actions {batch.action.min()} … {batch.action.max()}"
    )


def _host(value: torch.Tensor) -> torch.Tensor:
    return value.detach().to("cpu", copy=True).contiguous()

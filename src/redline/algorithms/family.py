"""What the runtime asks of an algorithm, whatever its family; and acting, which is the same for all."""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import torch

from redline.algorithms.optimizers import Optimizer
from redline.exploration import Exploration
from redline.networks import Network
from redline.types import AnyBatch, Array, EnvSpec, FloatArray, IntArray


class Algorithm(Protocol):
    """A value: parts, and what is computed with them."""

    @property
    def explore(self) -> Exploration:
        """How the actor explores."""
        ...

    @property
    def optimizer(self) -> Optimizer:
        """What moves the weights."""
        ...

    @property
    def warmup_steps(self) -> int:
        """Steps played at random before the first update."""
        ...

    @property
    def target_sync_updates(self) -> int | None:
        """Updates between two copies into the target network; None if there is none."""
        ...

    def build_network(self, spec: EnvSpec, generator: torch.Generator) -> Network:
        """Return the network with its first weights."""
        ...

    def preferences(self, out: torch.Tensor) -> torch.Tensor:
        """Turn what the network gives into preferences [N, A], from which `explore` chooses."""
        ...

    def losses(
        self, batch: AnyBatch, *, stack: int, online: Network, target: Network
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return losses and their weights, each of the same shape, and a new priority for each row drawn."""
        ...


class ActorParams(NamedTuple):
    """What acting depends on: an algorithm, a network's weights, and how random it is at this step."""

    algorithm: Algorithm
    network: Network
    epsilon: float
    device: torch.device
    is_warmup: bool = False  # nothing that the network says would be used
    explore: Exploration | None = None  # in place of the algorithm's own
    is_silent: bool = False  # the network's noise is off


@dataclass(frozen=True)
class ActorExtras:
    """What acting computed besides the action; None where no network was asked."""

    out: FloatArray | None  # [N, …] what the network gave
    preferences: FloatArray | None  # [N, A]


def act(
    params: ActorParams, obs: Array, state: torch.Tensor, rng: np.random.Generator
) -> tuple[IntArray, torch.Tensor, ActorExtras]:
    """Choose an action for each observation [N, K, *frame]; `state` [N, S] is what the network remembers."""
    network = params.network
    if params.is_warmup:
        return rng.integers(network.num_actions, size=len(obs)), state, ActorExtras(None, None)
    if params.is_silent:
        network.silence()
    elif network.is_noisy:
        network.resample(rng)
    with torch.no_grad():
        out, state = network.step(torch.from_numpy(obs).to(params.device), state)
        preferences = params.algorithm.preferences(out).cpu().numpy()  # [N, A]
    explore = params.explore or params.algorithm.explore
    action = explore.choose(preferences, epsilon=params.epsilon, rng=rng)
    return action, state, ActorExtras(out.cpu().numpy(), preferences)

"""What the runtime asks of an algorithm, whatever its family; and acting, which is the same for all."""

from collections.abc import Sequence
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

    def annealed_from(self) -> int:
        """Return the steps after which everything that falls while training has begun to fall."""
        ...

    def build_network(self, spec: EnvSpec, generator: torch.Generator) -> Network:
        """Return the network with its first weights."""
        ...

    def preferences(self, out: torch.Tensor) -> torch.Tensor:
        """Turn what the network gives into preferences [N, A], from which `explore` chooses."""
        ...

    def foresee(self, batches: Sequence[AnyBatch], *, stack: int, target: Network) -> Sequence[torch.Tensor | None]:
        """Return for each batch what the target network says of what follows, None where `losses` is to ask it.

        One pass over several batches is cheaper than one over each, and the same as long as the target is.
        """
        ...

    def losses(
        self,
        batch: AnyBatch,
        *,
        stack: int,
        online: Network,
        target: Network,
        foreseen: torch.Tensor | None = None,
        steps: int = 0,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return losses and their weights after `steps` steps, of one shape, and a new priority for each row drawn."""
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
    keeps_features: bool = False  # what the torso gives will be learnt from, before its weights change


@dataclass(frozen=True)
class ActorExtras:
    """What acting computed besides the action; None where no network was asked."""

    out: FloatArray | None  # [N, …] what the network gave
    preferences: FloatArray | None  # [N, A]
    features: torch.Tensor | None = None  # [N, F] what the torso gave, ready for a backward pass


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
    pixels = torch.from_numpy(obs).to(params.device)
    features = network.torso(pixels) if params.keeps_features else None
    with torch.no_grad():
        out, state = (network.head(features), state) if features is not None else network.step(pixels, state)
        preferences = params.algorithm.preferences(out).cpu().numpy()  # [N, A]
    explore = params.explore or params.algorithm.explore
    action = explore.choose(preferences, epsilon=params.epsilon, rng=rng)
    return action, state, ActorExtras(out.cpu().numpy(), preferences, features)

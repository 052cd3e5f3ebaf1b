"""What the runtime asks of an algorithm, whatever its family; and acting, which is the same for all."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

import numpy as np
import torch

from redline.algorithms.optimizers import Optimizer
from redline.experience import ReplayConfig
from redline.exploration import Exploration
from redline.networks import Layers, Network, Torso
from redline.types import Adjustment, AnyBatch, Array, EnvSpec, FloatArray, IntArray


class Algorithm(Protocol):
    """A value: parts, and what is computed with them."""

    @property
    def network(self) -> Torso:
        """The part of the network that sees the observation."""

    @property
    def layers(self) -> Layers:
        """How the network's layers are made."""

    @property
    def explore(self) -> Exploration:
        """How the actor explores."""

    @property
    def optimizer(self) -> Optimizer:
        """What moves the weights."""

    @property
    def warmup_steps(self) -> int:
        """Steps played at random before the first update."""

    @property
    def target_sync_updates(self) -> int | None:
        """Updates between two copies into the target network; None if there is none."""

    @property
    def batch_size(self) -> int:
        """Transitions in one update."""

    @property
    def replay(self) -> ReplayConfig | None:
        """The replay memory; None where rollouts are learnt from."""

    def whole_batches(self, num_envs: int) -> tuple[Self, list[Adjustment]]:
        """Return the algorithm with a batch size that what it learns from can be cut into, and what that changes."""

    def updates_per_vector_step(self, num_envs: int) -> float:
        """Return how many updates a vector step brings once the warm-up is over."""

    def search_space(self) -> str:
        """Return the name of the search space that `redline tune` has for it."""

    def paces(self) -> Mapping[str, float]:
        """Return the numbers that pace learning, by name."""

    def annealed_from(self) -> int:
        """Return the steps after which everything that falls while training has begun to fall."""

    def build_network(self, spec: EnvSpec, generator: torch.Generator) -> Network:
        """Return the network with its first weights."""

    def preferences(self, out: torch.Tensor) -> torch.Tensor:
        """Turn what the network gives into preferences [N, A], from which `explore` chooses."""

    def foresee(self, batches: Sequence[AnyBatch], *, stack: int, target: Network) -> Sequence[torch.Tensor | None]:
        """Return for each batch what the target network says of what follows, None where `losses` is to ask it.

        One pass over several batches is cheaper than one over each, and the same as long as the target is.
        """

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

    def diagnose(
        self, batch: AnyBatch, *, stack: int, online: Network, priorities: torch.Tensor
    ) -> Mapping[str, torch.Tensor]:
        """Return numbers that tell how learning goes, by the names that they have in metrics.jsonl."""


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

"""The interface of an algorithm of any family, and acting, which is the same for all."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple, Protocol, Self

import numpy as np
import torch

from redline.algorithms.optimizers import Optimizer
from redline.exploration import Exploration
from redline.networks import Layers, Network, Torso
from redline.replay import ReplayConfig
from redline.types import Adjustment, AnyBatch, Array, EnvSpec, FloatArray, IntArray


class Algorithm(Protocol):
    """An algorithm as a value: its parts, and what is computed with them."""

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
        """The optimiser."""

    @property
    def warmup_steps(self) -> int:
        """Steps with random actions before the first update."""

    @property
    def target_sync_updates(self) -> int | None:
        """Updates between two copies into the target network; None if there is none."""

    @property
    def batch_size(self) -> int:
        """Transitions in one update."""

    @property
    def replay(self) -> ReplayConfig | None:
        """The replay memory; None for learners from rollouts."""

    def whole_batches(self, num_envs: int) -> tuple[Self, list[Adjustment]]:
        """Return the algorithm with a batch size that divides its data evenly, and what that changes."""

    def updates_per_vector_step(self, num_envs: int) -> float:
        """Return the updates per vector step after the warm-up."""

    def search_space(self) -> str:
        """Return the name of its search space in `redline tune`."""

    def paces(self) -> Mapping[str, float]:
        """Return the settings that pace learning, by name."""

    def annealed_from(self) -> int:
        """Return the step at which the last of the falling settings begins to fall."""

    def build_network(self, spec: EnvSpec, generator: torch.Generator) -> Network:
        """Return the network with its initial weights."""

    def preferences(self, out: torch.Tensor) -> torch.Tensor:
        """Turn the network's outputs into preferences [N, A], from which `explore` chooses."""

    def precompute_targets(
        self, batches: Sequence[AnyBatch], *, stack: int, target: Network
    ) -> Sequence[torch.Tensor | None]:
        """Return the target network's predictions of the next states for each batch; None where `losses` computes them.

        One pass over several batches is cheaper than one over each, and the same as long as the target is.
        """

    def losses(
        self,
        batch: AnyBatch,
        *,
        stack: int,
        online: Network,
        target: Network,
        precomputed: torch.Tensor | None = None,
        steps: int = 0,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return losses and their weights after `steps` steps, of one shape, and a new priority for each row drawn."""

    def diagnose(
        self, batch: AnyBatch, *, stack: int, online: Network, priorities: torch.Tensor
    ) -> Mapping[str, torch.Tensor]:
        """Return diagnostics of learning, by their names in metrics.jsonl."""


class ActorParams(NamedTuple):
    """The inputs of acting: an algorithm, a network, and how much it explores at this step."""

    algorithm: Algorithm
    network: Network
    epsilon: float
    device: torch.device
    is_warmup: bool = False  # actions are random: the network is not used
    explore: Exploration | None = None  # instead of the algorithm's own
    is_silent: bool = False  # the network's noise is off
    keeps_features: bool = False  # the torso's features will be learnt from before its weights change
    upload: Callable[[Array], torch.Tensor] | None = None  # a faster way to bring observations to the device


@dataclass(frozen=True)
class ActorExtras:
    """The results of acting besides the action; None where no network was used."""

    out: FloatArray | None  # [N, …] outputs of the network
    preferences: FloatArray | None  # [N, A]
    features: torch.Tensor | None = None  # [N, F] of the torso, ready for a backward pass


def act(
    params: ActorParams, obs: Array, state: torch.Tensor, rng: np.random.Generator
) -> tuple[IntArray, torch.Tensor, ActorExtras]:
    """Choose an action for each observation [N, K, *frame]; `state` [N, S] is the network's recurrent state."""
    network = params.network
    if params.is_warmup:
        return rng.integers(network.num_actions, size=len(obs)), state, ActorExtras(None, None)
    if params.is_silent:
        network.silence()
    elif network.is_noisy:
        network.resample(rng)
    pixels = torch.from_numpy(obs).to(params.device) if params.upload is None else params.upload(obs)
    features = network.features(pixels) if params.keeps_features else None
    with torch.no_grad():
        out, state = (network.predict(features), state) if features is not None else network.step(pixels, state)
        out = out.cpu()  # the only wait for the device
        preferences = params.algorithm.preferences(out).numpy()  # [N, A]
    explore = params.explore or params.algorithm.explore
    action = explore.choose(preferences, epsilon=params.epsilon, rng=rng)
    return action, state, ActorExtras(out.numpy(), preferences, features)


def batch_tensors(batch: AnyBatch) -> dict[str, torch.Tensor]:
    """Return the tensors of a batch by name; not lists that only exist where they were computed."""
    values = {field.name: getattr(batch, field.name) for field in fields(batch)}
    return {name: value for name, value in values.items() if isinstance(value, torch.Tensor)}

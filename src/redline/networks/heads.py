"""Heads turn features into what an algorithm predicts; a value network is a torso with a head."""

import torch
from torch import nn

from redline.networks.layers import initialise
from redline.networks.torsos import Torso
from redline.types import EnvSpec


class ValueNetwork(nn.Module):
    """Observation → `outputs` numbers for each action: one for an expected value, more for a distribution."""

    def __init__(self, torso: nn.Module, *, features: int, num_actions: int, outputs: int) -> None:
        super().__init__()
        self.torso = torso
        self.head = nn.Linear(features, num_actions * outputs)
        self.shape = (num_actions, outputs)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.torso(obs))
        return out.view(-1, *self.shape)  # [B, A, outputs]


def build_value_network(torso: Torso, spec: EnvSpec, *, outputs: int, generator: torch.Generator) -> ValueNetwork:
    """Build and initialise a value network on the CPU, in the memory format that its torso likes."""
    with torch.random.fork_rng(devices=[]):  # torch's layers draw from the global generator when they are made
        module, features = torso.build(spec)
        network = ValueNetwork(module, features=features, num_actions=spec.num_actions, outputs=outputs)
    initialise(network, generator, keep_variance=spec.is_image)
    return network.to(memory_format=torch.channels_last) if spec.is_image else network  # type: ignore[call-overload]

"""From recipes to networks with weights: made on the CPU, in the memory format that suits their observations."""

import torch

from redline.errors import UserError
from redline.networks.cores import Core, Memoryless
from redline.networks.heads import Network, PolicyHead, Single, Streams
from redline.networks.layers import Layers, Plain, initialise, initialise_orthogonal
from redline.networks.torsos import Torso
from redline.types import EnvSpec


def build_value_network(
    torso: Torso,
    spec: EnvSpec,
    *,
    outputs: int,
    generator: torch.Generator,
    core: Core | None = None,
    streams: Streams | None = None,
    layers: Layers | None = None,
) -> Network:
    """Return a network that predicts `outputs` numbers for each action."""
    if torso.towers() != 1:
        raise UserError("network twin is for a policy and a value, but only values are learnt here: use --network mlp")
    core, streams, layers = core or Memoryless(), streams or Single(), layers or Plain()
    with torch.random.fork_rng(devices=[]):  # torch's layers draw from the global generator when they are made
        module, features = torso.build(spec, layers)
        cell = core.build(features)
        head = streams.build(
            features if cell is None else cell.hidden_size,
            hidden=torso.last_width() if cell is None else None,
            num_actions=spec.num_actions,
            outputs=outputs,
            layers=layers,
        )
        network = Network(module, cell, head, num_actions=spec.num_actions)
    initialise(network, generator, keep_variance=spec.is_image)
    return _in_its_format(network, spec)


def build_policy_network(torso: Torso, spec: EnvSpec, *, layers: Layers, generator: torch.Generator) -> Network:
    """Return a network that predicts a policy and a value, from shared features or from two towers."""
    with torch.random.fork_rng(devices=[]):
        module, features = torso.build(spec, layers)
        head = PolicyHead(
            features, torso.last_width(), towers=torso.towers(), num_actions=spec.num_actions, layers=layers
        )
        network = Network(module, None, head, num_actions=spec.num_actions)
    initialise_orthogonal(network, generator)
    return _in_its_format(network, spec)


def _in_its_format(network: Network, spec: EnvSpec) -> Network:
    if not spec.is_image:
        return network
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]

"""Networks: torsos that read observations, cores that remember, heads that predict, and their layers."""

from redline.networks.layers import Layers, Noisy, Normed, Plain
from redline.networks.network import (
    Core,
    Dueling,
    Gru,
    Memoryless,
    Network,
    Sequence,
    Single,
    Streams,
    build_policy_network,
    build_value_network,
    mask_state,
)
from redline.networks.torsos import Mlp, Nature, Small, Strided, Torso, Twin

__all__ = [
    "Core",
    "Dueling",
    "Gru",
    "Layers",
    "Memoryless",
    "Mlp",
    "Nature",
    "Network",
    "Noisy",
    "Normed",
    "Plain",
    "Sequence",
    "Single",
    "Small",
    "Streams",
    "Strided",
    "Torso",
    "Twin",
    "build_policy_network",
    "build_value_network",
    "mask_state",
]

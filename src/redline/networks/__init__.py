"""Networks: torsos that read observations, cores that remember, heads that predict, and their layers."""

from redline.networks.cores import Core, Gru, Memoryless, Sequence
from redline.networks.heads import Dueling, Network, Single, Streams, build_policy_network, build_value_network
from redline.networks.layers import Layers, Noisy, Normed, Plain
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
]

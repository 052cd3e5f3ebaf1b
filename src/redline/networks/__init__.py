"""Networks: torsos that see, heads that predict, and the names that a user can type."""

from redline.networks.heads import ValueNetwork, build_value_network
from redline.networks.torsos import Mlp, Nature, Small, Torso

NETWORKS: dict[str, Torso] = {"nature": Nature(), "small": Small(), "mlp": Mlp()}

__all__ = ["NETWORKS", "Mlp", "Nature", "Small", "Torso", "ValueNetwork", "build_value_network"]

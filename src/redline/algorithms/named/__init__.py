"""One file per algorithm (docs/adding-an-algorithm.md): an `Entry` with its paper and its defaults on each domain."""

from dataclasses import dataclass

from redline.algorithms.on_policy import OnPolicy
from redline.algorithms.q_learning import QLearning

CLASSIC_SOURCE = (
    "chosen on CartPole and Acrobot, of dqn, ppo and a2c on LunarLander too; "
    "records algorithms-cartpole-v1, -acrobot-v1 and -lunarlander-v3"
)


@dataclass(frozen=True)
class Preset:
    """An algorithm with its default settings on a domain."""

    algorithm: QLearning | OnPolicy
    source: str  # of the settings: a paper, or a record of ours
    num_envs: int = 8
    stack: int = 4  # frames per observation, where observations are pictures


@dataclass(frozen=True)
class Entry:
    """An algorithm with its presets on each domain."""

    changes: str  # against its parent, in a few words
    paper: str
    atari: Preset
    classic: Preset  # vectors: CartPole and its like

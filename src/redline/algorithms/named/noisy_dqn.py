"""NoisyNet-DQN: dense layers with factorised noise explore instead of ε (Fortunato et al. 2018).

arXiv:1706.10295. One draw of noise per act over all envs, a new one per update, the target network's its own; none in
evaluation. Departures: weights start as He et al. propose; σ₀ is the paper's 0.5 on pictures, 0.1 on vectors.
"""

from dataclasses import replace

from redline.algorithms.named import CLASSIC_SOURCE, Entry, Preset
from redline.algorithms.named.dqn import DQN, DQN_CLASSIC
from redline.exploration import Greedy
from redline.networks import Noisy

NOISY_DQN = replace(DQN, layers=Noisy(), explore=Greedy())
# with returns of a hundred the paper's σ₀ drowns the difference between two actions
NOISY_DQN_CLASSIC = replace(DQN_CLASSIC, layers=Noisy(sigma=0.1), explore=Greedy())

ENTRY = Entry(
    changes="dqn with noisy layers, no ε",
    paper="arXiv:1706.10295",
    atari=Preset(NOISY_DQN, source="1706.10295 (σ₀), the rest as dqn"),
    classic=Preset(NOISY_DQN_CLASSIC, source=f"as dqn; {CLASSIC_SOURCE}"),
)

"""Prioritised DQN: transitions are drawn in proportion to |δ|^0.6 (Schaul et al. 2016, the proportional variant).

arXiv:1511.05952. β goes from 0.4 to 1 over 12.5 M steps (50 M frames). Departures: on top of DQN, not double DQN; the
learning rate is Rainbow's 6.25e-5, lower than DQN's as in the paper (there a quarter).
"""

from dataclasses import replace

from redline.algorithms.named import CLASSIC_SOURCE, Entry, Preset
from redline.algorithms.named.dqn import DQN, DQN_CLASSIC
from redline.algorithms.optimizers import Adam
from redline.replay.sampler import Prioritized
from redline.schedules import Linear

PRIORITIZED_DQN = replace(DQN, sample=Prioritized(), optimizer=Adam(lr=6.25e-5))
PRIORITIZED_DQN_CLASSIC = replace(DQN_CLASSIC, sample=Prioritized(beta=Linear(0.4, 1.0, over_steps=100_000)))

ENTRY = Entry(
    changes="dqn; drawn by priority",
    paper="arXiv:1511.05952",
    atari=Preset(PRIORITIZED_DQN, source="1511.05952 (α, β), 1710.02298 (lr), the rest as dqn"),
    classic=Preset(PRIORITIZED_DQN_CLASSIC, source=f"as dqn; {CLASSIC_SOURCE}"),
)

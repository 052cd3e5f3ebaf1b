"""QR-DQN: returns at 200 quantiles, learnt with the quantile Huber loss, κ = 1 (Dabney et al. 2018).

arXiv:1710.10044. Departures: DQN's schedule of ε, memory and target network as in dqn.py; 21 quantiles on vectors.
"""

from dataclasses import replace

from redline.algorithms.named import CLASSIC_SOURCE, Entry, Preset
from redline.algorithms.named.dqn import DQN, DQN_CLASSIC
from redline.algorithms.optimizers import Adam
from redline.algorithms.predictions import Quantiles
from redline.exploration import EpsilonGreedy

QR_DQN = replace(
    DQN,
    predict=Quantiles(),
    optimizer=Adam(lr=5e-5, eps=0.01 / 32),
    explore=EpsilonGreedy(evaluation=0.001),
)
QR_DQN_CLASSIC = replace(DQN_CLASSIC, predict=Quantiles(quantiles=21))

ENTRY = Entry(
    changes="dqn that predicts 200 quantiles",
    paper="arXiv:1710.10044",
    atari=Preset(QR_DQN, source="1710.10044 (quantiles, Adam), the rest as dqn"),
    classic=Preset(QR_DQN_CLASSIC, source=f"as dqn; {CLASSIC_SOURCE}"),
)

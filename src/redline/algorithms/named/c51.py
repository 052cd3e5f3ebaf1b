"""C51: the distribution of returns on 51 fixed atoms, learnt by cross-entropy (Bellemare et al. 2017).

arXiv:1707.06887. The support must hold the returns of the domain: ±10 for clipped Atari rewards. On vectors it is ±200,
with 101 atoms: CartPole's returns approach 1 / (1 − γ) = 100, and a lander's crash costs more. Departures: DQN's
schedule of ε, memory and target network as in dqn.py.
"""

from dataclasses import replace

from redline.algorithms.named import CLASSIC_SOURCE, Entry, Preset
from redline.algorithms.named.dqn import DQN, DQN_CLASSIC
from redline.algorithms.optimizers import Adam
from redline.algorithms.predictions import Categorical
from redline.exploration import EpsilonGreedy

C51 = replace(
    DQN,
    predict=Categorical(low=-10.0, high=10.0),
    optimizer=Adam(lr=2.5e-4, eps=0.01 / 32),
    explore=EpsilonGreedy(evaluation=0.001),
)
C51_CLASSIC = replace(DQN_CLASSIC, predict=Categorical(atoms=101, low=-200.0, high=200.0))

ENTRY = Entry(
    changes="dqn that predicts probabilities on 51 atoms",
    paper="arXiv:1707.06887",
    atari=Preset(C51, source="1707.06887 (atoms, Adam), the rest as dqn"),
    classic=Preset(C51_CLASSIC, source=f"as dqn; {CLASSIC_SOURCE}"),
)

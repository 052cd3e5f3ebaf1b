"""Dueling DQN: a stream for the state's value and one for the actions' advantages (Wang et al. 2016).

arXiv:1511.06581. The mean advantage is taken over the actions of each row. As in the paper, gradients are clipped to
norm 10. Departures: single DQN's target instead of double's; gradients into the shared layers are not scaled by 1/√2.
"""

from dataclasses import replace

from redline.algorithms.named import CLASSIC_SOURCE, Entry, Preset
from redline.algorithms.named.dqn import DQN, DQN_CLASSIC
from redline.algorithms.optimizers import Adam
from redline.exploration import EpsilonGreedy
from redline.networks import Dueling

DUELING_DQN = replace(DQN, streams=Dueling(), optimizer=Adam(clip_norm=10.0), explore=EpsilonGreedy(evaluation=0.001))
DUELING_DQN_CLASSIC = replace(DQN_CLASSIC, streams=Dueling())

ENTRY = Entry(
    changes="dqn with value and advantage streams",
    paper="arXiv:1511.06581",
    atari=Preset(DUELING_DQN, source="1511.06581 (clipping), the rest as dqn"),
    classic=Preset(DUELING_DQN_CLASSIC, source=f"as dqn; {CLASSIC_SOURCE}"),
)

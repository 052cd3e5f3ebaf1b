"""Double DQN: the online network chooses the next action, the target network values it (van Hasselt et al. 2016).

arXiv:1509.06461. Departures: DQN's own settings here, not the paper's tuned ones (target copied every 30k steps).
"""

from dataclasses import replace

from redline.algorithms.named import CLASSIC_SOURCE, Entry, Preset
from redline.algorithms.named.dqn import DQN, DQN_CLASSIC
from redline.algorithms.predictions import OnlineChooses

DOUBLE_DQN = replace(DQN, bootstrap=OnlineChooses())
DOUBLE_DQN_CLASSIC = replace(DQN_CLASSIC, bootstrap=OnlineChooses())

ENTRY = Entry(
    changes="dqn; online net chooses, target net values",
    paper="arXiv:1509.06461",
    atari=Preset(DOUBLE_DQN, source="1509.06461, where untuned: DQN's settings"),
    classic=Preset(DOUBLE_DQN_CLASSIC, source=f"as dqn; {CLASSIC_SOURCE}"),
)

"""n-step DQN: DQN whose returns span three steps before they bootstrap (Sutton & Barto, 2nd edition, chapter 7).

Departures: none in the returns; as usual with replay, nothing corrects for the actions of older policies.
"""

from dataclasses import replace

from redline.algorithms.named import CLASSIC_SOURCE, Entry, Preset
from redline.algorithms.named.dqn import DQN, DQN_CLASSIC

N_STEP_DQN = replace(DQN, returns=replace(DQN.returns, n=3))
N_STEP_DQN_CLASSIC = replace(DQN_CLASSIC, returns=replace(DQN_CLASSIC.returns, n=3))

ENTRY = Entry(
    changes="dqn with returns of three steps",
    paper="Sutton & Barto 2018, chapter 7",
    atari=Preset(N_STEP_DQN, source="n of Rainbow (1710.02298), the rest as dqn"),
    classic=Preset(N_STEP_DQN_CLASSIC, source=f"as dqn; {CLASSIC_SOURCE}"),
)

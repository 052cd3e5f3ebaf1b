"""DRQN: a recurrent core in place of the last hidden layer, one frame per observation (Hausknecht & Stone 2015).

arXiv:1507.06527. Sequences are drawn at random; a zero state is followed by up to 4 steps of burn-in, as in R2D2.
Departures: a GRU instead of an LSTM; Adam instead of Adadelta; 8 steps are learnt from instead of 10; gradients are not
clipped. A sequence begins within its episode, so the first 7 steps of an episode are learnt from less often than the
others. During the warm-up nothing is remembered: episodes under way at its end go on from a zero state.
"""

from dataclasses import replace

from redline.algorithms.named import CLASSIC_SOURCE, Entry, Preset
from redline.algorithms.named.dqn import DQN, DQN_CLASSIC
from redline.networks import Gru

DRQN = replace(DQN, core=Gru(), batch_size=64)
DRQN_CLASSIC = replace(DQN_CLASSIC, core=Gru(width=128))

ENTRY = Entry(
    changes="dqn with a recurrent core, learnt from sequences",
    paper="arXiv:1507.06527",
    atari=Preset(DRQN, source="1507.06527, with the departures in its file", stack=1),
    classic=Preset(DRQN_CLASSIC, source=f"as dqn; {CLASSIC_SOURCE}", stack=1),
)

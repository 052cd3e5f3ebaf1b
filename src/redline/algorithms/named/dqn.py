"""DQN: Q-learning with a replay memory and a target network (Mnih et al. 2015, Nature 518).

Departures from the paper: Adam instead of RMSProp; ε falls to 0.01 instead of 0.1, over the same 250k steps; the
replay memory holds 100k transitions instead of a million, which fits a 4 GB machine; learning starts after 10k steps
instead of 12.5k; the target network is copied every 1,000 updates (4k steps) instead of every 10k; weights start as He
et al. propose (see docs/decisions/0008).
"""

from dataclasses import replace

from redline.algorithms.named import CLASSIC_SOURCE, Entry, Preset
from redline.algorithms.optimizers import Adam
from redline.algorithms.predictions import Expected
from redline.algorithms.q_learning import QLearning
from redline.exploration import EpsilonGreedy
from redline.networks import Mlp
from redline.returns import NStep
from redline.schedules import Linear

DQN = QLearning()

DQN_CLASSIC = replace(
    DQN,
    network=Mlp(widths=(128, 128)),
    # where values reach a hundred, a fall is an error of a hundred: counted as 1, it would hardly be learnt
    predict=Expected(huber_delta=10.0),
    returns=NStep(clip_rewards=False),
    explore=EpsilonGreedy(Linear(1.0, 0.02, over_steps=10_000), evaluation=0.0),
    optimizer=Adam(lr=5e-4, eps=1e-8),
    batch_size=64,
    samples_per_step=32.0,
    warmup_steps=1_000,
    target_sync_updates=100,
)

ENTRY = Entry(
    changes="Q-learning with replay and a target network",
    paper="Mnih et al. 2015, Nature 518",
    atari=Preset(DQN, source="Mnih et al. 2015, with the departures in its file"),
    classic=Preset(DQN_CLASSIC, source=CLASSIC_SOURCE),
)

"""Rainbow: double, dueling, noisy, prioritised, 3-step and distributional DQN in one (Hessel et al. 2018).

arXiv:1710.02298. Departures: a memory of 100k transitions instead of a million; the target network is copied every
2,000 updates (8k steps, the paper's 32k frames) and learning starts after 20k steps, as there; β reaches 1 after 12.5 M
steps; the online network chooses the next action with the same noise with which it predicts.
"""

from dataclasses import replace

from redline.algorithms.named import CLASSIC_SOURCE, Entry, Preset
from redline.algorithms.named.dqn import DQN, DQN_CLASSIC
from redline.algorithms.optimizers import Adam
from redline.algorithms.predictions import Categorical, OnlineChooses
from redline.exploration import Greedy
from redline.networks import Dueling, Noisy
from redline.replay.sampler import Prioritized
from redline.schedules import Linear

RAINBOW = replace(
    DQN,
    layers=Noisy(),
    streams=Dueling(),
    predict=Categorical(low=-10.0, high=10.0),
    bootstrap=OnlineChooses(),
    explore=Greedy(),
    optimizer=Adam(lr=6.25e-5),
    sample=Prioritized(alpha=0.5),
    returns=replace(DQN.returns, n=3),
    warmup_steps=20_000,
    target_sync_updates=2_000,
)
RAINBOW_CLASSIC = replace(
    DQN_CLASSIC,
    layers=Noisy(),
    streams=Dueling(),
    predict=Categorical(atoms=101, low=-200.0, high=200.0),
    bootstrap=OnlineChooses(),
    explore=Greedy(),
    sample=Prioritized(alpha=0.5, beta=Linear(0.4, 1.0, over_steps=100_000)),
    returns=replace(DQN_CLASSIC.returns, n=3),
)

ENTRY = Entry(
    changes="double + dueling + noisy + prioritized + 3 steps + c51",
    paper="arXiv:1710.02298",
    atari=Preset(RAINBOW, source="1710.02298, table 1"),
    classic=Preset(RAINBOW_CLASSIC, source=f"as dqn; {CLASSIC_SOURCE}"),
)

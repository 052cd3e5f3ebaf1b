"""PPO: several epochs over each rollout with a clipped objective (Schulman et al. 2017).

arXiv:1707.06347. Advantages are normalised over the rows of each update. Departures: 4 epochs instead of 3 and a value
weight of 0.5 instead of 1, gradients clipped to norm 0.5 and weights that start orthogonal, all as in OpenAI's
implementation; the clipping range does not fall with the learning rate; the value is not clipped.
"""

from dataclasses import replace

from redline.algorithms.named import CLASSIC_SOURCE, Entry, Preset
from redline.algorithms.named.a2c_gae import A2C_GAE, A2C_GAE_CLASSIC
from redline.algorithms.on_policy import Clipped
from redline.algorithms.optimizers import Adam

PPO = replace(
    A2C_GAE,
    objective=Clipped(),
    optimizer=Adam(lr=2.5e-4, eps=1e-5, clip_norm=0.5, anneal_steps=10_000_000),
    rollout_steps=128,
    epochs=4,
    batch_size=256,
)
PPO_CLASSIC = replace(
    A2C_GAE_CLASSIC,
    objective=Clipped(clip=0.2),
    optimizer=Adam(lr=1e-3, eps=1e-5, clip_norm=0.5),
    # a lander is paid when it stands, hundreds of steps after it began to fall
    returns=replace(A2C_GAE_CLASSIC.returns, gamma=0.995),
    rollout_steps=128,
    epochs=10,
    batch_size=64,
)

ENTRY = Entry(
    changes="a2c-gae with a clipped objective, 4 epochs × 4 batches",
    paper="arXiv:1707.06347",
    atari=Preset(PPO, source="1707.06347 (Atari); epochs, value weight and clipping as in OpenAI's ppo2"),
    classic=Preset(PPO_CLASSIC, source=CLASSIC_SOURCE),
)

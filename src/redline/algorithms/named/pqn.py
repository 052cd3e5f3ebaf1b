"""PQN: Q(λ) with LayerNorm on parallel envs, without replay memory and target network (Gallici et al. 2024).

arXiv:2407.04811. Departures: 32 envs instead of 128, because creating one costs a quarter of a second; 8 batches of 128
per epoch instead of 32 of 128, so a batch is as large as there.
"""

from redline.algorithms.named import CLASSIC_SOURCE, Entry, Preset
from redline.algorithms.on_policy import OnPolicy, QLambda
from redline.algorithms.optimizers import Radam
from redline.exploration import EpsilonGreedy
from redline.networks import Mlp, Normed
from redline.returns import Traces
from redline.schedules import Linear

PQN = OnPolicy(
    layers=Normed(),
    objective=QLambda(),
    explore=EpsilonGreedy(Linear(1.0, 0.001, over_steps=1_000_000), evaluation=0.0),
    optimizer=Radam(),
    returns=Traces(trace=0.65),
    rollout_steps=32,
    epochs=2,
    batch_size=128,
)
PQN_CLASSIC = OnPolicy(
    network=Mlp((128, 128)),
    layers=Normed(),
    objective=QLambda(),
    explore=EpsilonGreedy(Linear(1.0, 0.02, over_steps=20_000), evaluation=0.0),
    optimizer=Radam(lr=1e-3),
    # Acrobot is paid once, after a hundred steps or more
    returns=Traces(trace=0.95, clip_rewards=False),
    rollout_steps=64,
    epochs=4,
    batch_size=64,
)

ENTRY = Entry(
    changes="Q(λ) with LayerNorm, no replay, no target net",
    paper="arXiv:2407.04811",
    atari=Preset(PQN, source="2407.04811, with the departures in its file", num_envs=32),
    classic=Preset(PQN_CLASSIC, source=CLASSIC_SOURCE),
)

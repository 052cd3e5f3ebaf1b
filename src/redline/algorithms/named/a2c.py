"""A2C: advantage actor-critic with n-step returns, all envs in step (Mnih et al. 2016, synchronous).

arXiv:1602.01783. Every 5 steps of 16 envs are one update. λ = 1: the returns of a rollout bootstrap only at its end.
Departures: synchronous; the learning rate stays instead of falling to 0; gradients are clipped to norm 0.5, as in
OpenAI's A2C; weights start orthogonal; RMSProp with ε outside the root, as PyTorch has it.
"""

from redline.algorithms.named import CLASSIC_SOURCE, Entry, Preset
from redline.algorithms.on_policy import OnPolicy, PolicyGradient
from redline.algorithms.optimizers import Rmsprop
from redline.networks import Twin
from redline.returns import Traces

A2C = OnPolicy(returns=Traces(trace=1.0))
# few rows per update, so that there are many updates
A2C_CLASSIC = OnPolicy(
    network=Twin((64, 64)),  # in shared layers, value errors of a hundred would drown the policy's gradient
    objective=PolicyGradient(entropy_weight=0.03, normalise="update"),
    # the norm over both towers is that of the value's gradient: clipping it would slow the policy, too
    optimizer=Rmsprop(lr=3e-3, clip_norm=0.0),
    returns=Traces(trace=1.0, clip_rewards=False),
    rollout_steps=8,
    batch_size=32,
)

ENTRY = Entry(
    changes="n-step advantage actor-critic, 16 envs × 5 steps",
    paper="arXiv:1602.01783",
    atari=Preset(A2C, source="1602.01783; 16 × 5, RMSProp and clipping as in OpenAI's A2C", num_envs=16),
    classic=Preset(A2C_CLASSIC, source=CLASSIC_SOURCE, num_envs=4),
)

"""A2C with generalised advantages: returns of all lengths in a rollout are mixed with λ = 0.95 (Schulman et al. 2016).

arXiv:1506.02438. Departures: the paper's policy step is a trust region, here it is A2C's.
"""

from dataclasses import replace

from redline.algorithms.named import CLASSIC_SOURCE, Entry, Preset
from redline.algorithms.named.a2c import A2C, A2C_CLASSIC

A2C_GAE = replace(A2C, returns=replace(A2C.returns, trace=0.95))
A2C_GAE_CLASSIC = replace(A2C_CLASSIC, returns=replace(A2C_CLASSIC.returns, trace=0.95))

ENTRY = Entry(
    changes="a2c with generalised advantages, λ 0.95",
    paper="arXiv:1506.02438",
    atari=Preset(A2C_GAE, source="1506.02438 (λ), the rest as a2c", num_envs=16),
    classic=Preset(A2C_GAE_CLASSIC, source=f"as a2c; {CLASSIC_SOURCE}", num_envs=4),
)

"""Quantile Rainbow: Rainbow with QR-DQN's quantiles in place of atoms (no paper of its own; 1710.02298, 1710.10044).

Departures from Rainbow: 51 quantiles, which cost as much as its 51 atoms (21 on vectors), and priorities that matter
less (α = 0.3), because quantile losses differ more between transitions than divergences do.
"""

from dataclasses import replace

from redline.algorithms.named import CLASSIC_SOURCE, Entry, Preset
from redline.algorithms.named.rainbow import RAINBOW, RAINBOW_CLASSIC
from redline.algorithms.predictions import Quantiles
from redline.replay.sampler import Prioritized
from redline.schedules import Linear

QUANTILE_RAINBOW = replace(RAINBOW, predict=Quantiles(quantiles=51), sample=Prioritized(alpha=0.3))
QUANTILE_RAINBOW_CLASSIC = replace(
    RAINBOW_CLASSIC,
    predict=Quantiles(quantiles=21),
    sample=Prioritized(alpha=0.3, beta=Linear(0.4, 1.0, over_steps=100_000)),
)

ENTRY = Entry(
    changes="rainbow with quantiles instead of atoms",
    paper="arXiv:1710.02298, 1710.10044",
    atari=Preset(QUANTILE_RAINBOW, source="as rainbow; quantiles and α as others used on Pong"),
    classic=Preset(QUANTILE_RAINBOW_CLASSIC, source=f"as rainbow; {CLASSIC_SOURCE}"),
)

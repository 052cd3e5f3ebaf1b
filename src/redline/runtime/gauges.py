"""Gauges: what a run shows of itself at one moment, the same for the panel, the records and the curves."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Gauges:
    """One reading; rates are over the last seconds, episodes per hour over the last minutes."""

    time_s: float  # training time over all resumes
    unix_s: float
    steps: int
    frames: int
    updates: int
    samples: int
    episodes: int
    steps_per_s: float
    updates_per_s: float
    episodes_per_h: float
    samples_per_step: float | None  # achieved since the warm-up
    mean_return_100: float | None
    best_return: float | None
    epsilon: float | None  # None where actions are drawn from a policy
    policy_entropy_nats: float | None  # None where there is no policy, or nothing was played yet
    loss: float | None
    actor_weights_age_updates: int  # updates by which the actor's weights lag behind
    replay_transitions: int | None  # None where there is no replay memory
    replay_capacity_transitions: int | None
    replay_bytes: int | None
    cpu_percent: float  # 100 is one core
    rss_bytes: int
    progress: float | None  # share of the nearest limit, 0 … 1
    remaining_s: float | None  # until the nearest limit, at the present rate

    def row(self) -> dict[str, Any]:
        """Return the reading as a row of metrics.jsonl."""
        return asdict(self)

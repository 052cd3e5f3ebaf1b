"""What the rounds of a comparison show: rates, ratios of pairs, the share of the limit, and what was learnt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from redline.bench.goals import LEAST_ROUNDS, goal
from redline.bench.limit import Limit
from redline.bench.measuring import rate_of
from redline.bench.training.settings import SETTINGS, Setting

UPDATES_TOLERANCE = 0.02  # of updates per step: a window may end between two updates
GOAL_RATIOS: Mapping[str, Mapping[str, float]] = {"dqn": {"sb3": 1.6}, "ppo": {"sb3": 1.7}, "a2c": {"sb3": 1.8}}
GOAL_FRACTIONS: Mapping[str, float] = {"dqn": 0.55}  # of the limit
COMPARED = ("env", "num_envs")  # what must be as it is for a goal to be judged

Row = Mapping[str, Any]


def read_rounds(rows: Sequence[Row], setting: Setting, limit: Limit, *, peers: Sequence[str]) -> dict[str, Any]:
    """Return the figures of all rounds."""
    speeds = {name: [row[name]["steps_per_s"] for row in rows] for name in ("redline", *peers)}
    ratios = {
        name: rate_of([ours / theirs for ours, theirs in zip(speeds["redline"], speeds[name], strict=True)])
        for name in peers
    }
    fraction = rate_of([speed / limit.steps_per_s for speed in speeds["redline"]])
    wanted = setting.updates_per_step
    is_fair = all(
        abs(row[name]["updates_per_step"] / wanted - 1) <= UPDATES_TOLERANCE
        for row in rows
        for name in ("redline", *peers)
    )
    usual = SETTINGS[setting.algorithm]
    is_usual = all(getattr(setting, field) == getattr(usual, field) for field in COMPARED)
    judged = is_fair and is_usual and len(rows) >= LEAST_ROUNDS
    wanted_ratios = GOAL_RATIOS[setting.algorithm]
    goals = {
        f"ratio_{name}": goal(ratios.get(name), wanted_ratio, judged=judged)
        for name, wanted_ratio in wanted_ratios.items()
    }
    if setting.algorithm in GOAL_FRACTIONS:
        goals["limit_fraction"] = goal(fraction, GOAL_FRACTIONS[setting.algorithm], judged=judged)
    return {
        "steps_per_s": rate_of(speeds["redline"]).as_dict(),
        "updates_per_s": rate_of([row["redline"]["updates_per_s"] for row in rows]).as_dict(),
        "limit_fraction": fraction.as_dict(),
        "limit": {
            **limit.work.as_dict(),
            "sgemm_gflops": limit.sgemm_gflops,
            "env_s_per_step": limit.env_s_per_step,
            "steps_per_s": limit.steps_per_s,
        },
        "peers": {name: rate_of(speeds[name]).as_dict() for name in peers},
        "ratio": {name: ratio.as_dict() for name, ratio in ratios.items()},
        "learning": {name: read_learning(rows, name, batch_size=setting.batch_size) for name in ("redline", *peers)},
        "same_updates_per_step": is_fair,
        "goals": goals,
    }


def read_learning(rows: Sequence[Row], name: str, *, batch_size: int) -> dict[str, Any]:
    """Return what one contender learnt and took meanwhile."""
    own = [row[name] for row in rows]
    return {
        "samples_per_step": rate_of([row["updates_per_step"] * batch_size for row in own]).as_dict(),
        "mean_return_in_windows": mean_return(own),
        "episodes_in_windows": sum(row["episodes"] for row in own),
        "cores_used": rate_of([row["cores_used"] for row in own]).as_dict(),
    }


def mean_return(rows: Sequence[Row]) -> float | None:
    """Return the mean over all episodes that ended in the windows, None if none did."""
    episodes = sum(row["episodes"] for row in rows)
    return sum(row["mean_return"] * row["episodes"] for row in rows if row["episodes"]) / episodes if episodes else None

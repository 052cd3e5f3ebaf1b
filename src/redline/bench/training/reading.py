"""What the rounds of a comparison show: rates, ratios of pairs, the share of the limit, and what was learnt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from redline.bench.goals import goal, why_not_judged
from redline.bench.limit import Limit
from redline.bench.measuring import Rate, rate_of
from redline.bench.other_work import busy_facts
from redline.bench.training.settings import SETTINGS, Setting

UPDATES_TOLERANCE = 0.02  # of updates per step: a window may end between two updates
GOAL_RATIOS: Mapping[str, Mapping[str, float]] = {"dqn": {"sb3": 1.6}, "ppo": {"sb3": 1.7}, "a2c": {"sb3": 1.8}}
GOAL_FRACTIONS: Mapping[str, float] = {"dqn": 0.55}  # of the limit
COMPARED = ("env", "num_envs")  # what must be as it is for a goal to be judged
LEAST_SECONDS = 5.0  # of a window, for a verdict

Row = Mapping[str, Any]


def read_rounds(
    rows: Sequence[Row], setting: Setting, limit: Limit, *, peers: Sequence[str], is_vec_env_forced: bool = False
) -> dict[str, Any]:
    """Return the figures of all rounds."""
    speeds = {name: [row[name]["steps_per_s"] for row in rows] for name in ("redline", *peers)}
    ratios = {
        name: rate_of([ours / theirs for ours, theirs in zip(speeds["redline"], speeds[name], strict=True)])
        for name in peers
    }
    fraction = rate_of([speed / limit.steps_per_s for speed in speeds["redline"]])
    measured = [row[name] for row in rows for name in ("redline", *peers)]
    wanted = setting.updates_per_step
    is_fair = all(abs(row["updates_per_step"] / wanted - 1) <= UPDATES_TOLERANCE for row in measured)
    others_percent = max(float(row["others_percent"]) for row in measured)
    why_not = why_not_comparable(setting, is_fair=is_fair, is_vec_env_forced=is_vec_env_forced)
    why_not = why_not or why_not_judged(rounds=len(rows), others_percent=others_percent)
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
        "goals": make_goals(setting.algorithm, ratios, fraction, why_not=why_not),
        **busy_facts(others_percent),
    }


def make_goals(algorithm: str, ratios: Mapping[str, Rate], fraction: Rate, *, why_not: str | None) -> dict[str, Any]:
    """Return what must be shown of an algorithm, and whether it was."""
    goals = {f"ratio_{name}": goal(ratios.get(name), w, why_not=why_not) for name, w in GOAL_RATIOS[algorithm].items()}
    if algorithm in GOAL_FRACTIONS:
        goals["limit_fraction"] = goal(fraction, GOAL_FRACTIONS[algorithm], why_not=why_not)
    return goals


def why_not_comparable(setting: Setting, *, is_fair: bool, is_vec_env_forced: bool) -> str | None:
    """Return in what the setting is not the one that the goals speak of, None if it is."""
    if not is_fair:
        return "the contenders did not do the same updates per step"
    usual = SETTINGS[setting.algorithm]
    if any(getattr(setting, field) != getattr(usual, field) for field in COMPARED):
        return f"the goal is for {usual.num_envs} envs of {usual.env}"
    if setting.seconds < LEAST_SECONDS:
        return f"a verdict needs windows of {LEAST_SECONDS:.0f} s"
    if is_vec_env_forced:
        return "the peer's vector env was chosen by hand: leave --peer-vec-env at auto"
    return None


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

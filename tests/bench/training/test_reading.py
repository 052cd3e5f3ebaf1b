"""What rounds show: ratios of pairs, the share of the limit, and nothing where less was learnt."""

from dataclasses import replace
from typing import Any

import pytest

from redline.bench.limit import Limit, Work
from redline.bench.training.reading import mean_return, read_rounds
from redline.bench.training.settings import SETTINGS

LIMIT = Limit(sgemm_gflops=100.0, work=Work(flop_per_update=1e9, flop_per_step=2.5e8), env_s_per_step=0.0025)
assert LIMIT.steps_per_s == pytest.approx(200.0)


def pair(ratio: float, *, peer_updates_per_step: float = 0.25, others_percent: float = 2.0) -> dict[str, Any]:
    found = {"updates_per_step": 0.25, "updates_per_s": 25.0, "cores_used": 1.5, "episodes": 1, "mean_return": -20.0}
    found["others_percent"] = others_percent
    peer = found | {"steps_per_s": 70.0, "updates_per_step": peer_updates_per_step}
    return {"redline": found | {"steps_per_s": 70.0 * ratio}, "sb3": peer}


def read(*rows: dict[str, Any]) -> dict[str, Any]:
    return read_rounds(rows, SETTINGS["dqn"], LIMIT, peers=["sb3"])


def test_the_median_of_the_pairs_is_the_ratio() -> None:
    found = read(*(pair(ratio) for ratio in (1.5, 1.7, 1.8, 1.6, 1.9)))
    assert found["ratio"]["sb3"]["median"] == pytest.approx(1.7)
    assert found["steps_per_s"]["median"] == pytest.approx(119.0)
    assert found["peers"]["sb3"] == {"median": 70.0, "low": 70.0, "high": 70.0}
    assert found["limit_fraction"]["median"] == pytest.approx(119.0 / 200.0)
    assert found["goals"]["ratio_sb3"]["met"] is True
    assert found["goals"]["limit_fraction"]["met"] is True
    assert found["learning"]["sb3"]["samples_per_step"]["median"] == 8.0
    assert found["learning"]["redline"]["mean_return_in_windows"] == -20.0


def test_a_low_bound_that_is_too_low_fails() -> None:
    found = read(*(pair(ratio) for ratio in (1.3, 1.3, 1.7, 1.7, 1.7)))
    assert found["goals"]["ratio_sb3"]["met"] is False


def test_a_contender_that_learns_less_is_not_compared() -> None:
    found = read(*(pair(2.0, peer_updates_per_step=0.24) for _ in range(5)))
    assert found["same_updates_per_step"] is False
    assert found["goals"]["ratio_sb3"]["met"] is None


def test_few_rounds_or_another_game_are_not_judged() -> None:
    assert read(pair(2.0))["goals"]["ratio_sb3"]["met"] is None
    other = replace(SETTINGS["dqn"], env="BreakoutNoFrameskip-v4")
    found = read_rounds([pair(2.0)] * 5, other, LIMIT, peers=["sb3"])
    assert found["goals"]["ratio_sb3"]["met"] is None


@pytest.mark.parametrize(
    ("changes", "others_percent", "forced", "reason"),
    [
        ({"seconds": 4.0}, 2.0, False, "windows of 5 s"),
        ({}, 16.0, False, "others used 16 %"),
        ({}, 2.0, True, "chosen by hand"),
        ({"num_envs": 16}, 2.0, False, "for 8 envs of Pong"),
    ],
)
def test_what_keeps_from_a_verdict_is_said(
    changes: dict[str, Any], others_percent: float, forced: bool, reason: str
) -> None:
    rows = [*[pair(2.0)] * 4, pair(2.0, others_percent=others_percent)]
    found = read_rounds(rows, replace(SETTINGS["dqn"], **changes), LIMIT, peers=["sb3"], is_vec_env_forced=forced)
    assert found["is_busy"] is (others_percent > 15.0)
    for goal in found["goals"].values():
        assert goal["met"] is None
        assert reason in goal["reason"]


def test_without_a_peer_ours_stands_beside_the_limit() -> None:
    found = read_rounds([pair(2.0)] * 5, SETTINGS["dqn"], LIMIT, peers=[])
    assert (found["peers"], found["ratio"]) == ({}, {})
    assert found["goals"]["ratio_sb3"]["met"] is None
    assert found["goals"]["limit_fraction"]["met"] is True


def test_a_mean_return_weighs_episodes_alike() -> None:
    rows = [{"episodes": 3, "mean_return": -20.0}, {"episodes": 1, "mean_return": -16.0}]
    assert mean_return([*rows, {"episodes": 0, "mean_return": None}]) == -19.0
    assert mean_return([{"episodes": 0, "mean_return": None}]) is None

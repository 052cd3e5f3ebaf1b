"""Pairs with Stable-Baselines3: judged by the median ratio, and only if both learnt as much."""

from dataclasses import asdict
from typing import Any

import pytest

from on_policy_speed import measurement
from on_policy_speed_redline import make_algorithm
from redline.algorithms.catalog import ALGORITHMS
from speed_setting import ON_POLICY
from steady_window import SteadyWindow


def pair(ratio: float, *, peer_updates_per_step: float = 4 / 256) -> dict[str, Any]:
    found = {"updates_per_step": 4 / 256, "episodes": 1, "mean_return": -20.0}
    peer = found | {"steps_per_s": 100.0, "updates_per_step": peer_updates_per_step}
    return {"redline": found | {"steps_per_s": 100.0 * ratio}, "sb3": peer, "ratio": ratio}


@pytest.mark.parametrize(("ratios", "passed"), [((1.2, 0.9, 1.1), True), ((1.2, 0.9, 0.8), False)])
def test_the_median_ratio_decides(ratios: tuple[float, ...], passed: bool) -> None:
    found = measurement(ON_POLICY["ppo"], asdict(ON_POLICY["ppo"]), [pair(ratio) for ratio in ratios])
    assert found.passed is passed
    assert found.name == "ppo-speed-pong"
    assert found.summary["samples_per_step"] == {"redline": 4.0, "sb3": 4.0}


def test_a_contender_that_learns_less_is_not_compared() -> None:
    repeats = [pair(2.0, peer_updates_per_step=3 / 256)]
    assert measurement(ON_POLICY["ppo"], asdict(ON_POLICY["ppo"]), repeats).passed is False


def test_a_window_of_rollouts_opens_and_closes_at_their_ends() -> None:
    window = SteadyWindow(seconds=0.0, opens_at_steps=10, every_steps=8)
    reads = [window.read(steps=steps, updates=steps // 8) for steps in (8, 12, 16, 20, 24)]
    assert reads == [False, False, False, False, True]
    assert window.first is not None
    assert window.last is not None
    assert (window.first.steps, window.last.steps) == (16, 24)


@pytest.mark.parametrize("name", ON_POLICY)
def test_the_setting_is_the_algorithms_default(name: str) -> None:
    preset, setting = ALGORITHMS[name].atari, ON_POLICY[name]
    assert make_algorithm(setting) == preset.algorithm
    assert setting.num_envs == preset.num_envs

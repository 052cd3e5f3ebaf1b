"""The env bench: both contenders step the same games, and the ratio is that of pairs."""

from unittest.mock import Mock

import numpy as np
import pytest

from redline.bench.env_speed import EnvBench, Stepping, share_of_keys
from redline.envs.config import EnvConfig
from redline.errors import UserError


def test_both_are_stepped_and_compared_in_pairs() -> None:
    result = EnvBench(num_envs=2, threads=1, rounds=2, turn_s=0.02).run()
    assert len(result["rounds"]) == 2
    pairs = sorted(row["redline"] / row["bare"] for row in result["rounds"])
    assert pairs[0] <= result["ratio"]["bare"]["low"] <= result["ratio"]["bare"]["high"] <= pairs[1]
    assert result["config"]["threads"] == 1
    assert result["goals"]["ratio"]["met"] is None  # two rounds can't tell
    with_keys = (1.0 - result["key_share"]) * result["ratio"]["bare"]["median"]
    assert result["ratio_with_keys"]["bare"]["median"] == pytest.approx(with_keys)


def test_all_lanes_wait_for_a_seeded_reset() -> None:
    # 20,000 steps take a second, and earn two resets of 0.05 s each
    assert share_of_keys(0.05, steps_per_s=20_000.0) == pytest.approx(0.1 / 1.1)


def test_the_bare_emulators_play_the_same_game() -> None:
    bench = EnvBench(num_envs=2, threads=1)
    with bench.bare() as bare, bench.layered() as layered:
        assert bare.steps_per_s(0.01) > 0.0
        layered(3)


def test_actions_are_taken_in_turn() -> None:
    envs = Mock()
    stepping = Stepping(envs, np.array([[0], [1], [2]]))
    stepping(2)
    stepping(2)
    assert [int(call.args[0][0]) for call in envs.send.call_args_list] == [0, 1, 2, 0]
    assert envs.recv.call_count == 4


def test_an_env_without_emulators_is_refused() -> None:
    with pytest.raises(UserError, match="use an Atari game"):
        EnvBench(env=EnvConfig(id="CartPole-v1"))

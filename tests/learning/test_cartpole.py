"""CartPole as the program's user trains it."""

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_four_of_five_seeds_reach_400_within_100k_steps(tmp_path: Path, run_program: Any) -> None:
    reached = 0
    for seed in range(1, 6):
        limits = ("--max-steps", 100_000, "--target-return", 400)
        args = ("--env", "CartPole-v1", "--algo", "dqn", "--seed", seed, *limits, "--log-dir", tmp_path, "--json")
        summary = json.loads(run_program("train", *args, timeout_s=600).stdout)
        reached += summary["mean_return_100"] >= 400
    assert reached >= 4

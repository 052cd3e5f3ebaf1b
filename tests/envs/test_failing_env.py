"""An env that fails is named, with lane and seed, and never brings the program down without a word."""

from typing import Any

import gymnasium
import numpy as np
import pytest

from probes import Constant
from redline.envs.catalog import make_vector_env
from redline.envs.config import EnvConfig
from redline.envs.vector import EnvError
from redline.types import Array


class Failing(Constant):
    """Fails in the way it is told to."""

    def __init__(self, how: str) -> None:
        self._how = how

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        if self._how == "reset":
            raise OSError("no such screen")
        return super().reset(seed=seed)

    def step(self, action: np.int64) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        if self._how == "step":
            raise ZeroDivisionError("inside")
        return np.zeros(1, np.float32), float("nan"), True, False, {}


for way in ("reset", "step", "reward"):
    gymnasium.register(f"test/Failing-{way}-v0", entry_point=Failing, kwargs={"how": way})


@pytest.mark.parametrize(
    ("way", "what"), [("reset", "no such screen"), ("step", "inside"), ("reward", "reward of nan")]
)
def test_a_failure_names_env_lane_and_seed(way: str, what: str) -> None:
    env = make_vector_env(EnvConfig(f"test/Failing-{way}-v0", stack=1, skip=1), num_envs=2, seed=3, threads=1)
    with pytest.raises(EnvError, match=rf"test/Failing-{way}-v0 failed in lane 0, seed \d+: .*{what}"):  # noqa: PT012
        env.reset()
        env.send(np.zeros(2, np.int64))
        env.recv()
    env.close()

"""An env that fails as the variable FAILS says; each process that plays it leaves a file in the folder LIVES."""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np

from probes import Endless
from redline.types import Array

SLOW_S = 12.0  # longer than a process may be silent


def role() -> str:
    """Return what this process is: redline-actor-0, or the name of the program."""
    return Path("/proc/self/comm").read_text().strip()


class Failing(Endless):
    """Life is how many processes have played before this one."""

    def __init__(self) -> None:
        self._how = os.environ["FAILS"]
        self._lives = Path(os.environ["LIVES"])
        self._life = len(list(self._lives.iterdir()))
        self._t = 0
        if self._how == "slow start" and role().startswith("redline-"):
            time.sleep(SLOW_S)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        if role().startswith("redline-"):
            (self._lives / str(os.getpid())).touch()
        return super().reset(seed=seed)

    def step(self, action: np.int64) -> tuple[Array, float, bool, bool, dict[str, Any]]:
        self._t += 1
        if self._how == "later each time" and (self._life > 1 or self._t == (10, 200)[self._life]):
            raise ZeroDivisionError("inside")
        if self._how == "every 5 steps" and self._t == 5:
            raise ZeroDivisionError("inside")
        if self._how == f"evaluator at step {self._t}" and role() == "redline-evaluat":
            raise ZeroDivisionError("inside")
        if self._how == "hangs" and self._t == 100 and self._life == 0:
            time.sleep(3_600.0)
        frame, *rest = super().step(action)
        return (frame * np.nan if self._how == "nan" and self._t > 400 else frame, *rest)  # type: ignore[return-value]

"""Where the time of a training loop goes: every moment belongs to one phase."""

import time
from collections.abc import Mapping

# of `learn` only the host's part where a device computes by itself
PHASES = ("act", "draw", "learn", "keep", "other")
WAITED_IN = {"envs": "keep", "actors": "keep", "gather": "draw"}  # what is waited for, and in which phase


class Stopwatch:
    """Adds the time since the last lap to a phase."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self._last_s = time.perf_counter()

    def lap(self, phase: str) -> None:
        """End a phase; the next begins."""
        now_s = time.perf_counter()
        self.seconds[phase] += now_s - self._last_s
        self._last_s = now_s

    def forget(self) -> None:
        """Begin anew."""
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.skip()

    def skip(self) -> None:
        """Leave out the time since the last lap: it is not training."""
        self._last_s = time.perf_counter()


def busy_shares(spent_s: Mapping[str, float], waited_s: Mapping[str, float], *, seconds: float) -> dict[str, float]:
    """Return the share of some seconds that each phase was at work: without what it waited."""
    working_s = dict(spent_s)
    for what, waited in waited_s.items():
        if what in WAITED_IN:
            working_s[WAITED_IN[what]] -= waited
    return {phase: min(max(spent / seconds, 0.0), 1.0) for phase, spent in working_s.items()}

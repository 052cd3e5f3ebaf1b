"""A ladder that is quick: a small game in place of Pong, and no peer."""

from dataclasses import replace

import pytest

from redline.bench import goals
from redline.bench.ladder import climb, contenders, peer
from redline.bench.ladder.task import CATCH


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure speed on the small game, with a short warm-up, whatever others do."""
    monkeypatch.setattr(goals, "MAX_BUSY_PERCENT", 1_000.0)
    monkeypatch.setattr(contenders, "SETTLE_STEPS", 8)
    monkeypatch.setattr(climb, "PONG", replace(CATCH, warmup_steps=32, capacity=2_000))
    monkeypatch.setattr(peer, "missing", lambda: "stable-baselines3 is not installed")

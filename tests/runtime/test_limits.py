"""Which limit ends a run."""

from collections import deque

import pytest

from redline.runtime.config import Limits
from redline.runtime.counters import Counters, Scores


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(max_steps=1_000), "max-steps 1,000 reached"),
        (Limits(max_steps=1_001), None),
        (Limits(max_steps=None, max_frames=4_000), "max-frames 4,000 reached"),
        (Limits(max_steps=None, max_frames=4_001), None),
        (Limits(max_episodes=100), "max-episodes 100 reached"),
        (Limits(max_episodes=101), None),
        (Limits(max_minutes=1.5), "max-minutes 1.5 reached"),
        (Limits(max_minutes=1.6), None),
        (Limits(target_return=7.0), "target-return 7 reached"),
        (Limits(target_return=7.1), None),
        (Limits(max_steps=1, target_return=7.0), "target-return 7 reached"),
        (Limits(max_steps=None), None),
    ],
)
def test_a_run_ends_at_its_first_limit(limits: Limits, reason: str | None) -> None:
    counters, scores = Counters(steps=1_000, episodes=100), Scores(recent=deque([7.0] * 100, maxlen=100))
    assert limits.reached(counters, scores, frames_per_step=4, invocation_s=90.0) == reason


def test_a_target_needs_a_whole_hundred_of_episodes() -> None:
    scores = Scores(recent=deque([7.0] * 99, maxlen=100))
    assert Limits(target_return=7.0).reached(Counters(), scores, frames_per_step=4, invocation_s=0.0) is None

import time

import pytest

from redline.runtime.phases import PHASES, Stopwatch, busy_shares


class Clock:
    """Stands still unless it is told to go on."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s

    def go_on(self, seconds: float) -> None:
        self.now_s += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", clock)
    return clock


def test_every_moment_belongs_to_one_phase(clock: Clock) -> None:
    watch = Stopwatch()
    clock.go_on(2.0)
    watch.lap("learn")
    clock.go_on(0.5)
    watch.lap("keep")
    clock.go_on(1.0)
    watch.lap("learn")
    assert watch.seconds == dict.fromkeys(PHASES, 0.0) | {"learn": 3.0, "keep": 0.5}


def test_what_is_skipped_belongs_to_none(clock: Clock) -> None:
    watch = Stopwatch()
    clock.go_on(2.0)
    watch.skip()
    clock.go_on(0.5)
    watch.lap("learn")
    assert watch.seconds["learn"] == 0.5
    clock.go_on(2.0)
    watch.lap("act")
    watch.forget()
    assert set(watch.seconds.values()) == {0.0}


def test_waiting_is_not_work() -> None:
    spent_s = {"act": 1.0, "draw": 2.0, "learn": 4.0, "keep": 2.0, "other": 1.0}
    waited_s = {"envs": 1.5, "gather": 0.5, "rest": 9.0}
    busy = busy_shares(spent_s, waited_s, seconds=10.0)
    assert busy == pytest.approx({"act": 0.1, "draw": 0.15, "learn": 0.4, "keep": 0.05, "other": 0.1})

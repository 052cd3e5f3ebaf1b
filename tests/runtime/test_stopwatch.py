import time

import pytest

from redline.runtime.loop import busy_shares
from redline.runtime.training import PHASES, Stopwatch


def test_every_moment_belongs_to_one_phase() -> None:
    begun_s = time.perf_counter()
    watch = Stopwatch()
    time.sleep(0.02)
    watch.lap("learn")
    watch.lap("keep")
    time.sleep(0.01)
    watch.lap("learn")
    assert sum(watch.seconds.values()) == pytest.approx(time.perf_counter() - begun_s, abs=0.005)
    assert watch.seconds["learn"] >= 0.03
    assert set(watch.seconds) == set(PHASES)


def test_what_is_skipped_belongs_to_none() -> None:
    watch = Stopwatch()
    time.sleep(0.02)
    watch.skip()
    watch.lap("learn")
    assert sum(watch.seconds.values()) < 0.01
    time.sleep(0.02)
    watch.lap("act")
    watch.forget()
    assert set(watch.seconds.values()) == {0.0}


def test_waiting_is_not_work() -> None:
    spent_s = {"act": 1.0, "draw": 2.0, "learn": 4.0, "keep": 2.0, "other": 1.0}
    waited_s = {"envs": 1.5, "gather": 0.5, "rest": 9.0}
    busy = busy_shares(spent_s, waited_s, seconds=10.0)
    assert busy == pytest.approx({"act": 0.1, "draw": 0.15, "learn": 0.4, "keep": 0.05, "other": 0.1})

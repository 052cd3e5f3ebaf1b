"""Gains are of pairs in the same round; a base that does not keep up is void, and not judged by too little."""

from typing import Any

import pytest

from redline.bench.ladder.contenders import Turn
from redline.bench.ladder.progress import Kind, TimeLeft
from redline.bench.ladder.readings import gain, judge_base
from redline.bench.ladder.rounds import Measured


def turns(*steps_per_s: float) -> list[Turn]:
    return [Turn(seconds=2.0, steps=round(2 * rate), updates=10, samples=320, cpu_share=0.5) for rate in steps_per_s]


def test_a_gain_is_the_median_of_ratios_within_rounds() -> None:
    slowed = gain(turns(100, 20, 120), turns(50, 10, 40))  # the second round was disturbed for both
    assert slowed is not None
    assert slowed["median"] == 2.0
    assert gain(turns(100), None) is None


def judge(base: tuple[float, ...], *, others_percent: float = 0.0, missing: str | None = None) -> dict[str, Any]:
    peers = {
        "sb3": turns(*(90, 90, 90, 200, 10)[: len(base)]),
        "sb3 tuned": turns(*(100,) * len(base)),
    }
    measured = Measured({"textbook": turns(*base), **peers}, {}, others_percent)
    return judge_base(measured, base="textbook", peers=("sb3", "sb3 tuned"), missing=missing)


@pytest.mark.parametrize(("base", "is_valid"), [((96, 96, 96, 50, 50), True), ((94, 94, 94, 200, 200), False)])
def test_the_base_must_keep_up_with_the_faster_peer(base: tuple[float, ...], *, is_valid: bool) -> None:
    judged = judge(base)
    assert judged["valid"] is is_valid
    assert judged["ratio"]["median"] == base[0] / 100
    assert judged["peer_steps_per_s"]["median"] == 100


def test_what_can_not_be_told_is_not_judged() -> None:
    base = (96.0,) * 5
    for judged, why in (
        (judge(base, missing="sb3 is not installed"), "sb3 is not installed"),
        (judge(base[:4]), "a verdict needs 5 rounds"),
        (judge(base, others_percent=40.0), "others used 40 %"),
    ):
        assert judged["valid"] is None
        assert why in judged["reason"]


def test_the_time_left_follows_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.0, 30.0, 30.0])
    monkeypatch.setattr("redline.bench.ladder.progress.time.monotonic", lambda: next(clock))
    said: list[str] = []
    left = TimeLeft(said.append, {"turn": Kind(3, guess_s=10.0)})
    left.begin("turn", "a")
    left.begin("turn", "b")
    assert said == ["a, about 30 s left", "b, about 60 s left"]

"""Gains are of pairs in the same round, and a base that does not keep up is void."""

import pytest

from redline.bench.ladder.contenders import Turn, turn_order
from redline.bench.ladder.progress import Kind, TimeLeft
from redline.bench.ladder.readings import gain, judge_base


def turns(*steps_per_s: float) -> list[Turn]:
    return [Turn(seconds=2.0, steps=round(2 * rate), updates=10, samples=320, cpu_share=0.5) for rate in steps_per_s]


def test_a_gain_is_the_median_of_ratios_within_rounds() -> None:
    slowed = gain(turns(100, 20, 120), turns(50, 10, 40))  # the second round was disturbed for both
    assert slowed is not None
    assert slowed["median"] == 2.0
    assert gain(turns(100), None) is None


@pytest.mark.parametrize(("base", "is_valid"), [((96, 96, 50), True), ((94, 94, 200), False)])
def test_the_base_must_keep_up_with_the_faster_peer_of_each_round(base: tuple[float, ...], *, is_valid: bool) -> None:
    measured = {"textbook": turns(*base), "sb3": turns(100, 10, 100), "sb3 tuned": turns(10, 100, 100)}
    judged = judge_base(measured, base="textbook", peers=("sb3", "sb3 tuned"), missing=None)
    assert judged["valid"] is is_valid
    assert judged["ratio"]["median"] == base[0] / 100
    assert judged["peer_steps_per_s"]["median"] == 100


def test_without_a_peer_nobody_can_tell() -> None:
    judged = judge_base({"textbook": turns(10)}, base="textbook", peers=("sb3",), missing="sb3 is not installed")
    assert judged["valid"] is None
    assert "sb3 is not installed" in judged["reason"]


def test_the_first_place_of_a_round_goes_round() -> None:
    names = ["a", "b", "c", "d", "e", "f"]
    orders = [turn_order(names, number, rounds=3) for number in range(3)]
    assert all(sorted(order) == names for order in orders)
    assert [order[0] for order in orders] == ["a", "c", "e"]


def test_the_time_left_follows_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 0.0, 30.0, 30.0])
    monkeypatch.setattr("redline.bench.ladder.progress.time.monotonic", lambda: next(clock))
    said: list[str] = []
    left = TimeLeft(said.append, {"turn": Kind(3, guess_s=10.0)})
    left.begin("turn", "a")
    left.begin("turn", "b")
    assert said == ["a, about 30 s left", "b, about 60 s left"]

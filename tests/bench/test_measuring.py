"""Rates: worked by hand, and by turns."""

import pytest

from redline.bench.measuring import Contender, RoundProgress, alternate, rate_of


def test_low_and_high_hold_nine_rounds_of_ten() -> None:
    rate = rate_of([float(value) for value in range(21)])
    assert (rate.low, rate.median, rate.high) == pytest.approx((1.0, 10.0, 19.0))


def test_one_round_is_its_own_spread() -> None:
    rate = rate_of([7.0])
    assert (rate.low, rate.median, rate.high) == (7.0, 7.0, 7.0)


def test_no_round_is_an_error() -> None:
    with pytest.raises(ValueError, match="at least one round"):
        rate_of([])


def test_contenders_take_turns_after_an_excluded_one() -> None:
    calls: list[str] = []

    def contender(name: str) -> Contender:
        def work(count: int) -> None:
            calls.append(name)
            sum(range(200 * count))

        return work

    measured = alternate({name: contender(name) for name in "ab"}, rounds=3, turn_s=0.01)
    assert {name: len(rounds) for name, rounds in measured.items()} == {"a": 3, "b": 3}
    turns = calls[-6:]
    assert [set(turns[i : i + 2]) for i in (0, 2, 4)] == [{"a", "b"}] * 3
    assert len(calls) > 6


def test_turns_cut_into_slices_are_taken_by_turns_and_count_as_one() -> None:
    calls: list[tuple[str, int]] = []

    def contender(name: str) -> Contender:
        def work(count: int) -> None:
            calls.append((name, count))
            sum(range(200 * count))

        return work

    measured = alternate({name: contender(name) for name in "ab"}, rounds=2, turn_s=0.02, slices=4)
    assert {name: len(rounds) for name, rounds in measured.items()} == {"a": 2, "b": 2}
    turns = [name for name, _ in calls[-16:]]
    assert turns == ["a", "b"] * 4 + ["b", "a"] * 4


def test_the_time_left_is_a_guess_first_and_measured_then(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, told = [0.0], list[str]()
    monkeypatch.setattr("redline.bench.measuring.time.monotonic", lambda: clock[0])
    progress = RoundProgress(told.append, rounds=3, guess_s=10.0)
    progress.begin(0)
    clock[0] = 100.0
    progress.begin(1)
    assert told == ["round 1 of 3, about 30 s left", "round 2 of 3, about 3 min left"]

"""Rates by turns and goals, worked by hand."""

import pytest

from redline.bench.measuring import Contender, Measuring, alternate, goal, rate_of, told_rounds, why_not_judged


def test_low_and_high_hold_nine_rounds_of_ten() -> None:
    rate = rate_of([float(value) for value in range(21)])
    assert rate == pytest.approx({"low": 1.0, "median": 10.0, "high": 19.0})


def test_one_round_is_its_own_spread() -> None:
    assert rate_of([7.0]) == {"low": 7.0, "median": 7.0, "high": 7.0}


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
    rounds = told_rounds(3, told.append, guess_s=10.0)
    next(rounds)
    clock[0] = 100.0
    next(rounds)
    assert told == ["round 1 of 3, about 30 s left", "round 2 of 3, about 3 min left"]


@pytest.mark.parametrize(
    ("median", "low", "met"),
    [(1.6, 1.45, True), (1.59, 1.58, False), (2.0, 1.43, False)],
)
def test_the_median_must_reach_it_and_the_low_nine_tenths(median: float, low: float, met: bool) -> None:
    assert goal({"median": median, "low": low, "high": 3.0}, 1.6)["met"] is met


def test_what_this_run_cannot_tell_is_not_judged() -> None:
    found = goal({"median": 2.0, "low": 2.0, "high": 2.0}, 1.6, why_not="nobody looked")
    assert (found["met"], found["reason"]) == (None, "nobody looked")


def test_few_rounds_and_the_work_of_others_keep_from_a_verdict() -> None:
    assert why_not_judged(rounds=5, others_percent=15.0) is None
    assert why_not_judged(rounds=4, others_percent=0.0) == "a verdict needs 5 rounds"
    assert why_not_judged(rounds=5, others_percent=40.0) == "others used 40 % of the CPU"


def test_own_work_is_not_the_work_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks = {"all": 0.0, "own": 0.0, "now": 0.0}
    monkeypatch.setattr("redline.bench.measuring._all_cpu_s", lambda: clocks["all"])
    monkeypatch.setattr("redline.bench.measuring.own_cpu_s", lambda: clocks["own"])
    monkeypatch.setattr("redline.bench.measuring.time.perf_counter", lambda: clocks["now"])
    monkeypatch.setattr("redline.bench.measuring.os.cpu_count", lambda: 2)
    measuring = Measuring()
    clocks |= {"all": 19.0, "own": 15.0, "now": 10.0}
    assert measuring.others_percent() == 20.0
    clocks["own"] = 19.01  # two clocks differ a little
    assert measuring.others_percent() == 0.0

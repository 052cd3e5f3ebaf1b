"""The choice among candidates, on planted measurements: only the clock and the windows are made up."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest

from redline.plan.speed import (
    FINALISTS,
    FIRST_ROUNDS,
    LEAST_FINAL_ROUNDS,
    MOST_FINAL_ROUNDS,
    MOST_REPEATS,
    CandidateLostError,
    Choice,
    Race,
    Window,
    combination,
    gain_of,
)

WINDOW_S = 1.5
NAMES = tuple("abcdefg")
EVEN = dict.fromkeys(("default", *NAMES), 100.0)  # steps/s


@dataclass
class Planted:
    """A machine on which each candidate has a known speed, with 3 % of noise."""

    speeds: Mapping[str, float]
    seed: int = 1
    others_percent: Mapping[int, float] = field(default_factory=dict)  # number of a window → used by others in it
    usual_percent: float = 5.0
    fails_after: Mapping[str, int] = field(default_factory=dict)  # windows of a candidate
    now_s: float = 0.0
    measured: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)

    def measure(self, name: str, until_s: float) -> Window:
        if self.now_s + WINDOW_S > until_s:
            self.now_s = until_s
            raise CandidateLostError("it did not finish a window in time")
        self.now_s += WINDOW_S
        self.measured.append(name)
        if self.measured.count(name) > self.fails_after.get(name, 10**9):
            raise CandidateLostError("it failed")
        others = self.others_percent.get(len(self.measured) - 1, self.usual_percent)
        slowed = 1.0 - max(0.0, others - self.usual_percent) / 100
        speed = self.speeds[name] * self.rng.normal(1.0, 0.03) * slowed
        return Window(steps=round(1_000 * speed), updates=1, seconds=1_000.0, others_percent=others)

    def race(self, budget_s: float = 120.0) -> Race:
        return Race("default", self.measure, budget_s, clock_s=lambda: self.now_s)


def choose(planted: Planted, budget_s: float = 120.0, shown: tuple[str, ...] = ()) -> tuple[Race, Choice]:
    race = planted.race(budget_s)
    names = [name for name in planted.speeds if name != "default" and name not in shown]
    race.compare(race.halve(names, shown=shown))
    return race, race.choose()


@pytest.mark.parametrize("seed", range(10))
def test_a_clear_winner_is_chosen_and_its_gain_is_measured(seed: int) -> None:
    _, choice = choose(Planted({**EVEN, "e": 125.0}, seed=seed))
    assert choice.name == "e"
    gain = choice.standings["e"].gain
    assert gain is not None
    assert gain.low > 1.0
    assert gain.ratio == pytest.approx(1.25, rel=0.05)
    assert choice.standings["e"].final_rounds >= LEAST_FINAL_ROUNDS


def test_a_tie_keeps_the_default() -> None:
    chosen = [choose(Planted(EVEN, seed=seed))[1].name for seed in range(100)]
    assert chosen.count("default") >= 85  # two finalists, each above its interval in one tie of twenty


def test_where_all_are_slower_the_default_stays_and_the_result_says_so() -> None:
    _, choice = choose(Planted({**dict.fromkeys(NAMES, 80.0), "default": 100.0}))
    assert (choice.name, choice.why) == ("default", "nothing was faster beyond doubt, and a tie keeps the default")


def test_each_step_of_the_halving_measures_fewer() -> None:
    planted = Planted({**EVEN, "a": 140.0, "b": 130.0, "c": 120.0}, seed=3)
    race = planted.race()
    assert race.halve(NAMES) == ["a", "b"]
    assert [len(found) for found in race.rounds] == [8] * FIRST_ROUNDS + [4, 4]  # the default is in each


def test_only_fresh_rounds_count_for_a_finalist() -> None:
    race, choice = choose(Planted({**EVEN, "a": 140.0, "b": 130.0, "c": 120.0}, seed=3))
    gain = choice.standings["a"].gain
    assert gain == gain_of(race.ratios("a", first_round=FIRST_ROUNDS + 2))
    assert len(choice.standings["a"].windows) == len(race.rounds)


def test_a_disturbed_window_is_measured_again_and_does_not_count() -> None:
    planted = Planted({"default": 100.0, "a": 120.0}, others_percent={5: 65.0})
    race, choice = choose(planted)
    assert planted.measured[5] == planted.measured[6]  # the same candidate, at once
    assert (choice.repeats, choice.disturbed) == (1, 0)
    assert all(window.others_percent == 5.0 for found in race.rounds for window in found.values())


def test_load_that_is_always_there_disturbs_nothing() -> None:
    _, choice = choose(Planted({"default": 100.0, "a": 120.0}, usual_percent=60.0))
    assert (choice.name, choice.repeats, choice.others_percent) == ("a", 0, 60.0)


def test_repeats_are_bounded_and_windows_that_stay_disturbed_are_counted() -> None:
    disturbed = {number: 90.0 for number in range(200) if number % 5 in (1, 2)}
    _, choice = choose(Planted({**EVEN, "a": 130.0}, others_percent=disturbed))
    assert choice.repeats == MOST_REPEATS
    assert choice.disturbed > 0


@pytest.mark.parametrize("budget_s", [1.0, 7.0, 20.0, 45.0, 80.0, 120.0, 300.0])
def test_no_race_takes_more_than_its_budget(budget_s: float) -> None:
    planted = Planted({**EVEN, "a": 130.0}, others_percent=dict.fromkeys(range(0, 300, 4), 90.0))
    choose(planted, budget_s)
    assert planted.now_s <= budget_s


def test_too_little_time_keeps_the_default_and_says_why() -> None:
    _, choice = choose(Planted({**EVEN, "a": 300.0}), budget_s=20.0)
    assert choice.name == "default"
    assert "too short" in choice.why


def test_a_candidate_that_fails_is_out_and_the_others_go_on() -> None:
    _, choice = choose(Planted({**EVEN, "a": 150.0, "b": 130.0}, fails_after={"a": 4}))
    assert choice.name == "b"
    assert choice.standings["a"].why_lost == "it failed"


def test_time_that_is_kept_for_a_combination_does_not_cost_the_first_rounds() -> None:
    planted = Planted({**EVEN, "a": 150.0})
    race = planted.race(70.0)
    assert race.halve(NAMES, then_s=1_000.0)[0] == "a"
    assert len(race.rounds) == FIRST_ROUNDS


def test_without_time_for_a_round_the_result_says_so() -> None:
    _, choice = choose(Planted(EVEN), budget_s=1.0)
    assert "too short" in choice.why


@pytest.mark.parametrize("windows", [0, 5])
def test_without_a_default_nothing_is_chosen_and_the_result_says_so(windows: int) -> None:
    _, choice = choose(Planted({"default": 100.0, "a": 150.0}, fails_after={"default": windows}))
    assert (choice.name, choice.why) == ("default", "the default can't be measured any more: it failed")


def test_the_default_alone_is_measured_and_kept() -> None:
    race, choice = choose(Planted({"default": 100.0}))
    assert (choice.name, choice.why) == ("default", "no other candidate could be measured")
    assert len(choice.standings["default"].windows) == len(race.rounds) == FIRST_ROUNDS


def test_a_window_that_time_cuts_short_loses_nobody() -> None:
    planted = Planted({"default": 100.0, "a": 150.0})
    race = planted.race()
    race.compare(race.halve(["a"]))
    race.ends_s = planted.now_s + 1.5 * WINDOW_S
    assert not race.play_round(["a"])
    choice = race.choose()
    assert (choice.name, race.why_lost) == ("a", {})


def test_final_rounds_end_when_all_are_slower_beyond_doubt() -> None:
    race, _ = choose(Planted({"default": 100.0, "a": 70.0}))
    assert len(race.rounds) == FIRST_ROUNDS + LEAST_FINAL_ROUNDS
    race, _ = choose(Planted({"default": 100.0, "a": 140.0}))
    assert len(race.rounds) == FIRST_ROUNDS + MOST_FINAL_ROUNDS


def test_a_candidate_that_is_only_shown_is_measured_and_never_chosen() -> None:
    race, choice = choose(Planted({**EVEN, "g": 200.0}), shown=("g",))
    assert choice.name != "g"
    assert len(race.ratios("g")) == FIRST_ROUNDS
    gain = choice.standings["g"].gain
    assert gain is not None
    assert gain.ratio == pytest.approx(2.0, rel=0.1)


def race_of(ratios: Mapping[str, float]) -> Race:
    race = Planted({}).race()
    windows = {name: Window(steps=round(1_000 * ratio), updates=1, seconds=1.0) for name, ratio in ratios.items()}
    race.rounds = [{"default": Window(steps=1_000, updates=1, seconds=1.0), **windows}]
    return race


def test_changes_that_helped_alone_are_tried_together() -> None:
    changes = {
        "one thread": {"learner.threads": 1},
        "two threads": {"learner.threads": 2},
        "ahead": {"replay.prefetch": 1},
        "raw": {"replay.codec": "raw"},
    }
    race = race_of({"one thread": 1.05, "two threads": 1.10, "ahead": 1.2, "raw": 0.9})
    assert combination(changes, race) == {"replay.prefetch": 1, "learner.threads": 2}
    assert combination(changes, race_of({"one thread": 1.005, "two threads": 1.0, "ahead": 1.2, "raw": 0.9})) == {}


def test_a_change_that_brings_its_topology_fits_one_with_the_same() -> None:
    changes = {
        "processes": {"topology": "async"},
        "four": {"topology": "async", "actors": 4},
        "chunks": {"topology": "async", "push": "chunk"},
        "inline": {"topology": "inline"},
    }
    race = race_of({"processes": 1.5, "four": 3.0, "chunks": 1.6, "inline": 1.02})
    assert combination(changes, race) == {"topology": "async", "actors": 4, "push": "chunk"}


def test_the_gain_is_the_mean_of_the_paired_ratios_in_logarithms() -> None:
    gain = gain_of([1.0, 2.0, 4.0])
    assert gain is not None
    # log2: mean 1, standard error 1/√3, Student's t with 2 degrees of freedom 2.920: 1 ± 1.686
    assert gain == pytest.approx((2.0, 2 ** (1 - 1.6858), 2 ** (1 + 1.6858)), rel=1e-3)
    assert gain_of([1.0, 2.0]) is None


def test_the_finalists_are_few() -> None:
    assert len(NAMES) > FINALISTS * 2

"""Aggregates over games: the paper's definitions by hand, by a naive oracle, and by all resamples there are."""

from itertools import product
from statistics import fmean, median

import numpy as np
import pytest
import scipy

from redline.fleet import aggregate as module
from redline.fleet.aggregate import Aggregate, aggregate, difference

HAND = {"a": [0.0, 1.0, 2.0, 3.0], "b": [0.5, 0.5, 0.5, 0.5]}


def found(scores: dict[str, list[float]]) -> Aggregate:
    value = aggregate(scores, seed=0)
    assert value is not None
    return value


def points(scores: dict[str, list[float]]) -> dict[str, float]:
    return {name: value.point for name, value in found(scores).values.items()}


def naive(scores: dict[str, list[float]]) -> dict[str, float]:
    means = [fmean(runs) for runs in scores.values()]
    return {
        "median": median(means),
        "IQM": float(scipy.stats.trim_mean([run for runs in scores.values() for run in runs], 0.25)),
        "mean": fmean(means),
        "optimality gap": fmean(fmean(1 - min(run, 1.0) for run in runs) for runs in scores.values()),
    }


def test_definitions_by_hand() -> None:
    assert points(HAND) == {
        "median": 1.0,  # of 1.5 and 0.5
        "IQM": 0.625,  # of 0.5, 0.5, 0.5 and 1: two runs fall away at each end
        "mean": 1.0,
        "optimality gap": 0.375,  # ¼ in a, where 2 and 3 make up for nothing, and ½ in b
    }


@pytest.mark.parametrize("runs", [1, 3, 5])
@pytest.mark.parametrize("games", [1, 2, 7])
def test_points_are_those_of_a_naive_oracle(games: int, runs: int) -> None:
    rng = np.random.default_rng(games * 10 + runs)
    scores = {f"game {place}": rng.lognormal(0, 1, runs).tolist() for place in range(games)}
    assert points(scores) == pytest.approx(naive(scores))


def test_interval_is_that_of_all_resamples_within_games() -> None:
    scores = {"a": [0.0, 0.1, 0.7], "b": [1.0, 2.0, 4.0]}
    drawn = [
        naive({"a": list(a), "b": list(b)})
        for a in product(scores["a"], repeat=3)
        for b in product(scores["b"], repeat=3)
    ]
    for name, value in found(scores).values.items():
        everything = np.quantile([one[name] for one in drawn], [0.025, 0.975], method="inverted_cdf")
        assert value.interval == pytest.approx(everything, abs=0.06), name


def test_intervals_hold_the_truth_about_as_often_as_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESAMPLES", 1_000)
    rng = np.random.default_rng(1)
    truth = np.asarray([0.2, 0.5, 0.9, 1.4])
    trials, held = 200, 0
    for trial in range(trials):
        scores = {str(game): rng.normal(mean, 0.2, 10).tolist() for game, mean in enumerate(truth)}
        interval = aggregate(scores, seed=trial).values["mean"].interval  # type: ignore[union-attr]
        assert interval is not None
        held += interval[0] <= truth.mean() <= interval[1]
    assert 0.88 <= held / trials <= 0.98


def test_intervals_are_the_same_in_every_report_and_narrow_with_more_seeds() -> None:
    rng = np.random.default_rng(2)
    few = {"a": rng.normal(1, 0.3, 4).tolist(), "b": rng.normal(2, 0.3, 4).tolist()}
    many = {game: runs * 10 for game, runs in few.items()}
    assert found(few) == found(few)
    narrow, wide = (found(scores).values["IQM"].interval for scores in (many, few))
    assert narrow is not None
    assert wide is not None
    assert narrow[1] - narrow[0] < (wide[1] - wide[0]) / 2


def test_too_few_runs_have_no_interval_and_say_so() -> None:
    value = found({"a": [1.0, 2.0, 3.0], "b": [1.0, 2.0], "c": [4.0]})
    assert {one.interval for one in value.values.values()} == {None}
    assert value.why_no_interval == "no interval: fewer than 3 runs of b and 1 more"
    assert (value.games, value.runs) == (3, 6)
    assert found(HAND).why_no_interval == ""


def test_nothing_comes_to_nothing() -> None:
    assert aggregate({}, seed=0) is None
    assert aggregate({"a": []}, seed=0) is None


def test_difference_is_of_games_that_both_sides_have() -> None:
    value = difference({"a": [1.0] * 3, "b": [0.0] * 3, "c": [9.0]}, {"a": [2.0] * 3, "b": [4.0] * 3}, seed=0)
    assert value is not None
    assert value.point == 2.5  # 1 in a, 4 in b
    assert value.interval == (2.5, 2.5)
    unsure = difference({"a": [0.0, 2.0]}, {"a": [3.0, 3.0, 3.0]}, seed=0)
    assert unsure is not None
    assert (unsure.point, unsure.interval) == (2.0, None)
    assert difference({"a": [1.0]}, {"b": [1.0]}, seed=0) is None


def test_interval_of_a_difference_is_that_of_two_independent_sides() -> None:
    rng = np.random.default_rng(3)
    before, after = rng.normal(0, 1, 30).tolist(), rng.normal(1, 2, 30).tolist()
    value = difference({"a": before}, {"a": after}, seed=0)
    assert value is not None
    half = 1.96 * (np.var(before) / 30 + np.var(after) / 30) ** 0.5
    assert value.interval == pytest.approx((value.point - half, value.point + half), abs=0.1)

"""Goals: which runs rank before which, and what is said of them."""

import math

import msgspec
import pytest

from redline.errors import UserError
from redline.tune.goals import Curve, Goal, RunResult, Verdict, parse_goal


def curve_of(returns: list[float], *, window: int, target: float | None = None) -> Curve:
    curve = Curve(window, target)
    for place, value in enumerate(returns, start=1):
        curve.add_episode({"role": "actor", "return": value, "steps": 10 * place, "time_s": 6.0 * place})
    return curve


def reached(steps: int, minutes: float = 1.0, seed: int = 1) -> RunResult:
    return RunResult(seed=seed, run="", reached_steps=steps, reached_minutes=minutes, best_mean_return=20.0)


def missed(best: float | None, seed: int = 1, failure: str = "") -> RunResult:
    return RunResult(seed=seed, run="", best_mean_return=best, mean_return=best, failure=failure)


def test_a_target_is_reached_by_the_mean_of_a_whole_window() -> None:
    curve = curve_of([9.0, 9.0, 3.0, 9.0, 9.0], window=3, target=7.0)
    # 9 and 9 are no window yet; then (9+9+3)/3 = 7
    assert curve.reached == (30, 18.0, 7.0)
    assert curve.mean == 7.0
    assert curve.best_mean == 7.0


def test_the_mean_at_a_point_is_the_newest_by_then() -> None:
    curve = curve_of([1.0, 2.0, 3.0, 4.0], window=1)  # at steps 10 … 40, after 6 … 24 s
    assert [curve.mean_at(steps=steps) for steps in (10, 19, 20, 1_000)] == [1.0, 1.0, 2.0, 4.0]
    assert [curve.mean_at(time_s=time_s) for time_s in (6.0, 17.9, 18.0, 99.0)] == [1.0, 2.0, 3.0, 4.0]
    assert curve.mean_at(steps=5) == 1.0  # the first episode was a long one
    assert Curve(1, None).mean_at(steps=5) is None


def test_evaluations_and_foreign_rows_are_not_part_of_the_curve() -> None:
    curve = curve_of([1.0], window=1)
    curve.add_episode({"role": "greedy", "return": 21.0, "steps": 900, "time_s": 9.0})
    curve.add_episode({"role": "actor", "return": None, "steps": 900})
    curve.add_episode({"role": "actor", "return": "many", "steps": 900})
    assert (curve.result(seed=1, run="").episodes, curve.mean, curve.steps) == (1, 1.0, 10)


def test_whoever_misses_the_return_ranks_behind_all_who_reach_it_by_the_best_mean() -> None:
    goal = parse_goal("steps-to-return:18")
    settings = [
        [reached(1_000), reached(2_000)],
        [reached(5_000_000), reached(5_000_000)],
        [reached(10), missed(17.99)],
        [reached(10), missed(3.0)],
        [missed(-20.0), missed(-20.0)],
        [missed(None, failure="killed"), reached(10)],
    ]
    scores = [goal.score(results) for results in settings]
    assert scores == sorted(scores, reverse=True)
    assert len(set(scores)) == len(scores)
    assert scores[1] > 0 > scores[2]
    assert scores[-1] == -math.inf


def test_a_return_at_a_time_counts_by_the_mean_over_seeds() -> None:
    goal = parse_goal("return-at-minutes")
    assert goal.score([missed(10.0), missed(20.0)]) == 15.0
    assert goal.score([missed(10.0), missed(20.0, failure="killed")]) == -math.inf


def test_a_run_that_failed_after_it_reached_the_return_has_not_reached_it() -> None:
    goal = parse_goal("minutes-to-return:18")
    failed = RunResult(seed=1, run="", reached_minutes=0.1, best_mean_return=20.0, failure="killed")
    assert goal.score([failed]) < 0
    assert goal.describe([failed]) == "18 not reached, best 20.0"


def test_values_are_told_in_the_goals_unit() -> None:
    assert parse_goal("steps-to-return:400").describe([reached(1_000), reached(3_000)]) == "2,000 steps"
    assert parse_goal("minutes-to-return:18").describe([reached(1, minutes=1.5)]) == "1.50 min"
    assert parse_goal("return-at-steps:5_000").describe([missed(-20.5)]) == "−20.5"
    assert parse_goal("steps-to-return:18").describe([reached(5), missed(3.0)]) == "1 of 2 reached 18, best 11.5"


def test_goals_are_read_as_they_are_written() -> None:
    for text in ("minutes-to-return:18", "steps-to-return:-120", "return-at-minutes", "return-at-steps:100000"):
        assert str(parse_goal(text)) == text
    assert parse_goal("return-at-steps:100_000") == Goal("return-at-steps", 100_000.0)
    assert parse_goal("return-at-steps:100_000").max_steps == 100_000


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("steps", "unknown goal 'steps'"),
        ("minutes-to-retrun:18", "did you mean minutes-to-return"),
        ("minutes-to-return", "needs a number: --goal minutes-to-return:18"),
        ("steps-to-return:nan", "no number that can be reached"),
        ("return-at-steps:0", "no number that can be reached"),
        ("return-at-steps:1.5", "no number that can be reached"),
        ("return-at-minutes:8", "those of --minutes-per-trial"),
    ],
)
def test_bad_goals_get_one_line(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as refusal:
        parse_goal(text)
    assert "\n" not in str(refusal.value)


def test_a_result_survives_its_row() -> None:
    result = reached(1_000)
    assert RunResult.from_row(result.row()) == result
    with pytest.raises(msgspec.ValidationError):
        RunResult.from_row(["not", "a", "row"])


def test_a_check_of_defaults_that_won_has_each_run_once() -> None:
    runs = (RunResult(seed=2_000_000, run="check/default", mean_return=7.0),)
    goal = parse_goal("return-at-minutes")
    won = Verdict(trial=0, settings={}, winner=runs, default=runs, is_default=True)
    assert won.runs() == [("default", runs[0])]
    assert won.describe(goal) == "winner 7.0, default 7.0: the search found nothing better than the defaults"
    other = Verdict(trial=1, settings={}, winner=runs, default=runs)
    assert other.runs() == [("winner", runs[0]), ("default", runs[0])]
    assert other.describe(goal) == "winner 7.0, default 7.0: the winner is not better"

"""Solved: when evaluations fall due, what confirms them, and how far away the target seems."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from whole_runs import UNWATCHED

from redline.algorithms.named.dqn import DQN, DQN_CLASSIC
from redline.algorithms.named.ppo import PPO, PPO_CLASSIC
from redline.envs.config import EnvConfig
from redline.errors import UserError
from redline.exploration import Greedy, Sampled
from redline.jsonl import read_records
from redline.runtime import evaluation, session
from redline.runtime.actor import Episode, Player, StoppedWhileEvaluatingError
from redline.runtime.config import SOLVED, Job, Limits
from redline.runtime.counters import Counters, Scores, counters_from_json, counters_to_json
from redline.runtime.evaluation import (
    CONFIRMING_EPISODES,
    NumberedEvaluation,
    acting,
    evaluation_is_due,
    projected_s,
    record_evaluation,
    way_done,
)
from redline.runtime.gauges import NoDisplay
from redline.runtime.launch import start_run
from redline.runtime.session import Outcome

TARGET = 18.0
DQN_JOB = Job(algorithm=DQN, limits=Limits(target_eval_return=TARGET))


def scores_after(returns: Sequence[float], *, interval_s: float = 1.0) -> Scores:
    scores = Scores()
    for place, value in enumerate(returns, start=1):
        scores.add(value, time_s=place * interval_s)
    return scores


def test_values_are_evaluated_greedily_and_policies_by_draws() -> None:
    limits = Limits(target_eval_return=TARGET)
    assert acting(Job(algorithm=DQN, limits=limits)) == (Greedy(), 0.0)
    assert acting(Job(algorithm=PPO, limits=limits)) == (Sampled(), 0.0)


def test_without_a_target_evaluations_act_as_the_paper_says() -> None:
    assert acting(Job(algorithm=DQN)) == (Greedy(), 0.05)
    assert acting(Job(algorithm=PPO)) == (Greedy(), 0.0)


def take(scores: Scores, mean: float) -> None:
    """Take games that were to confirm an evaluation that reached the target."""
    confirmation = NumberedEvaluation(2, 100, [Episode(0, mean, 10, 0, 0)], 1.0, is_confirmation=True)
    job = Job(limits=Limits(target_eval_return=TARGET))
    record_evaluation(confirmation, job=job, counters=Counters(), scores=scores, log=Mock())


@pytest.mark.parametrize(("mean", "expected"), [(16.99, False), (17.0, True), (21.0, True)])
def test_confirming_games_may_fall_short_by_a_point(mean: float, expected: bool) -> None:
    scores = Scores()
    take(scores, mean)
    assert Limits(target_eval_return=TARGET).is_solved(scores) is expected


def test_only_a_target_that_was_confirmed_is_solved() -> None:
    scores = Scores()
    take(scores, 16.8)
    assert not Limits(target_eval_return=16.0).is_solved(scores)  # no evaluation was held against that one
    take(scores, 18.9)
    assert Limits(target_eval_return=18.0).is_solved(scores)
    assert not Limits(target_eval_return=18.5).is_solved(scores)
    assert not Limits().is_solved(scores)


def test_the_way_to_the_target_begins_with_the_first_ten_episodes() -> None:
    assert way_done(scores_after([-20.0] * 9), TARGET) is None
    assert way_done(scores_after([-20.0] * 10), TARGET) == 0.0
    assert way_done(scores_after([-20.0] * 10 + [-1.0] * 10), TARGET) == 0.5
    assert way_done(scores_after([20.0] * 10), TARGET) == 1.0  # there from the start


def test_one_is_due_whenever_a_multiple_of_the_interval_was_passed_since_the_newest() -> None:
    def is_due(counters: Counters, every_steps: int) -> bool:
        return evaluation_is_due(Job(evaluate_every_steps=every_steps), counters, Scores(), expected_s=1.0)

    due_at, counters = [], Counters()
    for counters.steps in range(0, 1_001, 8):
        if is_due(counters, 250):
            due_at.append(counters.steps)
            counters.evaluated_steps = counters.steps
    assert due_at == [256, 504, 752, 1_000]
    assert is_due(Counters(steps=5_000), 1_000)  # switched on by a resume
    assert not is_due(Counters(steps=5_000), 0)


def test_either_the_steps_or_the_target_make_one_due() -> None:
    near, late = scores_after([-20.0] * 10 + [18.0] * 10), Counters(steps=100, time_s=100.0)

    def is_due(expected_s: float, **settings: Any) -> bool:
        return evaluation_is_due(Job(algorithm=DQN, **settings), late, near, expected_s=expected_s)

    assert not is_due(1.0)
    assert is_due(1.0, limits=Limits(target_eval_return=TARGET))
    assert not is_due(60.0, limits=Limits(target_eval_return=TARGET))  # too long for its share of the time
    assert is_due(60.0, limits=Limits(target_eval_return=TARGET), evaluate_every_steps=100)


def test_evaluations_take_a_tenth_of_the_time_at_most() -> None:
    scores = scores_after([-20.0] * 10 + [18.0] * 10)

    def is_due(evaluation_s: float, expected_s: float) -> bool:
        counters = Counters(time_s=90.0, evaluation_s=evaluation_s)
        return evaluation_is_due(DQN_JOB, counters, scores, expected_s=expected_s)

    assert is_due(0.0, 10.0)  # 10 of 100 s
    assert not is_due(0.0, 10.5)
    assert is_due(5.0, 5.0)
    assert not is_due(5.0, 6.0)


def test_before_the_target_is_near_an_evaluation_comes_every_five_minutes() -> None:
    low = scores_after([-20.0] * 10 + [0.0] * 10)
    for time_s, expected in ((299.0, False), (300.0, True)):
        counters = Counters(time_s=time_s)
        assert evaluation_is_due(DQN_JOB, counters, low, expected_s=1.0) is expected
    late = Counters(time_s=500.0, evaluated_at_s=300.0)
    assert not evaluation_is_due(DQN_JOB, late, low, expected_s=1.0)


def test_near_the_target_a_run_learns_between_two_evaluations() -> None:
    near = scores_after([-20.0] * 10 + [18.0] * 10)
    for time_s, expected in ((529.0, False), (530.0, True)):  # three times as long as an evaluation takes
        counters = Counters(time_s=time_s, evaluated_at_s=500.0, evaluation_s=10.0)
        assert evaluation_is_due(DQN_JOB, counters, near, expected_s=10.0) is expected


def test_a_policy_that_is_evaluated_as_it_trains_must_be_nearer_than_one_that_explores() -> None:
    near = scores_after([-20.0] * 10 + [14.0] * 10)  # 89 % of the way
    counters = Counters(time_s=100.0)
    assert evaluation_is_due(DQN_JOB, counters, near, expected_s=1.0)
    assert not evaluation_is_due(replace(DQN_JOB, algorithm=PPO), counters, near, expected_s=1.0)


def test_a_line_is_extended_to_the_target() -> None:
    # one point more every ten seconds: after 300 s at 10, the target of 18 is 80 s away
    scores = scores_after([-20.0 + second / 10 for second in range(1, 301)])
    projected = projected_s(scores, target=TARGET, now_s=300.0)
    assert projected == pytest.approx(80.0)


@pytest.mark.parametrize("newest", [-20.0, -15.5])
def test_nothing_is_projected_before_the_returns_rise(newest: float) -> None:
    scores = scores_after([-20.0] * 50 + [newest] * 10)  # 12 % of the way at most
    assert projected_s(scores, target=TARGET, now_s=60.0) is None


def test_nothing_is_projected_while_the_returns_fall() -> None:
    scores = scores_after([-20.0] * 10 + [10.0 - second / 10 for second in range(50)])
    assert projected_s(scores, target=TARGET, now_s=60.0) is None


def test_nothing_is_projected_on_a_plateau() -> None:
    scores = scores_after([-20.0] * 10 + [17.0] * 300)
    assert projected_s(scores, target=TARGET, now_s=310.0) is None


def test_what_solved_goes_by_survives_a_checkpoint() -> None:
    counters, scores = Counters(evaluation_s=3.0, elapsed_s=90.0, solved_s=70.0), scores_after([1.0] * 12)
    take(scores, 17.5)
    again, scores_again = counters_from_json(counters_to_json(counters, scores))
    assert again == counters
    assert (scores_again.confirmed_return, scores_again.solved_target, scores_again.first_returns) == (
        17.5,
        18.0,
        [1.0] * 10,
    )


@pytest.mark.parametrize("target", [float("nan"), float("inf")])
def test_a_target_is_a_finite_number(target: float) -> None:
    with pytest.raises(UserError, match="target-eval-return"):
        Limits(target_eval_return=target)


def train(log_dir: Path, target: float, **changes: object) -> Outcome:
    env = EnvConfig("CartPole-v1", stack=1, skip=1)
    limits = Limits(max_steps=6_000, target_eval_return=target)
    job = Job(monitor=UNWATCHED, env=env, limits=limits, log_dir=log_dir, num_envs=4)
    with start_run(replace(job, **changes), "test", NoDisplay()) as run:  # type: ignore[arg-type]
        return run.train(lambda: None)


def evaluations(run: Path) -> list[tuple[int, str]]:
    rows = read_records(run / "events.jsonl")
    return [(row["episodes"], row["how"]) for row in rows if row["event"] == "evaluation"]


def test_a_run_ends_when_further_games_confirm_its_evaluation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "EXPECTED_S", 0.01)  # so that the first comes within the first second
    outcome = train(tmp_path, 5.0, algorithm=PPO_CLASSIC)  # anybody holds the pole for five steps
    assert outcome.reason == SOLVED
    assert outcome.solved is not None
    assert evaluations(outcome.run) == [(10, "sampled"), (30, "sampled")]
    assert outcome.solved.mean_return >= 4.0
    assert outcome.solved.argmax_return is not None
    assert outcome.solved.elapsed_s > outcome.gauges.time_s  # starting and evaluating count too


def test_games_that_confirm_an_evaluation_are_no_part_of_its_share_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock_s, play = 0.0, Player.play

    def play_a_second_each(player: Player, episodes: int, **settings: Any) -> list[Episode]:
        nonlocal clock_s
        clock_s += episodes
        return play(player, episodes, **settings)

    monkeypatch.setattr(session, "EXPECTED_S", 0.01)
    monkeypatch.setattr(evaluation, "time", SimpleNamespace(monotonic=lambda: clock_s))
    monkeypatch.setattr(Player, "play", play_a_second_each)
    outcome = train(tmp_path, 5.0, algorithm=PPO_CLASSIC)
    assert [episodes for episodes, _ in evaluations(outcome.run)] == [10, 30]
    assert outcome.checkpoint is not None
    state = json.loads((outcome.checkpoint / "state.json").read_text())
    assert state["counters"]["evaluation_s"] == pytest.approx(10.0, abs=5.0)  # and what it takes to load weights


def test_an_evaluation_whose_confirming_games_were_dropped_is_due_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = Player.play

    def drop_those_that_confirm(player: Player, episodes: int, **settings: Any) -> list[Episode]:
        if episodes == CONFIRMING_EPISODES:
            raise StoppedWhileEvaluatingError("SIGINT")
        return play(player, episodes, **settings)

    monkeypatch.setattr(session, "EXPECTED_S", 0.01)
    monkeypatch.setattr(Player, "play", drop_those_that_confirm)
    outcome = train(tmp_path, 5.0, algorithm=PPO_CLASSIC)
    assert outcome.solved is None
    assert outcome.checkpoint is not None
    counters = json.loads((outcome.checkpoint / "state.json").read_text())["counters"]
    assert counters["evaluations"] == len(evaluations(outcome.run)) >= 1
    assert counters["evaluated_steps"] > 0
    assert counters["evaluated_at_s"] == 0.0


def test_a_run_that_misses_its_target_is_not_solved(tmp_path: Path) -> None:
    outcome = train(tmp_path, 501.0, algorithm=DQN_CLASSIC)  # nobody can: an episode ends after 500 steps
    assert outcome.reason == "max-steps 6,000 reached"
    assert outcome.solved is None


@pytest.mark.slow
def test_an_evaluator_beside_training_ends_the_run_too(tmp_path: Path) -> None:
    outcome = train(tmp_path, 5.0, algorithm=DQN_CLASSIC, topology="async", limits=Limits(target_eval_return=5.0))
    assert outcome.reason == SOLVED
    assert outcome.solved is not None
    assert evaluations(outcome.run)[-2:] == [(10, "greedy, ε = 0"), (30, "greedy, ε = 0")]

"""A run that evaluates itself while it trains: rows and events tell it, and nothing else notices."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from whole_runs import UNWATCHED, final_bytes, play

from redline.algorithms.catalog import ALGORITHMS
from redline.algorithms.named.dqn import DQN, DQN_CLASSIC
from redline.algorithms.on_policy import OnPolicy
from redline.algorithms.q_learning import QLearning
from redline.envs.config import EnvConfig
from redline.jsonl import Row, read_records
from redline.networks import Small
from redline.replay import ReplayConfig
from redline.runtime.config import ActorConfig, EvaluatorConfig, Job, LearnerConfig, Limits
from redline.runtime.launch import resume_run, start_run
from redline.runtime.resuming import read_run

CARTPOLE = EnvConfig("CartPole-v1", stack=1, skip=1)
SHORT = replace(DQN_CLASSIC, warmup_steps=100, replay=ReplayConfig(capacity=1_000), samples_per_step=8.0)


def cartpole(log_dir: Path, algorithm: QLearning | OnPolicy = SHORT, **changes: Any) -> Job:
    job = Job(
        monitor=UNWATCHED, env=CARTPOLE, algorithm=algorithm, log_dir=log_dir, num_envs=4, limits=Limits(max_steps=800)
    )
    job = replace(job, evaluate_every_steps=200, evaluator=EvaluatorConfig(episodes=3, envs=2))
    return replace(job, **changes)


def shortened(algorithm: QLearning | OnPolicy) -> QLearning | OnPolicy:
    if isinstance(algorithm, OnPolicy):
        return replace(algorithm, rollout_steps=7, batch_size=14)
    return replace(algorithm, replay=ReplayConfig(capacity=400), batch_size=32, samples_per_step=4.0, warmup_steps=100)


def rows_of(run: Path, role: str) -> list[Row]:
    return [row for row in read_records(run / "episodes.jsonl") if row["role"] == role]


def timeless(rows: list[Row]) -> list[Row]:
    return [{key: value for key, value in row.items() if key not in ("time_s", "unix_s")} for row in rows]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_training_is_bit_for_bit_what_it_would_be_without(name: str, tmp_path: Path, listener: Any) -> None:
    job = cartpole(tmp_path, shortened(ALGORITHMS[name].classic.algorithm))
    watched = play(start_run(job, name, listener))
    alone = play(start_run(replace(job, evaluate_every_steps=0), name, listener))
    assert final_bytes(watched) == final_bytes(alone)
    assert timeless(rows_of(watched, "actor")) == timeless(rows_of(alone, "actor"))
    assert len(rows_of(watched, "greedy")) == 4 * 3
    assert rows_of(alone, "greedy") == []


def test_pictures_on_several_threads_are_learnt_alike_too(tmp_path: Path, listener: Any) -> None:
    job = Job(
        monitor=UNWATCHED,
        env=EnvConfig("pong", size=40, max_episode_frames=200),
        algorithm=replace(DQN, network=Small(), warmup_steps=60, replay=ReplayConfig(capacity=400)),
        log_dir=tmp_path,
        num_envs=2,
        limits=Limits(max_steps=160),
        learner=LearnerConfig(threads=2),
        actor=ActorConfig(threads=1),
        evaluator=EvaluatorConfig(episodes=2),
    )
    watched = play(start_run(replace(job, evaluate_every_steps=50), "dqn", listener))
    alone = play(start_run(job, "dqn", listener))
    assert final_bytes(watched) == final_bytes(alone)
    rows = rows_of(watched, "greedy")
    assert [row["steps"] for row in rows] == [50, 50, 100, 100, 150, 150]
    assert all(row["length_steps"] * 4 <= 200 for row in rows)


def test_rows_notes_and_events_tell_each_evaluation(tmp_path: Path, listener: Any) -> None:
    run = play(start_run(cartpole(tmp_path), "dqn", listener))
    rows = rows_of(run, "greedy")
    assert [(row["evaluation"], row["steps"], row["weights_steps"]) for row in rows] == [
        (number, 200 * number, 200 * number) for number in (1, 2, 3, 4) for _ in range(3)
    ]
    seeds = [row["seed"] for row in read_records(run / "episodes.jsonl")]
    assert len(set(seeds)) == len(seeds)  # no game is played twice, by the actor or greedily
    events = [row for row in read_records(run / "events.jsonl") if row["event"] == "evaluation"]
    last = [row["return"] for row in rows[-3:]]
    assert (events[-1]["number"], events[-1]["episodes"]) == (4, 3)
    assert events[-1]["mean_return"] == pytest.approx(sum(last) / 3)
    assert (events[-1]["min_return"], events[-1]["max_return"]) == (min(last), max(last))
    notes = [note for note in listener.notes if note.startswith("evaluation")]
    assert len(notes) == 4
    assert f"evaluation 4 with the weights of step 800: mean {sum(last) / 3:.2f}, min {min(last):g}, " in notes[-1]
    assert (listener.readings[-1].greedy_return, listener.readings[-1].greedy_at_steps) == (sum(last) / 3, 800)


def test_greedy_episodes_count_for_nothing_else(tmp_path: Path, listener: Any) -> None:
    job = cartpole(tmp_path, limits=Limits(max_episodes=20))
    session = start_run(job, "dqn", listener)
    run = play(session)
    trained = rows_of(run, "actor")
    assert len(rows_of(run, "greedy")) >= 3
    assert session.trainer.counters.episodes == len(trained) < 25
    assert list(session.trainer.scores.recent_returns) == [row["return"] for row in trained]
    assert session.trainer.scores.best_return == max(row["return"] for row in trained)
    assert listener.readings[-1].mean_return_100 == pytest.approx(sum(r["return"] for r in trained) / len(trained))


@pytest.mark.parametrize("stop_at", [196, 200, 204, 500])
def test_a_resume_neither_repeats_nor_skips_one(stop_at: int, tmp_path: Path, listener: Any) -> None:
    whole = play(start_run(cartpole(tmp_path), "dqn", listener))
    run = play(start_run(cartpole(tmp_path), "dqn", listener), until_steps=stop_at)
    saved = read_run(run)
    play(resume_run(saved, saved.job, listener))
    dropped = stop_at == 200  # the request came before the evaluation: it is played one vector step later
    expected = timeless(rows_of(whole, "greedy"))
    found = timeless(rows_of(run, "greedy"))
    if dropped:
        assert [row["steps"] for row in found[:3]] == [204, 204, 204]
        expected, found = expected[3:], found[3:]
    assert found == expected
    assert final_bytes(run) == final_bytes(whole)


def test_a_stop_during_an_evaluation_drops_it_and_a_killed_resume_plays_it_once(tmp_path: Path, listener: Any) -> None:
    session = start_run(cartpole(tmp_path, evaluator=EvaluatorConfig(episodes=10_000)), "dqn", listener)
    asked_while_evaluating = []

    def requested_stop() -> str | None:
        if session.trainer.counters.steps == 200:
            asked_while_evaluating.append(time.monotonic())
        return "SIGINT" if len(asked_while_evaluating) > 50 else None

    with session:
        session.train(requested_stop)
    run = session.run.path
    assert any("evaluation 1 dropped: SIGINT after" in note for note in listener.notes)
    assert (run / "checkpoints" / "200").is_dir()
    assert rows_of(run, "greedy") == []
    assert [row["event"] for row in read_records(run / "events.jsonl")][-2:] == ["stop", "checkpoint"]
    saved = read_run(run)
    job = replace(saved.job, evaluator=EvaluatorConfig(episodes=3))
    session = resume_run(saved, job, listener)
    with session:  # killed after the evaluation and before any checkpoint
        session.checkpoint = lambda *, is_last: None  # type: ignore[method-assign]
        session.train(lambda: "SIGTERM" if session.trainer.counters.steps >= 300 else None)
    assert len(rows_of(run, "greedy")) == 3
    saved = read_run(run)
    play(resume_run(saved, saved.job, listener))
    rows = rows_of(run, "greedy")
    assert [row["evaluation"] for row in rows] == [number for number in (1, 2, 3, 4) for _ in range(3)]
    assert [row["steps"] for row in rows[::3]] == [204, 400, 600, 800]


def test_the_newest_evaluation_is_shown_again_after_a_resume(tmp_path: Path, listener: Any) -> None:
    run = play(start_run(cartpole(tmp_path), "dqn", listener), until_steps=300)
    shown = listener.readings[-1]
    saved = read_run(run)
    play(resume_run(saved, saved.job, listener), until_steps=320)
    again = listener.readings[-1]
    assert shown.greedy_return is not None
    assert (again.greedy_return, again.greedy_at_steps) == (shown.greedy_return, 200)


def test_the_time_of_evaluations_counts_towards_the_minutes_and_nothing_else(
    tmp_path: Path, listener: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from redline.envs import classic

    begun_s, slow = time.monotonic(), classic.ClassicVectorEnv.reset

    def slow_reset(env: Any) -> Any:
        time.sleep(0.4 if env.num_envs == 2 else 0.0)  # that of the evaluations
        return slow(env)

    monkeypatch.setattr(classic.ClassicVectorEnv, "reset", slow_reset)
    job = cartpole(tmp_path, limits=Limits(max_steps=None, max_minutes=1.5 / 60))
    session = start_run(job, "dqn", listener)
    run = play(session)
    passed_s = time.monotonic() - begun_s
    counters = session.trainer.counters
    assert 1.2 < passed_s < 60.0
    assert counters.time_s < passed_s - 0.4 * counters.evaluations
    assert counters.evaluations >= 1
    assert listener.readings[-1].steps_per_s == pytest.approx(counters.steps / counters.time_s, rel=0.05)
    assert len(rows_of(run, "greedy")) == 3 * counters.evaluations


def test_the_minutes_end_an_evaluation_and_the_steps_do_not(tmp_path: Path, listener: Any) -> None:
    endless = EvaluatorConfig(episodes=100_000)
    session = start_run(cartpole(tmp_path, evaluator=endless, limits=Limits(max_minutes=0.005)), "dqn", listener)
    with session:
        assert session.train(lambda: None).reason == "max-minutes 0.005 reached"
    assert any("evaluation 1 dropped: max-minutes" in note for note in listener.notes)
    last = start_run(cartpole(tmp_path, limits=Limits(max_steps=200)), "dqn", listener)
    assert len(rows_of(play(last), "greedy")) == 3

"""The batteries: a finished run is kept and not repeated, a failed one loses nothing, goals are judged as stated."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import algorithms_learning
import algorithms_pong_speed
import battery
import run_reading
from battery import Training, as_flags, record_name, train_all
from learning_tasks import TASKS
from recording import make_record
from redline.algorithms import catalog
from redline.algorithms.catalog import ALGORITHMS
from redline.cli.flags import default_job, parse_train
from redline.runtime.config import to_settings
from run_reading import Point

TRAININGS = [Training("task", name, 1, ("--max-steps", "8")) for name in ("dqn", "ppo")]
SUMMARY = {"steps": 1_000, "time_s": 4.0, "updates": 10, "episodes": 120, "samples_per_step": 8.0}


def seed_row(algorithm: str, seed: int, first_steps: int | None) -> dict[str, Any]:
    points = [] if first_steps is None else [Point(first_steps, 1.0, 401.0)]
    row = algorithms_learning.read_result(TASKS["cartpole"], SUMMARY, points)
    return {**Training("task", algorithm, seed, ()).row(), **row}


def test_a_finished_run_is_not_repeated_and_a_failed_one_is(tmp_path: Path) -> None:
    trained: list[str] = []

    def measure(training: Training, folder: Path) -> dict[str, Any]:
        trained.append(training.algorithm)
        if training.algorithm == "ppo" and trained.count("ppo") == 1:
            raise RuntimeError("redline train ended with 1: /somewhere/said.log")
        return {"steps": len(trained)}

    rows_file = tmp_path / "rows.jsonl"
    first = train_all(TRAININGS, measure, rows_file=rows_file)
    assert first[0]["steps"] == 1
    assert first[1]["error"] == "redline train ended with 1"
    second = train_all(TRAININGS, measure, rows_file=rows_file, parallel=2)
    assert trained == ["dqn", "ppo", "ppo"]
    assert [row["steps"] for row in second] == [1, 3]


def test_other_flags_make_another_run(tmp_path: Path) -> None:
    trained: list[Training] = []

    def measure(training: Training, folder: Path) -> dict[str, Any]:
        trained.append(training)
        return {}

    longer = replace(TRAININGS[0], flags=("--max-steps", "9"))
    for training in (TRAININGS[0], longer, TRAININGS[0]):
        train_all([training], measure, rows_file=tmp_path / "rows.jsonl")
    assert trained == [TRAININGS[0], longer]


def test_runs_of_another_commit_count_only_where_any_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    commits = []

    def measure(training: Training, folder: Path) -> dict[str, Any]:
        commits.append(battery.commit())
        return {}

    for commit in ("first", "second"):
        monkeypatch.setattr(battery, "commit", lambda commit=commit: commit)
        for any_commit in (True, False, False):
            train_all(TRAININGS[:1], measure, rows_file=tmp_path / "rows.jsonl", any_commit=any_commit)
    assert commits == ["first", "second"]


def test_other_defaults_make_another_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trained: list[Training] = []

    def measure(training: Training, folder: Path) -> dict[str, Any]:
        trained.append(training)
        return {"trained": len(trained)}

    ppo, others = ALGORITHMS["ppo"], {name: entry for name, entry in ALGORITHMS.items() if name != "ppo"}
    longer = replace(ppo, atari=replace(ppo.atari, algorithm=replace(ppo.atari.algorithm, epochs=8)))
    rows_file = tmp_path / "rows.jsonl"
    train_all(TRAININGS, measure, rows_file=rows_file)
    monkeypatch.setattr(catalog, "ALGORITHMS", others | {"ppo": longer})
    for _ in range(2):
        rows = train_all(TRAININGS, measure, rows_file=rows_file)
        assert [row["trained"] for row in rows] == [1, 3]


def test_an_interrupted_training_is_no_result(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(battery, "run_redline", lambda arguments, log: {"reason": "SIGINT"})
    with pytest.raises(RuntimeError, match="SIGINT"):
        battery.train(TRAININGS[0], tmp_path)


def test_a_record_of_some_algorithms_does_not_stand_for_all() -> None:
    assert record_name("algorithms-catch", list(ALGORITHMS)) == "algorithms-catch"
    assert record_name("algorithms-lunarlander-v3", ["ppo", "dqn"], whole=["dqn", "ppo"]) == "algorithms-lunarlander-v3"
    assert record_name("algorithms-catch", ["dqn", "n-step-dqn"]) == "algorithms-catch-dqn-n-step-dqn"


@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_redline_understands_the_flags_of_every_training(task: str, algorithm: str) -> None:
    training = algorithms_learning.make_trainings(TASKS[task], [algorithm])[0]
    flags = parse_train(["--algo", algorithm, "--seed", str(training.seed), *training.flags])
    assert flags.job.limits.max_steps == TASKS[task].max_steps
    assert flags.job.limits.target_return == TASKS[task].target_return
    assert flags.job.algorithm.warmup_steps <= 2_000


def test_what_is_reached_beyond_the_limit_does_not_count() -> None:
    points = [Point(149_000, 1.0, 399.0), Point(150_008, 1.1, 401.0)]
    row = algorithms_learning.read_result(TASKS["cartpole"], SUMMARY, points)
    assert (row["passed"], row["first_reached_steps"]) == (False, None)
    assert (row["best_mean_return_100"], row["steps_per_s"]) == (399.0, 250.0)


def test_two_of_three_seeds_pass_and_one_does_not() -> None:
    rows = [seed_row("dqn", seed, steps) for seed, steps in enumerate((90_000, None, 60_000), start=1)]
    rows += [seed_row("ppo", seed, steps) for seed, steps in enumerate((50_000, None), start=1)]
    rows += [{**Training("task", "ppo", 3, ()).row(), "error": "redline train ended with 1"}]
    found = algorithms_learning.measurement(TASKS["lunarlander"], rows, parallel=1)  # which asks for two of three
    assert found.headline == "1 of 2 algorithms pass (not ppo)"
    assert found.passed is False
    dqn, ppo = found.summary["algorithms"]["dqn"], found.summary["algorithms"]["ppo"]
    assert (dqn["seeds"], dqn["seeds_passed"], dqn["first_reached_steps"]) == (3, 2, 75_000)
    assert (ppo["seeds"], ppo["seeds_passed"], ppo["best_mean_return_100"]) == (3, 1, 401.0)
    make_record(found, argv=["x.py"], unix_s=0.0)


@pytest.mark.parametrize(("loss", "updates", "passed"), [(0.1, 9, True), (None, 9, False), (0.1, 0, False)])
def test_a_speed_needs_updates_and_a_loss(loss: float | None, updates: int, passed: bool) -> None:
    extra = {"loss": loss, "learning_steps_per_s": 163.0, "mean_return_100": -20.5, "rss_bytes": 1}
    row = algorithms_pong_speed.read_result(SUMMARY | extra | {"updates": updates})
    rows = [{**TRAININGS[0].row(), **row, "busy_percent_before": 60.0}]
    found = algorithms_pong_speed.measurement(rows, max_steps=20_000)
    assert found.passed is passed
    assert found.summary["algorithms"]["dqn"]["steps_per_s"] == 163.0
    assert found.summary["machine_was_quiet"] is False


@pytest.mark.parametrize(("algorithm", "warmup_steps"), [("rainbow", 16_000), ("dqn", 16_000), ("ppo", 0)])
def test_a_warmup_leaves_a_fifth_of_a_short_run_to_learn_in(algorithm: str, warmup_steps: int) -> None:
    training = algorithms_pong_speed.make_training(algorithm, max_steps=20_000)
    assert ("--warmup-steps" in training.flags) is (algorithm != "ppo")
    assert parse_train(["--algo", algorithm, *training.flags]).job.algorithm.warmup_steps == warmup_steps


def facts_of(*flags: str) -> dict[str, Any]:
    parsed = parse_train([*flags])
    return {"algorithm": parsed.algo, "config": to_settings(parsed.job), "commit": None, "host": {}}


def test_the_settings_of_a_run_are_told_where_they_differ() -> None:
    flags = ["--env", "pong", "--algo", "ppo", "--network", "small", "--num-envs", "16", "--returns.no-clip-rewards"]
    settings = run_reading.changed_settings(facts_of(*flags, "--log-dir", "/somewhere"))
    assert settings == {"network": "small", "num_envs": 16, "returns.clip_rewards": False}
    assert run_reading.typed(settings) == "--num-envs 16 --network small --returns.no-clip-rewards"


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_defaults_are_no_departure(algorithm: str) -> None:
    config = to_settings(default_job(algorithm, "pong"))
    assert run_reading.changed_settings({"algorithm": algorithm, "config": config}) == {}


def test_flags_are_typed_in_pairs() -> None:
    assert as_flags({"--env": "pong", "--max-steps": 8}) == ("--env", "pong", "--max-steps", "8")

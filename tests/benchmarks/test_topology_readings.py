"""The topologies: what is read out of the records of asynchronous and inline runs, and how it is judged."""

from pathlib import Path
from typing import Any

import pytest

import topologies_learning
import topologies_speed
from learning_tasks import TASKS
from recording import make_record
from redline.cli.flags import parse_train
from redline_process import find_run, find_window, median_waiting, read_window, who_waits
from run_reading import Point

NO_FLAGS: dict[str, list[str]] = {"both": [], "async": [], "inline": []}


def reading(time_s: float, steps: int, updates: int, **more: Any) -> dict[str, Any]:
    row = {"time_s": time_s, "unix_s": 1_000.0 + time_s, "steps": steps, "updates": updates, "samples": 32 * updates}
    row |= {"cpu_percent": 150.0, "actor_weights_age_updates": 8.0, "roles": [], "samples_per_step": 8.0, "episodes": 0}
    row |= {"mean_return_100": None, "best_return": None, "warmup_steps_per_s": None}
    return row | more


def role(name: str, **waiting: float) -> dict[str, Any]:
    return {"role": name, "waiting": waiting, "rss_bytes": 50}


# Windows


def test_a_window_opens_after_warmup_and_settling_and_closes_when_it_is_long_enough() -> None:
    rows = [reading(5.0 * n, 100 * n, max(0, 25 * (n - 2))) for n in range(8)]
    found = find_window(rows, opens_at_steps=250, seconds=12.0)
    assert found is not None
    assert [row["time_s"] for row in found] == [15.0, 20.0, 25.0, 30.0]
    assert find_window(rows[:6], opens_at_steps=250, seconds=12.0) is None


def test_a_window_does_not_open_before_the_first_update() -> None:
    rows = [reading(5.0 * n, 100 * n, 0) for n in range(8)]
    assert find_window(rows, opens_at_steps=100, seconds=5.0) is None


def test_even_the_shortest_window_spans_two_readings() -> None:
    rows = [reading(0.0, 100, 1), reading(5.0, 200, 2)]
    assert find_window(rows, opens_at_steps=100, seconds=0.0) == rows


def test_a_window_is_read_from_differences_of_counters() -> None:
    row = read_window([reading(10.0, 1_000, 50), reading(20.0, 3_000, 550)])
    assert (row["steps_per_s"], row["updates_per_s"], row["samples_per_step"]) == (200.0, 50.0, 8.0)
    assert (row["first_step"], row["window_s"], row["weights_age_updates"]) == (1_000, 10.0, 8.0)


def test_waiting_is_the_median_over_readings_that_lie_wholly_in_the_window() -> None:
    early = [role("learner", actors=0.9), role("actor-0", learner=0.9), role("actor-1", learner=0.9)]
    late = [role("supervisor"), role("learner", actors=0.2), role("actor-0", learner=0.4), role("actor-1", envs=0.2)]
    rows = [reading(0.0, 0, 1, roles=early), reading(5.0, 100, 2, roles=early), reading(10.0, 200, 3, roles=late)]
    assert read_window(rows)["waiting"] == {"learner": {"actors": 0.2}, "actor": {"envs": 0.1, "learner": 0.2}}


def test_who_does_not_wait_in_half_of_the_windows_waits_for_half() -> None:
    found = median_waiting([{"learner": {"actors": 0.2}}, {}])
    assert found == {"learner": {"actors": 0.1}}
    assert who_waits({**found, "actor": {"learner": 0.004}}) == "learner waits for actors 10%"
    assert who_waits({}) == "nobody waits"


def test_two_run_directories_are_one_too_many(tmp_path: Path) -> None:
    assert find_run(tmp_path) is None
    for name in ("a", "b"):
        (tmp_path / "pong" / "dqn" / name).mkdir(parents=True)
        (tmp_path / "pong" / "dqn" / name / "run.json").touch()
    with pytest.raises(RuntimeError, match="2 run directories"):
        find_run(tmp_path)


# Speed in pairs


def pair(ratio: float, *, samples_per_step: float = 8.0) -> dict[str, Any]:
    side = {"samples_per_step": 8.0, "waiting": {"learner": {"actors": 0.25}}, "weights_age_updates": 12.0}
    ours = side | {"steps_per_s": 100.0 * ratio, "samples_per_step": samples_per_step}
    return {"async": ours, "inline": side | {"steps_per_s": 100.0}, "ratio": ratio}


@pytest.mark.parametrize(("ratios", "passed"), [((0.9, 0.96, 1.1), True), ((0.9, 0.94, 1.1), False)])
def test_the_median_ratio_decides(ratios: tuple[float, ...], passed: bool) -> None:
    found = topologies_speed.measurement("pong", [pair(ratio) for ratio in ratios], seconds=25.0, extra=NO_FLAGS)
    assert (found.passed, found.name) == (passed, "topologies-speed-pong")
    assert "learner waits for actors 25%" in found.learning
    assert "12.0 updates old" in found.learning
    make_record(found, argv=["x.py"], unix_s=0.0)


def test_a_side_that_learns_less_is_not_compared() -> None:
    pairs = [pair(1.5, samples_per_step=8.1), pair(1.5, samples_per_step=7.8)]
    found = topologies_speed.measurement("pong", pairs, seconds=25.0, extra=NO_FLAGS)
    assert found.passed is False
    assert "NOT the same" in found.learning


def test_other_flags_make_another_record() -> None:
    extra = {**NO_FLAGS, "async": ["--learner.threads", "2"]}
    found = topologies_speed.measurement("sleepy", [pair(3.0)], seconds=25.0, extra=extra)
    assert found.name == "topologies-speed-sleepy-changed"
    assert found.title.endswith("async with --learner.threads 2")
    assert found.config["async"].endswith("--learner.threads 2")
    assert found.passed is True


@pytest.mark.parametrize("case", topologies_speed.CASES)
def test_both_sides_train_the_same_but_for_the_topology(case: str) -> None:
    flags = {side: topologies_speed.CASES[case].flags_of(side, NO_FLAGS) for side in topologies_speed.TOPOLOGIES}
    ours, inline = (parse_train(flags[side]).job for side in ("async", "inline"))
    assert (ours.topology, inline.topology) == ("async", "inline")
    assert (ours.algorithm, ours.env, ours.num_envs) == (inline.algorithm, inline.env, inline.num_envs)
    assert ours.evaluator.every_minutes == 0.0


# Learning


@pytest.mark.parametrize("task", TASKS)
def test_every_seed_is_trained_in_both_topologies_with_the_same_settings(task: str) -> None:
    trainings = topologies_learning.make_trainings(TASKS[task])
    jobs = [parse_train(["--algo", training.algorithm, *training.flags]).job for training in trainings[:2]]
    assert [job.topology for job in jobs] == ["inline", "async"]
    assert jobs[0].algorithm == jobs[1].algorithm
    assert (trainings[0].seed, trainings[0].algorithm) == (trainings[1].seed, trainings[1].algorithm)


def trained(topology: str, seed: int, first_steps: int | None) -> dict[str, Any]:
    summary = {"steps": 1_000, "time_s": 4.0, "updates": 10, "episodes": 120, "samples_per_step": 32.0}
    points = [] if first_steps is None else [Point(first_steps, 1.0, 401.0)]
    row = topologies_learning.algorithms_learning.read_result(TASKS["cartpole"], summary, points)
    return {"seed": seed, "flags": ["--topology", topology], **row}


def test_both_topologies_must_reach_the_mark() -> None:
    rows = [trained("inline", seed, 60_000) for seed in (1, 2, 3)]
    rows += [trained("async", 1, 50_000), trained("async", 2, None)]
    failed = {"seed": 3, "flags": ["--topology", "async"], "error": "redline train ended with 1"}
    found = topologies_learning.measurement(TASKS["cartpole"], [*rows, failed], parallel=1)
    assert found.passed is False
    assert "async 1 of 3 seeds, first after 50,000 steps" in found.headline
    by_seed = found.summary["topologies"]["async"]["first_reached_steps_by_seed"]
    assert by_seed == {"1": 50_000, "2": None, "3": None}
    late = [trained("async", seed, 70_000) for seed in (2, 3)]
    found = topologies_learning.measurement(TASKS["cartpole"], [*rows[:-1], *late], parallel=1)
    assert (found.passed, found.name) == (True, "topologies-cartpole-v1")
    make_record(found, argv=["x.py"], unix_s=0.0)

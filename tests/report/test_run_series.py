"""The curves of a run, by numbers worked by hand."""

from pathlib import Path

import numpy as np
import pytest
from made_runs import T0, episode, event, facts, made_run, reading, sample, samples_of

from redline.report.run_series import Series, hardware_series, learning_curve, moving_means, speed_series


def test_a_learning_curve_is_the_mean_of_the_last_20(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", facts(), episodes=[episode(float(n), float(n)) for n in range(1, 31)])
    curve = learning_curve(run, "steps")
    assert curve.x == [100.0 * n for n in range(1, 31)]
    assert curve.y[:3] == [1.0, 1.5, 2.0]
    assert curve.y[-1] == pytest.approx(sum(range(11, 31)) / 20)
    assert learning_curve(run, "minutes").x[-1] == pytest.approx(0.5)
    assert learning_curve(run, "cpu_s") == Series([], [])


def test_an_evaluation_is_one_point_at_the_steps_of_its_weights(tmp_path: Path) -> None:
    greedy = {"role": "greedy", "weights_steps": 350}
    rows = [
        episode(1.0, 5.0),
        episode(4.0, 10.0, evaluation=1, **greedy),
        episode(4.0, 30.0, evaluation=1, lane=1, **greedy),
        episode(6.0, 50.0, evaluation=2, role="greedy"),
    ]
    run = made_run(tmp_path / "run", facts(), episodes=rows)
    assert learning_curve(run, "steps", "greedy") == Series([350.0, 600.0], [20.0, 50.0])
    assert learning_curve(run, "steps") == Series([100.0], [5.0])


def test_foreign_episodes_without_steps_are_placed_by_their_lengths(tmp_path: Path) -> None:
    rows = [{"unix_s": T0 + n, "return": 1.0, "length_steps": 5} for n in (60.0, 120.0)]
    run = made_run(tmp_path / "run", episodes=rows)
    assert learning_curve(run, "steps").x == [5.0, 10.0]
    assert learning_curve(run, "minutes").x == [0.0, 1.0]


def test_cpu_seconds_at_an_episode_lie_between_those_of_the_samples(tmp_path: Path) -> None:
    hardware = [sample(2.0, 2.0, cpu_s=1.0), sample(4.0, 2.0, cpu_s=5.0)]
    run = made_run(
        tmp_path / "run", facts(), hardware=hardware, episodes=[episode(at_s, 1.0) for at_s in (1.0, 3.5, 9.0)]
    )
    # half of the first second, 1 + ¾ of 4, all
    assert learning_curve(run, "cpu_s").x == [pytest.approx(0.5), pytest.approx(4.0), pytest.approx(5.0)]


def test_cpu_seconds_of_all_recordings_add_up(tmp_path: Path) -> None:
    first = [sample(second, cpu_s=2.0 * second) for second in (1.0, 2.0, 3.0)]
    # resumed after 100 s: elapsed_s and cpu_s begin anew
    second = [{**sample(100.0 + n), "elapsed_s": n, "cpu_s": 1.5 * n} for n in (1.0, 2.0)]
    run = made_run(tmp_path / "run", hardware=[*second, *first])
    spent = run.samples
    assert spent.total("cpu_s") == pytest.approx(6.0 + 3.0)
    times = [T0 + at_s for at_s in (-5.0, 2.5, 50.0, 100.5)]
    assert spent.spent("cpu_s", times) == pytest.approx(np.array([0.0, 5.0, 6.0, 6.75]))


def test_gpu_seconds_and_energy_are_integrals_over_all_gpus() -> None:
    hardware = [
        sample(2.0, 2.0, gpus=[{"index": 0, "utilisation_percent": 50.0, "power_w": 100.0}]),
        sample(
            3.0,
            1.0,
            gpus=[{"index": 0, "utilisation_percent": 100.0, "power_w": 200.0}, {"index": 1, "power_w": 30.0}],
        ),
        sample(5.0, 1.0),  # lost, and a second without a sample before
    ]
    spent = samples_of(hardware)
    assert spent.total("gpu_s") == pytest.approx(0.5 * 2 + 1.0)
    assert spent.total("energy_j") == pytest.approx(100 * 2 + 200 + 30)
    assert spent.power_s() == pytest.approx(3.0)
    assert spent.total("cpu_s") is None
    assert spent.spent("energy_j", [T0 + 2.5]) == pytest.approx(np.array([315.0]))


def test_a_day_between_two_parts_of_a_run_is_no_minute_of_it(tmp_path: Path) -> None:
    day = 86_400.0
    metrics = [reading(30.0), reading(60.0), {**reading(90.0), "unix_s": T0 + day + 30.0}]
    events = [event(0.0, "start"), event(60.0, "stop"), event(day, "resume"), event(day + 30.0, "stop")]
    run = made_run(tmp_path / "run", facts(), metrics=metrics, events=events)
    clock = run.clock
    assert clock.total_s == pytest.approx(90.0)
    assert clock.minutes(T0 + 0.5 * day) == pytest.approx(1.0)
    assert speed_series(run)["steps_per_s"] == Series([0.5, 1.0, 1.5], [100.0, 100.0, 100.0])


def test_the_shortest_stop_before_a_resume_is_a_pause(tmp_path: Path) -> None:
    metrics = [reading(30.0), {**reading(50.0), "unix_s": T0 + 58.0}]
    events = [event(30.5, "stop"), event(38.5, "resume"), event(39.0, "monitor-start"), event(58.0, "stop")]
    clock = made_run(tmp_path / "run", facts(), metrics=metrics, events=events).clock
    assert clock.pauses == ((T0 + 30.5, T0 + 38.5),)
    assert clock.total_s == pytest.approx(50.0)


def test_cpu_seconds_before_the_first_sample_that_is_left_do_not_count() -> None:
    told = [sample(float(n), cpu_s=2.0 * n, cpu_cores_used=2.0) for n in range(51, 101)]
    assert samples_of(told).total("cpu_s") == pytest.approx(100.0)
    bare = [sample(float(n), cpu_s=2.0 * n) for n in range(51, 101)]
    assert samples_of(bare).total("cpu_s") == pytest.approx(100.0)


def test_a_long_silence_without_a_resume_is_no_pause(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", facts(), metrics=[reading(30.0), reading(630.0)])
    clock = run.clock
    assert clock.total_s == pytest.approx(630.0)


def test_every_number_of_the_hardware_is_a_series(tmp_path: Path) -> None:
    hardware = [
        sample(60.0, core_busy=[0.5, 1.0], roles={"learner": {"rss_bytes": 7.0}}, pss_bytes=9.0),
        sample(120.0, core_busy=[0.25, 0.75], gpus=[{"index": 1, "name": "G", "power_w": 50.0}]),
    ]
    series = hardware_series(made_run(tmp_path / "run", hardware=hardware))
    assert set(series) == {"core_busy.0", "core_busy.1", "roles.learner.rss_bytes", "pss_bytes", "gpus.1.power_w"}
    # the first sample's second is the start
    assert series["core_busy.0"].x == pytest.approx([1 / 60, 1 + 1 / 60])
    assert series["core_busy.0"].y == [0.5, 0.25]
    assert series["gpus.1.power_w"].y == [50.0]


def test_moving_means_of_nothing_are_none() -> None:
    assert moving_means([]) == []

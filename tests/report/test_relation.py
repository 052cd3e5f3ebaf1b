"""A run in numbers, and what many of them say together."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_runs import T0, episode, event, facts, made_run, reading, sample, write_run

from redline.report.relation import ALL_RUNS, LESS, MORE, NOTHING, choose_runs, relate
from redline.report.run_files import LEARNING, RECORDING, load_runs
from redline.report.run_summary import LAST_10_S, RunSummary, mean_return, summarise


def known_run(folder: Path) -> RunSummary:
    metrics = [
        reading(10.0, steps=2_000, updates=0, samples_per_step=None),
        reading(20.0, steps=2_500, updates=100, samples_per_step=8.0),
        reading(60.0, steps=4_500, updates=500, samples_per_step=6.4),
    ]
    gpus = [
        {"index": 0, "utilisation_percent": 30.0, "power_w": 50.0},
        {"index": 1, "utilisation_percent": 10.0},
    ]
    hardware = [
        # before the first row with an update: no part of the means, but of the sums
        sample(
            20.0, 20.0, cpu_s=10.0, cpu_cores_used=0.5, machine_cpu_cores_used=2.0, rss_bytes=9e9, monitor_cpu_s=0.1
        ),
        sample(40.0, 20.0, cpu_s=40.0, cpu_cores_used=1.5, machine_cpu_cores_used=1.6, rss_bytes=2e9, gpus=gpus),
        sample(
            60.0,
            20.0,
            cpu_s=60.0,
            cpu_cores_used=1.0,
            machine_cpu_cores_used=1.1,
            pss_bytes=1e9,
            monitor_cpu_s=0.3,
            gpus=gpus,
        ),
    ]
    episodes = [episode(5.0 * n, 10.0 * n) for n in range(1, 11)]
    events = [
        event(0.0, "start"),
        event(0.0, "monitor-start", cores=4),
        event(60.0, "stop"),
        event(60.0, "monitor-stop"),
    ]
    run = made_run(folder, facts(), metrics=metrics, hardware=hardware, episodes=episodes, events=events)
    assert run.problems == ()
    return summarise(run)


def test_a_summary_is_what_one_works_out_by_hand(tmp_path: Path) -> None:
    summary = known_run(tmp_path / "run")
    assert (summary.algorithm, summary.env, summary.batch_size, summary.seed) == ("dqn", "CartPole-v1", 32, 1)
    assert (summary.steps, summary.updates, summary.minutes) == (4_500, 500, 1.0)
    # between the rows at 20 s and 60 s
    assert (summary.steps_per_s, summary.updates_per_s) == (2_000 / 40, 400 / 40)
    assert summary.samples_per_step == 6.4
    assert summary.cpu_cores_used == pytest.approx(1.25)
    assert summary.cpu_share_of_machine == pytest.approx(0.625)
    assert summary.others_cpu_cores_used == pytest.approx(0.1)
    assert summary.gpu_utilisation_percent == pytest.approx(20.0)
    assert (summary.rss_peak_bytes, summary.pss_peak_bytes) == (9e9, 1e9)
    assert (summary.cpu_s, summary.gpu_s, summary.energy_j) == pytest.approx((60.0, 0.4 * 40, 50.0 * 40))
    assert (summary.power_s, summary.speed_over, summary.use_over) == (40.0, LEARNING, LEARNING)
    assert summary.cpu_s_per_1000_steps == pytest.approx(60 / 4.5)
    assert (summary.first_return, summary.final_return, summary.final_return_episodes) == (15.0, 55.0, 10)
    assert summary.best_return == 100.0
    assert summary.return_gained_per_cpu_minute == pytest.approx(40.0)
    assert summary.monitor_cpu_share == pytest.approx((0.3 - 0.1) / (40 * 4))


def test_mean_return_is_the_area_under_the_curve_over_its_width() -> None:
    rows = [episode(1.0, 0.0), episode(2.0, 10.0), episode(4.0, 20.0)]
    # moving means 0, 5, 10 at 100, 200, 400 steps: 100 × 2.5 + 200 × 7.5
    assert mean_return(rows) == pytest.approx((250 + 1_500) / 300)
    assert mean_return(rows[:1]) == 0.0
    assert mean_return([]) is None


def test_an_empty_run_is_all_none(tmp_path: Path) -> None:
    summary = summarise(made_run(tmp_path / "run", metrics=[]))
    assert summary.episodes == 0
    assert {value for value in vars(summary).values() if not isinstance(value, str | int)} == {None}


def test_an_older_run_tells_its_processor_by_its_metrics(tmp_path: Path) -> None:
    metrics = [reading(5.0, cpu_percent=10.0), reading(10.0, cpu_percent=150.0), reading(15.0, cpu_percent=50.0)]
    summary = summarise(made_run(tmp_path / "run", facts(), metrics=metrics))
    assert (summary.cpu_cores_used, summary.cpu_share_of_machine, summary.cpu_s) == (1.0, 0.5, None)


def many(base: RunSummary, count: int, **more: object) -> list[RunSummary]:
    """Return runs whose speed rises and whose return falls with use."""
    shift = {"cpu_share_of_machine": 0.1, "steps_per_s": 100.0, "updates_per_s": 0.0, "final_return": -1.0}
    return [
        replace(
            base,
            label=f"{base.label} {n}",
            seed=n,
            num_envs=n + 1,
            **{name: step * n for name, step in shift.items()},
            **more,
        )
        for n in range(count)
    ]


@pytest.fixture
def base(tmp_path: Path) -> RunSummary:
    return replace(
        known_run(tmp_path / "run"), gpu_utilisation_percent=None, minutes=60.0, episodes=500, others_cpu_cores_used=0.0
    )


def test_groups_have_means_with_students_intervals(base: RunSummary) -> None:
    runs = [replace(base, label=str(n), seed=n, final_return=value) for n, value in enumerate([1.0, 2.0, 3.0])]
    runs += [replace(base, label=name, batch_size=64, final_return=7.0) for name in ("c", "d")]
    groups = {(group.by, group.name): group for group in relate(runs).groups}
    assert set(groups) == {
        ("algorithm", "dqn"),
        ("batch size", "32"),
        ("batch size", "64"),
        ("threads / cores", "1 of 2"),
    }
    small, large = (
        groups["batch size", "32"].estimates["final_return"],
        groups["batch size", "64"].estimates["final_return"],
    )
    half = 2.919986 / math.sqrt(3)  # t of two degrees of freedom, and a standard deviation of 1
    assert (small.n, small.mean, small.interval) == (3, 2.0, pytest.approx((2 - half, 2 + half)))
    assert (large.n, large.mean, large.interval) == (2, 7.0, None)
    assert groups["batch size", "32"].labels == ("0", "1", "2")
    assert "gpu_utilisation_percent" not in small.__dict__


def test_what_cannot_be_negative_has_no_negative_interval(base: RunSummary) -> None:
    runs = [
        replace(base, label=str(n), seed=n, steps_per_s=value, final_return=-value)
        for n, value in enumerate([10.0, 4_000.0, 7_000.0])
    ]
    estimates = relate(runs).groups[0].estimates
    speed, score = estimates["steps_per_s"].interval, estimates["final_return"].interval
    assert speed is not None
    assert score is not None
    assert speed[0] == 0.0
    assert score[1] > 0.0


def test_runs_without_updates_and_seeds_that_stand_twice_are_not_compared(tmp_path: Path) -> None:
    again = facts(max_steps=900, log_dir="elsewhere")  # the same run, stopped earlier
    resumed = {"resumes": [{"changes": {"max_steps": "900 → 2_000"}}]}
    for name, run, readings in (
        ("long", facts() | resumed, [reading(20.0)]),
        ("again", again, [reading(9.0)]),
        ("other", facts(seed=2), [reading(20.0)]),
        ("slower", facts(lr=0.1), [reading(20.0)]),
        ("idle", facts(seed=3), [reading(20.0, updates=0)]),
        ("foreign", None, [reading(20.0)]),
        ("foreign-too", None, [reading(20.0)]),
    ):
        write_run(tmp_path / name, run, metrics=readings)
    pairs = [(run, summarise(run)) for run in load_runs([tmp_path])]
    names = {summary.label: files.path.name for files, summary in pairs}
    compared, left_out = choose_runs(pairs)
    assert [files.path.name for files, _ in compared] == ["foreign", "foreign-too", "long", "other", "slower"]
    found = {names[run.label]: run.why for run in left_out}
    [long] = [label for label, name in names.items() if name == "long"]
    assert found == {"again": f"the same settings and seed as {long}", "idle": "it made no updates"}
    relation = relate([summary for _, summary in compared], left_out)
    assert relation.left_out == left_out
    assert any(caveat.startswith("Not compared: ") and "no updates" in caveat for caveat in relation.caveats)


def test_the_headline_is_the_mean_of_the_last_100_episodes(tmp_path: Path) -> None:
    played = [episode(float(n), float(n)) for n in range(1, 151)]
    greedy = {"role": "greedy", "evaluation": 2, "weights_steps": 4_000}
    tested = [episode(60.0 + n, 9.0, **greedy | {"evaluation": 1}) for n in range(5)]
    tested += [episode(140.0 + n, 20.0 + n, **greedy) for n in range(3)]
    rows = sorted([*played, *tested], key=lambda row: float(row["unix_s"]))
    summary = summarise(made_run(tmp_path / "run", facts(), metrics=[reading(150.0)], episodes=rows))
    assert (summary.final_return, summary.final_return_episodes) == (100.5, 100)
    found = (summary.evaluation_return, summary.evaluation_episodes, summary.evaluation_steps)
    assert found == (21.0, 3, 4_000)


def test_correlations_of_all_runs_and_within_groups_of_four(base: RunSummary) -> None:
    runs = [*many(base, 5), *many(base, 4, batch_size=64), *many(base, 3, batch_size=128)]
    found = {(row.within, row.outcome): row for row in relate(runs).correlations}
    assert {within for within, _ in found} == {ALL_RUNS, "batch size 32", "batch size 64"}
    speed, result, updates = (found["batch size 32", name] for name in ("steps_per_s", "final_return", "updates_per_s"))
    assert (speed.n, speed.rho, speed.verdict) == (5, 1.0, MORE)
    assert speed.by_chance == pytest.approx(2 / math.factorial(5))
    assert (result.rho, result.verdict) == (-1.0, LESS)
    assert (updates.rho, updates.interval, updates.verdict) == (None, None, NOTHING)


def test_different_games_are_never_mixed(base: RunSummary) -> None:
    runs = [*many(base, 4), *many(replace(base, env="pong"), 3), *many(replace(base, env=None), 4)]
    relation = relate(runs)
    assert {row.env for row in relation.correlations} == {"CartPole-v1"}
    assert {row.n for row in relation.correlations} == {4}
    assert {group.env for group in relation.groups} == {"CartPole-v1", "pong"}
    told = " ".join(relation.caveats)
    assert "2 games (CartPole-v1, pong) are compared apart" in told
    assert "name no game" in told


def test_caveats_come_from_the_runs(base: RunSummary) -> None:
    runs = [
        *many(base, 3),
        *many(replace(base, algorithm="ppo", batch_size=64, steps=9_000, minutes=1.0, episodes=3, cpu_s=None), 1),
        replace(base, label="loud", seed=9, others_cpu_cores_used=0.8),
    ]
    told = relate(runs).caveats
    for sentence in (
        "5 runs: a relation among so few",
        "groups by algorithm also differ in batch size and number of envs, so a difference",
        "groups by batch size also differ in algorithm and number of envs, so a difference",
        "by algorithm, one seed only: ppo;",
        "runs are of different length (4,500 … 9,000 steps)",
        "1 of 5 runs took less than 5 minutes",
        "1 of 5 runs ended fewer than 20 episodes",
        "1 of 5 runs shared the machine with programs that used up to 0.8 cores",
        "1 of 5 runs left no CPU seconds",
        "are unclear",
    ):
        assert any(sentence in caveat for caveat in told), sentence


def test_what_does_not_differ_is_no_caveat(base: RunSummary) -> None:
    runs = [replace(base, seed=seed) for seed in range(4)]
    told = " ".join(relate(runs).caveats)
    assert "also differ" not in told
    assert "one seed only" not in told
    assert "different length" not in told


def test_one_run_and_none_can_be_asked_for(base: RunSummary) -> None:
    assert relate([]).groups == []
    alone = relate([base])
    assert alone.correlations == []
    assert any("No rank correlation" in caveat for caveat in alone.caveats)


def test_seeds_of_the_same_settings_are_one_point_of_a_correlation(base: RunSummary) -> None:
    runs = [
        replace(run, seed=seed, steps_per_s=(run.steps_per_s or 0.0) + seed)
        for run in many(base, 4)
        for seed in range(3)
    ]
    relation = relate(runs)
    found = {row.outcome: row for row in relation.correlations}["steps_per_s"]
    assert (found.n, found.runs, found.rho, found.by_chance) == (4, 12, 1.0, pytest.approx(2 / 24))
    assert any("more seeds make a point more certain, but add no points" in caveat for caveat in relation.caveats)
    assert any("A perfect order (ρ = ±1) has no bootstrap interval" in caveat for caveat in relation.caveats)
    alone = relate([replace(base, seed=seed, steps_per_s=100.0 + seed) for seed in range(8)])
    assert alone.correlations == []
    assert any("it takes 4 different settings" in caveat for caveat in alone.caveats)


def test_settings_without_a_relation_are_rarely_called_related(base: RunSummary) -> None:
    bare = replace(base, updates_per_s=None, final_return=None, mean_return=None)
    rng = np.random.default_rng(1)
    verdicts = []
    for _ in range(100):
        use, speed = (np.repeat(rng.normal(scale=5.0, size=5), 3) + rng.normal(size=15) for _ in range(2))
        runs = [
            replace(bare, num_envs=n // 3, seed=n % 3, cpu_share_of_machine=float(use[n]), steps_per_s=float(speed[n]))
            for n in range(15)
        ]
        verdicts += [row.verdict for row in relate(runs).correlations]
    assert len(verdicts) == 100
    assert sum(verdict != NOTHING for verdict in verdicts) <= 14  # 10 are expected at most


def test_a_run_whose_settings_a_resume_changed_is_in_no_group_of_others(tmp_path: Path, base: RunSummary) -> None:
    resumes = [
        {"changes": {"batch_size": "128 → 64", "learner.threads": "1 → 2"}},
        {"changes": {"batch_size": "64 → 32", "max_steps": "8 → 9"}},
    ]
    changed = summarise(made_run(tmp_path / "changed", facts() | {"resumes": resumes}, metrics=[reading(5.0)]))
    relation = relate([changed, base])
    names = {(group.by, group.name) for group in relation.groups}
    assert {("batch size", "128 → 64 → 32"), ("batch size", "32"), ("threads / cores", "1 → 2 of 2")} <= names
    [caveat] = [caveat for caveat in relation.caveats if "changed at a resume" in caveat]
    assert f"{changed.label} (batch_size 128 → 64 → 32 and learner.threads 1 → 2)" in caveat


def test_the_span_of_speed_and_use_is_told(tmp_path: Path) -> None:
    hardware = [sample(float(n), cpu_cores_used=1.0) for n in range(1, 11)]
    short = summarise(made_run(tmp_path / "short", facts(), metrics=[reading(5.0)], hardware=hardware))
    assert (short.speed_over, short.use_over) == (LAST_10_S, RECORDING)
    foreign = summarise(
        made_run(tmp_path / "foreign", hardware=hardware, episodes=[episode(1.0, 0.0), episode(9.0, 0)])
    )
    assert (foreign.speed_over, foreign.use_over, foreign.cpu_cores_used) == (RECORDING, RECORDING, 1.0)
    older = summarise(made_run(tmp_path / "older", facts(), metrics=[reading(n, cpu_percent=50.0) for n in (1.0, 9.0)]))
    assert (older.speed_over, older.use_over, older.cpu_cores_used) == (LEARNING, LEARNING, 0.5)


def test_a_mean_over_little_of_the_learning_is_unknown(tmp_path: Path) -> None:
    metrics = [reading(float(n)) for n in range(5, 101, 5)]
    hardware = [sample(float(n), cpu_cores_used=2.0) for n in range(1, 21)]
    run = made_run(tmp_path / "run", facts(), metrics=metrics, hardware=hardware)
    summary = summarise(run)
    assert (summary.cpu_cores_used, summary.cpu_share_of_machine, summary.use_over) == (None, None, None)
    assert any("Samples cover 16% of the time of learning" in problem for problem in run.problems)


@pytest.mark.parametrize("is_foreign", [False, True])
def test_a_gpu_that_is_lost_early_has_no_mean_of_the_run(tmp_path: Path, is_foreign: bool) -> None:
    gpus = [{"index": index, "utilisation_percent": 90.0 - 60.0 * index, "power_w": 100.0} for index in (0, 1)]
    hardware = [sample(float(n), cpu_cores_used=1.0, gpus=gpus[0 if n <= 10 else 1 :]) for n in range(1, 101)]
    metrics = {} if is_foreign else {"metrics": [reading(float(n)) for n in range(1, 101)]}
    run = made_run(tmp_path / "run", None if is_foreign else facts(), hardware=hardware, **metrics)
    assert summarise(run).gpu_utilisation_percent == pytest.approx(30.0)
    what = "10% of the recording" if is_foreign else "9% of the time of learning"
    assert f"GPU 0 was sampled in {what}: its mean utilisation is left out." in run.problems
    assert not any("GPU 1" in problem for problem in run.problems)


def test_the_monitors_own_cost_is_what_it_told_at_its_end(tmp_path: Path) -> None:
    first = [sample(float(n), monitor_cpu_s=0.5 * n) for n in range(1, 11)]
    # killed, so that only its samples tell: 0.2 of 4 cores
    second = [{**sample(100.0 + n, monitor_cpu_s=0.8 * n), "elapsed_s": float(n)} for n in range(1, 12)]
    events = [
        event(0.0, "monitor-start", cores=4),
        event(30.0, "monitor-stop", elapsed_s=30.0, monitor_cpu_share=0.01),
        event(100.0, "monitor-start", cores=4),
    ]
    summary = summarise(made_run(tmp_path / "run", hardware=[*first, *second], events=events))
    assert summary.monitor_cpu_share == pytest.approx((30 * 0.01 + 10 * 0.2) / 40)


def test_a_machine_that_does_not_tell_its_cores_is_named_without(tmp_path: Path) -> None:
    for place, (host, name) in enumerate(
        [({"cpu_model": "Abacus"}, "Abacus"), ({"cpu_model": "Abacus", "usable_cores": 1}, "Abacus, 1 core")]
    ):
        run = made_run(tmp_path / str(place), facts() | {"host": host}, metrics=[reading(5.0)])
        assert summarise(run).host == name


def test_a_run_that_was_stopped_for_long_is_covered_all_the_same(tmp_path: Path) -> None:
    metrics = [*(reading(float(n)) for n in range(1, 11)), {**reading(20.0), "unix_s": T0 + 60.0}]
    hardware = [sample(float(n), cpu_s=float(n), cpu_cores_used=1.0) for n in range(1, 11)]
    again = [{**sample(50.0 + n, cpu_s=float(n), cpu_cores_used=1.0), "elapsed_s": float(n)} for n in range(1, 11)]
    events = [event(10.0, "stop"), event(50.0, "resume"), event(60.0, "stop")]
    run = made_run(tmp_path / "run", facts(), metrics=metrics, hardware=[*hardware, *again], events=events)
    assert not any("cover" in problem for problem in run.problems)
    assert summarise(run).cpu_s_per_1000_steps == pytest.approx(20.0 / 2.0)

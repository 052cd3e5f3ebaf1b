"""A run that is read while it grows, beside the report, which reads it as a whole."""

import json
from pathlib import Path

import numpy as np
import pytest
from full_runs import write_broken_run, write_full_run
from made_runs import T0, episode, event, facts, reading, sample, write_run

from redline.jsonl import cut_after, encode_row
from redline.report.growing_run import GrowingRun
from redline.report.run_files import load_run
from redline.report.run_log import process_shares


def read(run: GrowingRun) -> GrowingRun:
    while not run.read(budget_s=1.0, created_unix_s=T0):
        pass
    return run


def test_it_holds_what_the_report_reads(tmp_path: Path) -> None:
    folder = write_full_run(tmp_path / "run")
    whole, growing = load_run(folder), read(GrowingRun(folder))
    assert growing.metrics.columns.values("steps").tolist() == [row["steps"] for row in whole.metrics]
    assert growing.episodes.columns.values("return").tolist() == [
        pytest.approx(row["return"]) for row in whole.episodes_of("actor")
    ]
    assert sorted(growing.hardware.columns.names) == sorted({name for row in whole.hardware for name in row})
    assert growing.clock == whole.clock
    known = whole.samples.columns["cpu_cores_used"][1]
    np.testing.assert_allclose(growing.hardware.columns.values("cpu_cores_used"), known, rtol=1e-6)
    assert growing.progress() == 1.0


def test_minutes_and_cpu_seconds_are_those_of_the_report(tmp_path: Path) -> None:
    rows = [*range(1, 11), *range(101, 111)]  # the run stood still for 90 s and was resumed
    folder = write_run(
        tmp_path / "run",
        facts(),
        metrics=[reading(float(at_s)) for at_s in rows],
        events=[event(0.0, "start"), event(100.5, "resume")],
        hardware=[sample(float(at_s), cpu_s=float(at_s % 100)) for at_s in rows],
    )
    whole, growing = load_run(folder), read(GrowingRun(folder))
    minutes = growing.places(growing.metrics, "minutes")
    np.testing.assert_allclose(minutes, [whole.clock.minutes(T0 + at_s) for at_s in rows])
    assert minutes[-1] == pytest.approx(19.5 / 60)
    np.testing.assert_allclose(growing.places(growing.metrics, "cpu_s"), [*range(1, 11), *range(11, 21)])
    np.testing.assert_allclose(growing.places(growing.hardware, "steps"), [100.0 * at_s for at_s in rows])


def test_a_torn_line_is_read_when_it_is_whole(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", facts(), metrics=[reading(1.0)])
    run = read(GrowingRun(folder))
    line = encode_row(reading(2.0))
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(line[:30])
        file.flush()
        assert len(read(run).metrics) == 1
        file.write(line[30:])
    assert read(run).metrics.columns.values("time_s").tolist() == [1.0, 2.0]


def test_rows_that_a_resume_takes_back_are_gone(tmp_path: Path) -> None:
    folder = write_run(
        tmp_path / "run",
        facts(),
        metrics=[reading(float(at_s)) for at_s in range(1, 6)],
        episodes=[episode(float(at_s), float(at_s)) for at_s in range(1, 6)],
    )
    run = read(GrowingRun(folder))
    before = run.generation("episodes", "minutes")
    assert cut_after(folder / "metrics.jsonl", 300) == cut_after(folder / "episodes.jsonl", 300) == 2
    read(run)
    assert run.metrics.columns.values("steps").tolist() == [100.0, 200.0, 300.0]
    assert run.episodes.columns.values("return").tolist() == [1.0, 2.0, 3.0]
    assert run.generation("episodes", "minutes") != before


def test_an_episode_keeps_the_number_that_redline_play_takes(tmp_path: Path) -> None:
    rows = [
        episode(1.0, 5.0),
        episode(2.0, 6.0, role="greedy", evaluation=1, weights_steps=90),
        {"no": "episode"},
        episode(3.0, 7.0),
    ]
    run = read(GrowingRun(write_run(tmp_path / "run", facts(), episodes=rows)))
    assert run.episodes.columns.values("number").tolist() == [1.0, 4.0]
    assert run.episodes.evaluations == {1: [T0 + 2.0, 90, 6.0, 1.0]}


def test_the_mean_is_that_of_the_last_hundred_wherever_it_begins(tmp_path: Path) -> None:
    rows = [episode(float(at), float(at)) for at in range(1, 301)]
    run = read(GrowingRun(write_run(tmp_path / "run", facts(), episodes=rows)))
    means = run.episodes.means()
    assert means[:3].tolist() == [1.0, 1.5, 2.0]
    assert means[-1] == np.mean(range(201, 301))
    np.testing.assert_allclose(run.episodes.means(250), means[250:])


def test_shares_of_processes_are_those_of_the_report(tmp_path: Path) -> None:
    roles = [{"role": "learner", "busy": {"learn": 0.5}, "waiting": {"actors": 0.25}}]
    rows = [reading(5.0 * at, roles=roles) for at in range(1, 41)]
    run = read(GrowingRun(write_run(tmp_path / "run", facts(), metrics=rows)))
    for shares in (run.metrics.shares(), run.metrics.recent_shares(), process_shares(rows)):
        assert [(one.role, one.busy, one.waiting) for one in shares] == [
            ("learner", {"learn": pytest.approx(0.5)}, {"actors": pytest.approx(0.25)})
        ]


def test_damaged_files_and_links_give_no_rows_and_no_error(tmp_path: Path) -> None:
    run = read(GrowingRun(write_broken_run(tmp_path / "broken")))
    assert [len(file) for file in run.files.values()] == [0, 0, 0, 1]  # a sample whose only value is NaN
    secret = write_run(tmp_path / "elsewhere", facts(), metrics=[reading(1.0)])
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").symlink_to(secret / "metrics.jsonl")
    assert len(read(GrowingRun(tmp_path / "run")).metrics) == 0


def test_a_run_that_is_removed_and_made_again_is_read_anew(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", facts(), metrics=[reading(1.0), reading(2.0)])
    run = read(GrowingRun(folder))
    (folder / "metrics.jsonl").unlink()
    assert len(read(run).metrics) == 2  # what was read stays until there is something else
    (folder / "metrics.jsonl").write_text(json.dumps({"schema": 1, **reading(9.0)}) + "\n")
    assert read(run).metrics.columns.values("time_s").tolist() == [9.0]

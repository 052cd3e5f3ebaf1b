"""Run directories in every state of repair are read, and what is missing is said."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_runs import T0, episode, event, facts, made_run, reading, sample, write_run

from redline.errors import UserError
from redline.report.relation import relate
from redline.report.run_files import KINDS, RunFiles, load_runs
from redline.report.run_log import changes_of, event_table, phase_split, settings_of
from redline.report.run_series import hardware_series, joined_rows, learning_curve, speed_series
from redline.report.run_summary import summarise


def everything_of(run: RunFiles) -> None:
    """Ask for all that a report shows."""
    for axis in ("steps", "minutes", "cpu_s", "gpu_s"):
        for role in ("actor", "greedy"):
            learning_curve(run, axis, role)
    speed_series(run)
    hardware_series(run)
    phase_split(run)
    settings_of(run)
    changes_of(run)
    event_table(run)
    json.dumps(list(joined_rows(run)), allow_nan=False)
    relate([summarise(run)] * 4)


def whole_run(folder: Path) -> Path:
    return write_run(
        folder,
        facts(),
        metrics=[reading(5.0), reading(10.0)],
        episodes=[episode(3.0, 20.0), episode(8.0, 30.0)],
        events=[event(0.0, "start"), event(10.0, "stop", reason="max-steps 1,000 reached")],
        hardware=[sample(second, cpu_s=second, cpu_cores_used=1.0) for second in range(1, 11)],
    )


def test_a_whole_run_has_no_problems(tmp_path: Path) -> None:
    [run] = load_runs([whole_run(tmp_path / "run")])
    assert run.problems == ()
    assert [len(getattr(run, kind)) for kind in KINDS] == [2, 2, 2, 10]


def test_a_path_that_is_no_run_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist: name a run directory"):
        load_runs([tmp_path / "nowhere"])
    with pytest.raises(UserError, match=r"holds no run: a run directory has one of run\.json"):
        load_runs([tmp_path])
    file = tmp_path / "metrics.jsonl"
    file.write_text("")
    with pytest.raises(UserError, match="is a file: name a run directory"):
        load_runs([file])


def test_runs_are_found_inside_a_folder_and_counted_once(tmp_path: Path) -> None:
    first, second = whole_run(tmp_path / "a" / "one"), whole_run(tmp_path / "b" / "two")
    whole_run(second / "checkpoints" / "not-a-run")
    runs = load_runs([tmp_path, first, Path(f"{first}/.")])
    assert [run.path for run in runs] == [first, second]


def test_labels_tell_what_differs_and_are_unique(tmp_path: Path) -> None:
    for name, run in {
        "1": facts(),
        "2": facts(batch_size=64),
        "3": facts(batch_size=64, seed=2),
        "4": facts(batch_size=64, seed=2),
    }.items():
        write_run(tmp_path / name, run, metrics=[reading(5.0)])
    write_run(tmp_path / "foreign", hardware=[sample(1.0)])
    assert [run.label for run in load_runs([tmp_path])] == [
        "dqn batch 32 s1",
        "dqn batch 64 s1",
        "dqn batch 64 s2 3",
        "dqn batch 64 s2 4",
        "foreign",
    ]
    assert [run.label for run in load_runs([tmp_path / "1"])] == ["dqn CartPole-v1 s1"]
    for threads in (1, 2):
        write_run(tmp_path / "t" / str(threads), facts(learner={"threads": threads}), metrics=[reading(5.0)])
    assert [run.label for run in load_runs([tmp_path / "t"])] == ["dqn 1 thread", "dqn 2 threads"]
    twins = [write_run(tmp_path / side / "x", hardware=[sample(1.0)]) for side in ("left", "right")]
    assert [run.label for run in load_runs(twins)] == ["x x", "x x (2)"]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("run.json", "run.json is missing or unusable: algorithm"),
        ("metrics.jsonl", "metrics.jsonl is missing: speed"),
        ("episodes.jsonl", "episodes.jsonl is missing: returns are unknown"),
        ("events.jsonl", "events.jsonl is missing"),
        ("hardware.jsonl", "hardware.jsonl is missing"),
    ],
)
def test_each_missing_file_is_told(tmp_path: Path, name: str, sentence: str) -> None:
    folder = whole_run(tmp_path / "run")
    (folder / name).unlink()
    [run] = load_runs([folder])
    assert len(run.problems) == 1
    assert run.problems[0].startswith(sentence)
    everything_of(run)


@pytest.mark.parametrize("name", ["metrics.jsonl", "episodes.jsonl", "events.jsonl", "hardware.jsonl", "run.json"])
def test_a_file_cut_off_anywhere_is_read_up_to_there(tmp_path: Path, name: str) -> None:
    folder = whole_run(tmp_path / "run")
    content = (folder / name).read_bytes()
    for cut in range(0, len(content), 37):
        (folder / name).write_bytes(content[:cut])
        [run] = load_runs([folder])
        assert run.problems
        everything_of(run)


def test_unreadable_lines_are_counted(tmp_path: Path) -> None:
    folder = whole_run(tmp_path / "run")
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(b'not json\n[1, 2]\n{"schema":7,"time_s":1}\n{"time_s":')
    [run] = load_runs([folder])
    assert run.problems == (
        "metrics.jsonl: 2 unreadable lines were skipped.",
        "metrics.jsonl: 1 line of another version of Redline was skipped.",
        "metrics.jsonl: the last line is cut off: the run was killed or is still writing.",
    )
    assert len(run.metrics) == 2


def test_values_that_are_no_numbers_are_left_out_and_told(tmp_path: Path) -> None:
    run = made_run(
        tmp_path / "run",
        facts(),
        metrics=[
            reading(5.0, updates="many"),
            reading(10.0, steps=None),
            {**reading(12.0), "time_s": "soon"},
            reading(15.0),
        ],
        episodes=[episode(1.0, float("nan")), episode(2.0, 7.0, lane="left"), episode(3.0, True)],
        events=[event(0.0, "start"), {"event": None}, event(9.0, "stop")],
        hardware=[
            sample(1.0, rss_bytes="12", cpu_cores_used=-3.0, core_busy=[0.5, None, "x"]),
            sample(2.0, interval_s=-1.0),
            sample(3.0, interval_s=0.0),
            {"unix_s": None, "interval_s": 1.0},
            {"unix_s": 5.0, "interval_s": 1.0},
            sample(4.0, load_average_1m=10**200, gpus=[{"index": 0, "power_w": float("inf")}], roles=5),
        ],
    )
    assert [row["time_s"] for row in run.metrics] == [5.0, 15.0]
    assert [row["return"] for row in run.episodes] == [7.0]
    assert [row["unix_s"] - T0 for row in run.hardware] == [1.0, 4.0]
    assert set(run.hardware[0]) == {"unix_s", "elapsed_s", "interval_s", "core_busy.0"}
    assert set(run.hardware[1]) == {"unix_s", "elapsed_s", "interval_s", "roles"}
    assert run.problems == (
        "metrics.jsonl: 2 lines without a usable unix_s or time_s or steps were skipped.",
        "metrics.jsonl: 1 invalid value was skipped.",
        "episodes.jsonl: 2 lines without a usable unix_s or return were skipped.",
        "episodes.jsonl: 1 invalid value was skipped.",
        "events.jsonl: 1 line without a usable event was skipped.",
        "hardware.jsonl: 4 lines without a usable unix_s or interval_s were skipped.",
        # rss_bytes, cpu_cores_used, two cores, an interval, unix_s, the load average, and the power that became null
        "hardware.jsonl: 8 invalid values were skipped.",
        "hardware.jsonl covers 13% of the time between the first and the last row: "
        "CPU seconds, GPU seconds and energy are those of that part.",
    )
    everything_of(run)


def test_rows_that_stand_twice_or_in_disorder_are_mended(tmp_path: Path) -> None:
    rows = [reading(5.0), reading(10.0), reading(15.0)]
    run = made_run(tmp_path / "run", facts(), metrics=[rows[2], rows[0], rows[1], rows[1]])
    assert [row["time_s"] for row in run.metrics] == [5.0, 10.0, 15.0]
    assert "metrics.jsonl: lines were out of order and have been sorted." in run.problems
    assert "metrics.jsonl: 1 duplicate line was skipped." in run.problems


def test_a_clock_that_is_set_back_leaves_the_order_of_training_time(tmp_path: Path) -> None:
    rows = [reading(5.0), reading(10.0), {**reading(15.0), "unix_s": T0 - 3_585.0}]
    run = made_run(tmp_path / "run", facts(), metrics=rows)
    assert [row["time_s"] for row in run.metrics] == [5.0, 10.0, 15.0]
    assert any("the wall clock went back by 3,595 s" in problem for problem in run.problems)
    everything_of(run)


def test_samples_that_overlap_count_once(tmp_path: Path) -> None:
    run = made_run(tmp_path / "run", hardware=[sample(1.0), sample(2.0), sample(2.5), sample(2.5, cpu_s=1.0)])
    assert [row["interval_s"] for row in run.hardware] == [1.0, 1.0, 0.5]
    assert any("samples overlap by 1.5 s" in problem for problem in run.problems)


def test_a_run_that_goes_on_and_a_monitor_that_goes_on_are_told(tmp_path: Path) -> None:
    goes_on = [event(0.0, "start"), event(1.0, "stop"), event(9.0, "resume"), event(9.0, "monitor-start")]
    run = made_run(tmp_path / "run", facts(), metrics=[reading(5.0)], events=goes_on)
    told = [problem for problem in run.problems if "it was killed or is still running" in problem]
    assert [("the run" in problem, "the monitor" in problem) for problem in told] == [(True, False), (False, True)]


def test_samples_of_only_a_part_of_the_run_are_told(tmp_path: Path) -> None:
    rows = {"metrics": [reading(100.0), reading(1_030.0)], "events": [event(0.0, "start")]}
    run = made_run(tmp_path / "run", facts(), hardware=[sample(500.0, 500.0)], **rows)
    assert any(problem.startswith("hardware.jsonl covers 49% of the time") for problem in run.problems)
    assert summarise(run).cpu_s_per_1000_steps is None


def test_a_short_run_needs_its_samples_as_well(tmp_path: Path) -> None:
    rows = {"metrics": [reading(float(n)) for n in range(1, 29)], "episodes": [episode(20.0, 1.0)]}
    run = made_run(tmp_path / "run", facts(), hardware=[sample(float(n), cpu_s=float(n)) for n in (1, 2)], **rows)
    assert any(problem.startswith("hardware.jsonl covers 7% of the time") for problem in run.problems)
    assert summarise(run).cpu_s_per_1000_steps is None


def test_that_no_episode_has_ended_is_said_only_where_it_is_known(tmp_path: Path) -> None:
    folder = whole_run(tmp_path / "run")
    (folder / "metrics.jsonl").write_text("")
    for content, told in {
        b"": "No episode has ended: there is no learning curve.",
        b"not JSON\n": "No episode of training can be read in episodes.jsonl: returns are unknown.",
        b'{"unix_s": 1': "No episode of training can be read in episodes.jsonl: returns are unknown.",
        b'{"unix_s": 1, "return": 2}\n': "No episode of training can be read in episodes.jsonl: returns are unknown.",
    }.items():
        (folder / "episodes.jsonl").write_bytes(content)
        [run] = load_runs([folder])
        assert run.problems[0] == told
    (folder / "episodes.jsonl").unlink()
    (folder / "episodes.jsonl").mkdir()
    assert not any("has ended:" in problem for problem in load_runs([folder])[0].problems)
    counted = made_run(tmp_path / "counted", facts(), metrics=[reading(5.0, episodes=3)], episodes=[])
    told = "metrics.jsonl counts 3 episodes, but episodes.jsonl holds none: returns are unknown."
    assert told in counted.problems


def test_runs_behind_links_are_found_once(tmp_path: Path) -> None:
    outside, inside = whole_run(tmp_path / "outside" / "run"), whole_run(tmp_path / "runs" / "one")
    (tmp_path / "runs" / "link").symlink_to(outside)
    (tmp_path / "runs" / "latest").symlink_to(inside)
    (tmp_path / "runs" / "circle").symlink_to(tmp_path / "runs")
    (tmp_path / "runs" / "broken").symlink_to(tmp_path / "nowhere")
    assert [run.path.name for run in load_runs([tmp_path / "runs"])] == ["link", "one"]


def test_files_that_are_none_are_not_read(tmp_path: Path) -> None:
    folder = whole_run(tmp_path / "run")
    for name in ("metrics.jsonl", "run.json"):
        (folder / name).unlink()
    os.mkfifo(folder / "metrics.jsonl")
    (folder / "run.json").mkdir()
    [run] = load_runs([folder])
    assert "metrics.jsonl is not a file and was not read." in run.problems
    assert any(problem.startswith("run.json: ") for problem in run.problems)
    everything_of(run)


def test_foreign_code_needs_neither_settings_nor_metrics(tmp_path: Path) -> None:
    hardware = [sample(second, cpu_s=2.0 * second) for second in (1.0, 2.0)]
    events = [event(0.0, "monitor-start", cores=2), event(2.0, "monitor-stop")]
    run = made_run(tmp_path / "sb3", hardware=hardware, events=events)
    assert [problem.split(":")[0] for problem in run.problems] == [
        "run.json and metrics.jsonl are missing, as for a program that is not Redline",
        "episodes.jsonl is missing",
    ]
    assert summarise(run).cpu_s == 4.0
    everything_of(run)


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**120), 10**120),
    st.floats(),
    st.floats(T0 - 10, T0 + 100),
    st.sampled_from(["", "actor", "greedy", "evaluation", "checkpoint", "resume", "<script>", "x: 1 → 2 (why)"]),
)
NAMES = st.sampled_from(
    [
        "schema",
        "unix_s",
        "time_s",
        "steps",
        "updates",
        "return",
        "role",
        "lane",
        "evaluation",
        "number",
        "duration_s",
        "stalled_s",
        "event",
        "message",
        "roles",
        "waiting",
        "busy",
        "interval_s",
        "elapsed_s",
        "cpu_s",
        "core_busy",
        "gpus",
        "power_w",
        "utilisation_percent",
        "rss_bytes",
        "begun_unix_s",
        "hardware",
        "config",
        "env",
        "id",
        "seed",
        "learner",
        "threads",
        "batch_size",
        "adjustments",
        "resumes",
        "changes",
        "host",
        "usable_cores",
        "algorithm",
        "warmup_steps_per_s",
        "warmup_steps",
        "length_steps",
        "weights_steps",
        "monitor_cpu_s",
        "cores",
        "created_unix_s",
        "index",
    ]
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4))
ROWS = st.lists(st.dictionaries(NAMES, VALUES, max_size=8), max_size=5)


def started(kind: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return rows that have what they need, so that the rest of them matters."""
    needed = {"metrics": reading, "hardware": sample}.get(kind, lambda at_s: {**episode(at_s, 1.0), "event": "start"})
    return [{**needed(float(place + 1)), **row} for place, row in enumerate(rows)]


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    data=st.fixed_dictionaries(dict.fromkeys(KINDS, ROWS)),
    run=st.dictionaries(NAMES, VALUES),
    is_bare=st.booleans(),
)
def test_no_content_of_the_files_raises(
    tmp_path_factory: pytest.TempPathFactory, data: dict[str, list[Any]], run: dict[str, Any], is_bare: bool
) -> None:
    folder = tmp_path_factory.mktemp("any")
    for kind, rows in data.items():
        lines = rows if is_bare else started(kind, rows)
        (folder / f"{kind}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    (folder / "run.json").write_text(json.dumps({**run, "schema": 1}))
    [files] = load_runs([folder])
    everything_of(files)


def test_deeply_nested_values_do_not_raise(tmp_path: Path) -> None:
    folder = whole_run(tmp_path / "run")
    deep = "[" * 900 + "]" * 900
    (folder / "run.json").write_text(f'{{"schema": 1, "algorithm": {deep}, "config": {{"env": {deep}, "x": {deep}}}}}')
    for kind in KINDS:
        with (folder / f"{kind}.jsonl").open("a") as file:
            file.write(f'{{"event": "start", "unix_s": {T0}, "interval_s": 1, "time_s": 1, "steps": 1, "return": 1, ')
            file.write(f'"roles": {deep}, "gpus": {deep}, "message": {deep}, "hardware": {deep}}}\n')
    [run] = load_runs([folder])
    everything_of(run)
    assert summarise(run).algorithm is None
    assert len(run.episodes) > 1

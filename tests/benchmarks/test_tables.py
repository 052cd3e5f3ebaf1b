"""The tables in the README and in docs/ follow the records."""

import json
from pathlib import Path
from typing import Any

import pytest

import tables
from hardware_tables import describe_overhead, make_study_table
from redline.algorithms.catalog import ALGORITHMS

BEGIN, END = "<!-- records:begin -->", "<!-- records:end -->"
MEASURED = f"# Measured\n\n{BEGIN}\nold\n{END}\n\nafter\n"
PAGE = "# The algorithms\n\n<!-- algorithms:begin -->\nold\n<!-- algorithms:end -->\n"


def put_record(
    folder: Path, name: str, *, unix_s: float, headline: str = "1 of 1", passed: bool | None = True, summary: Any = None
) -> None:
    record = {
        "schema": 1,
        "name": name,
        "unix_s": unix_s,
        "commit": "0123456789abcdef+changes",
        "host": {"cpu_model": "a CPU", "usable_cores": 2},
        "title": f"title of {name}",
        "headline": headline,
        "learning": "mean return −20",
        "passed": passed,
        "summary": summary,
    }
    (folder / f"{name}-{unix_s:.0f}.json").write_text(json.dumps(record), encoding="utf-8")


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    records = tmp_path / "records"
    records.mkdir()
    (tmp_path / "measured.md").write_text(MEASURED, encoding="utf-8")
    (tmp_path / "algorithms.md").write_text(PAGE, encoding="utf-8")
    marks = {
        "README.md": ("numbers",),
        "recipes.md": ("recipes", "side-by-side", "games", *(f"tried-{name}" for name in tables.TRIED)),
        "monitor.md": ("hardware-fields", "overhead"),
        "utilisation.md": ("algorithms", "pong", "sweep"),
        "performance.md": ("limit", "peers", "ladder", "kept", "left", "unharmed"),
    }
    for name, places in marks.items():
        text = "".join(f"<!-- {mark}:begin -->\n<!-- {mark}:end -->\n" for mark in places)
        (tmp_path / name).write_text(text, encoding="utf-8")
    written = ["--readme", str(tmp_path / "README.md"), "--docs", str(tmp_path), "--results", str(tmp_path / "r.json")]
    return [*written, "--records", str(records)]


def test_the_newest_record_of_each_name_stands_in_the_table(tmp_path: Path, flags: list[str]) -> None:
    put_record(tmp_path / "records", "speed", unix_s=9.0, headline="1.1 ×")
    put_record(tmp_path / "records", "speed", unix_s=10.0, headline="1.5 ×")
    put_record(tmp_path / "records", "memory", unix_s=5.0, headline="+9 % | bad", passed=False)
    assert tables.main(flags) == 0
    text = (tmp_path / "measured.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| title of")]
    assert [row.split(" | ")[0] for row in rows] == ["| title of memory", "| title of speed"]
    assert r"+9 % \| bad — **not met**" in rows[0]
    assert "1.5 × | mean return −20 | 1970-01-01 | 0123456+ |" in rows[1]
    assert text.startswith("# Measured\n\n")
    assert text.endswith(f"{END}\n\nafter\n")


def test_check_fails_until_the_table_is_written_and_changes_nothing(tmp_path: Path, flags: list[str]) -> None:
    assert tables.main([*flags, "--check"]) == 1
    assert (tmp_path / "measured.md").read_text(encoding="utf-8") == MEASURED
    assert tables.main(flags) == 0
    assert tables.main([*flags, "--check"]) == 0
    put_record(tmp_path / "records", "speed", unix_s=1.0, headline="1.1 ×")
    assert tables.main([*flags, "--check"]) == 1


def test_a_page_without_marks_is_refused(tmp_path: Path, flags: list[str]) -> None:
    (tmp_path / "measured.md").write_text("# Measured\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="records:begin"):
        tables.main(flags)


def algorithm_row(page: Path, name: str) -> list[str]:
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith(f"| `{name}` |")]
    assert len(lines) == 1
    return lines[0].strip("| ").split(" | ")


def test_every_algorithm_has_a_row_with_dashes_where_nothing_is_recorded(tmp_path: Path, flags: list[str]) -> None:
    assert tables.main(flags) == 0
    for name, entry in ALGORITHMS.items():
        row = algorithm_row(tmp_path / "algorithms.md", name)
        assert row == [f"`{name}`", entry.changes, entry.paper, *["–"] * 6]


def test_the_row_of_an_algorithm_holds_what_the_newest_records_say(tmp_path: Path, flags: list[str]) -> None:
    reached = {
        "algorithms-cartpole-v1": {"seeds": 3, "seeds_passed": 2, "first_reached_steps": 61_200.5},
        "algorithms-acrobot-v1": {"seeds": 3, "seeds_passed": 3, "first_reached_steps": 25_600},
        "algorithms-catch": {"seeds": 1, "seeds_passed": 0, "first_reached_steps": None},
        "algorithms-pong-speed": {"steps_per_s": 163.4},
        "algorithms-pong-score": {"mean_return": -3.25},
    }
    for name, result in reached.items():
        put_record(tmp_path / "records", name, unix_s=2.0, summary={"algorithms": {"dqn": result}})
        put_record(tmp_path / "records", name, unix_s=1.0, summary={"algorithms": {}})
    assert tables.main(flags) == 0
    assert algorithm_row(tmp_path / "algorithms.md", "dqn")[3:] == [
        "2 of 3, 61,200",
        "3 of 3, 25,600",
        "–",
        "–",
        "163",
        "−3.2",
    ]
    assert algorithm_row(tmp_path / "algorithms.md", "ppo")[3:] == ["–"] * 6


def test_check_fails_where_only_the_page_of_algorithms_is_out_of_date(tmp_path: Path, flags: list[str]) -> None:
    assert tables.main(flags) == 0
    (tmp_path / "algorithms.md").write_text(PAGE, encoding="utf-8")
    assert tables.main([*flags, "--check"]) == 1
    assert (tmp_path / "algorithms.md").read_text(encoding="utf-8") == PAGE


def study_row(algorithm: str, cores: float, **values: object) -> dict[str, object]:
    measures = ("steps_per_s", "updates_per_s", "cpu_s_per_1000_steps", "final_return", "return_gained_per_cpu_minute")
    rest = {"algorithm": algorithm, "batch_size": 32, "learner_threads": 2, "cpu_cores_used": cores}
    return {"summary": {**dict.fromkeys(measures), **rest, **values}}


def test_a_study_is_a_row_per_algorithm_with_an_interval_where_there_are_several_runs() -> None:
    rows = [
        study_row("ppo", 1.75, final_return=-0.25),
        study_row("dqn", 1.5, steps_per_s=200.0),
        {"error": "it fell over"},
        study_row("dqn", 1.7, steps_per_s=220.0),
        study_row("dqn", 1.6, steps_per_s=210.0),
    ]
    lines = make_study_table({"utilisation-catch": {"repeats": rows}}, "catch").splitlines()
    assert lines[2:] == [
        # t of 0.95 and two degrees of freedom is 2.920: 1.6 ± 2.920 × 0.1 ÷ √3, and 210 ± 2.920 × 10 ÷ √3
        "| dqn | 3 | 1.60 (1.43 … 1.77) | 210 (193 … 227) | – | – | – | – |",
        "| ppo | 1 | 1.75 | – | – | – | −0.25 | – |",
    ]


def test_a_sweep_is_a_row_per_batch_size_and_threads() -> None:
    rows = [study_row("dqn", 1.0, batch_size=size, learner_threads=threads) for threads in (2, 1) for size in (64, 16)]
    lines = make_study_table({"utilisation-sweep": {"repeats": rows}}, "sweep").splitlines()
    assert [line.split(" | ")[:2] for line in lines[2:]] == [["| 16", "1"], ["| 64", "1"], ["| 16", "2"], ["| 64", "2"]]


def test_what_was_not_recorded_is_said() -> None:
    assert make_study_table({}, "pong") == describe_overhead({}) == "Nothing is recorded yet."

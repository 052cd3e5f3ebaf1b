"""The README's table follows the records."""

import json
from pathlib import Path

import pytest

import tables

README = f"# Redline\n\n## Measured\n{tables.BEGIN}\nold\n{tables.END}\n\nafter\n"


def put_record(folder: Path, name: str, *, unix_s: float, headline: str, passed: bool | None = True) -> None:
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
    }
    (folder / f"{name}-{unix_s:.0f}.json").write_text(json.dumps(record), encoding="utf-8")


@pytest.fixture
def flags(tmp_path: Path) -> list[str]:
    records = tmp_path / "records"
    records.mkdir()
    (tmp_path / "README.md").write_text(README, encoding="utf-8")
    return ["--readme", str(tmp_path / "README.md"), "--records", str(records)]


def test_the_newest_record_of_each_name_stands_in_the_table(tmp_path: Path, flags: list[str]) -> None:
    put_record(tmp_path / "records", "speed", unix_s=9.0, headline="1.1 ×")
    put_record(tmp_path / "records", "speed", unix_s=10.0, headline="1.5 ×")
    put_record(tmp_path / "records", "memory", unix_s=5.0, headline="+9 % | bad", passed=False)
    assert tables.main(flags) == 0
    text = (tmp_path / "README.md").read_text(encoding="utf-8")
    rows = [line for line in text.splitlines() if line.startswith("| title of")]
    assert [row.split(" | ")[0] for row in rows] == ["| title of memory", "| title of speed"]
    assert r"+9 % \| bad — **not met**" in rows[0]
    assert "1.5 × | mean return −20 | 1970-01-01 | 0123456+ |" in rows[1]
    assert text.startswith("# Redline\n\n## Measured\n")
    assert text.endswith(f"{tables.END}\n\nafter\n")


def test_check_fails_until_the_table_is_written_and_changes_nothing(tmp_path: Path, flags: list[str]) -> None:
    assert tables.main([*flags, "--check"]) == 1
    assert (tmp_path / "README.md").read_text(encoding="utf-8") == README
    assert tables.main(flags) == 0
    assert tables.main([*flags, "--check"]) == 0
    put_record(tmp_path / "records", "speed", unix_s=1.0, headline="1.1 ×")
    assert tables.main([*flags, "--check"]) == 1


def test_a_readme_without_marks_is_refused(tmp_path: Path, flags: list[str]) -> None:
    (tmp_path / "README.md").write_text("# Redline\n", encoding="utf-8")
    with pytest.raises(SystemExit, match="records:begin"):
        tables.main(flags)

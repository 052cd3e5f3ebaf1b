import json
import subprocess
import sys
from pathlib import Path

import pytest

from redline.jsonl import MAX_LINE_BYTES, RecordWriter, cut_after, read_records

DRIVER = Path(__file__).with_name("kill_driver.py")


def steps_in(path: Path) -> list[int]:
    return [row["steps"] for row in read_records(path)]


@pytest.fixture
def episodes(tmp_path: Path) -> Path:
    path = tmp_path / "run" / "episodes.jsonl"
    path.parent.mkdir()
    with RecordWriter(path) as writer:
        for steps in (50, 100, 101, 150):
            writer.write({"steps": steps})
    return path


def test_rows_beyond_the_checkpoint_move_to_the_lost_file(episodes: Path) -> None:
    assert cut_after(episodes, 100) == 2
    assert steps_in(episodes) == [50, 100]
    assert steps_in(episodes.with_name("episodes.lost.jsonl")) == [101, 150]


def test_second_cut_appends_to_the_lost_file(episodes: Path) -> None:
    cut_after(episodes, 100)
    with RecordWriter(episodes) as writer:
        writer.write({"steps": 120})
    assert cut_after(episodes, 100) == 1
    assert steps_in(episodes.with_name("episodes.lost.jsonl")) == [101, 150, 120]


def test_cut_that_takes_nothing_leaves_the_file_alone(episodes: Path) -> None:
    before = episodes.stat()
    assert cut_after(episodes, 150) == 0
    assert episodes.stat().st_ino == before.st_ino
    assert not episodes.with_name("episodes.lost.jsonl").exists()


def test_cut_of_a_record_that_was_never_written_takes_nothing(tmp_path: Path) -> None:
    assert cut_after(tmp_path / "hardware.jsonl", 0) == 0


def test_rows_without_steps_and_unreadable_lines_stay_and_the_torn_end_goes(tmp_path: Path) -> None:
    path = tmp_path / "hardware.jsonl"
    overlong = b"x" * (MAX_LINE_BYTES + 10) + b"\n"
    kept = b'{"cpu":1}\nnot json\n' + overlong + b'{"steps":null}\n'
    path.write_bytes(b'{"steps":2}\n' + kept + b'{"ste')
    assert cut_after(path, 1) == 1
    assert path.read_bytes() == kept


def test_whole_last_row_without_newline_is_kept_or_moved_whole(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"steps":2}\n{"steps":1}')
    assert cut_after(path, 1) == 1
    assert path.read_bytes() == b'{"steps":1}\n'
    path.write_bytes(b'{"steps":3}')
    assert cut_after(path, 1) == 1
    assert path.with_name("metrics.lost.jsonl").read_bytes() == b'{"steps":2}\n{"steps":3}\n'


def test_cut_killed_at_any_call_and_repeated_counts_every_row_once(episodes: Path, tmp_path: Path) -> None:
    episodes.with_name("episodes.lost.jsonl").write_bytes(b'{"steps":170}\n')
    command = [sys.executable, str(DRIVER), "cut", str(episodes.parent), str(tmp_path / "copies")]
    copies = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert copies > 6  # two files, each fsynced, replaced and its directory fsynced
    for copy in range(1, copies + 1):
        path = tmp_path / "copies" / str(copy) / "episodes.jsonl"
        assert steps_in(path) in ([50, 100, 101, 150], [50, 100])
        cut_after(path, 100)
        assert steps_in(path) == [50, 100]
        assert steps_in(path.with_name("episodes.lost.jsonl")) == [170, 101, 150]


def test_rows_of_an_evaluation_that_the_checkpoint_does_not_count_are_lost_too(tmp_path: Path) -> None:
    path = tmp_path / "episodes.jsonl"
    rows = [{"steps": 90, "role": "actor"}, {"steps": 90, "evaluation": 3}, {"steps": 90, "evaluation": 4}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert cut_after(path, 100, evaluations=3) == 1
    assert [json.loads(line) for line in path.read_text().splitlines()] == rows[:2]

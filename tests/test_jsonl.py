import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redline.jsonl import (
    MAX_LINE_BYTES,
    MAX_TAIL_BYTES,
    RecordTail,
    RecordWriter,
    encode_row,
    measured,
    plain_text,
    read_records,
    scan_records,
    tamed,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def test_row_is_visible_before_the_file_is_closed(path: Path) -> None:
    with RecordWriter(path) as writer:
        writer.write({"steps": 4})
        assert path.read_bytes() == b'{"schema":1,"steps":4}\n'


def test_nan_and_infinities_are_written_as_null_at_any_depth() -> None:
    row = {"loss": math.nan, "q": [1.0, math.inf], "by_lane": {"a": np.float32("-inf")}}
    assert json.loads(encode_row(row)) == {"schema": 1, "loss": None, "q": [1.0, None], "by_lane": {"a": None}}


def test_numpy_scalars_are_written_as_numbers() -> None:
    row = {"a": np.float32(0.5), "b": np.int64(7), "c": np.bool_(True), "d": np.array([1, 2]), "e": np.float64(2)}
    assert json.loads(encode_row(row)) == {"schema": 1, "a": 0.5, "b": 7, "c": True, "d": [1, 2], "e": 2.0}


def test_value_that_json_cannot_hold_is_refused() -> None:
    with pytest.raises(TypeError, match="object cannot be written as JSON"):
        encode_row({"a": object()})


def test_row_that_no_reader_would_accept_is_refused() -> None:
    with pytest.raises(ValueError, match="readers accept 1_000_000"):
        encode_row({"text": "x" * MAX_LINE_BYTES})


def test_appending_keeps_earlier_rows(path: Path) -> None:
    for steps in (1, 2):
        with RecordWriter(path) as writer:
            writer.write({"steps": steps})
            writer.sync()
    assert [row["steps"] for row in read_records(path)] == [1, 2]


def test_closed_writer_refuses_rows(path: Path) -> None:
    writer = RecordWriter(path)
    writer.close()
    writer.close()
    with pytest.raises(ValueError, match="is closed"):
        writer.write({"steps": 1})


@given(cut=st.integers(min_value=0, max_value=100))
def test_file_torn_anywhere_loses_at_most_the_last_row(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    path = tmp_path_factory.mktemp("torn") / "metrics.jsonl"
    rows = [{"schema": 1, "steps": steps, "note": "ä"} for steps in range(2)]
    lines = [encode_row(row) for row in rows]
    content = b"".join(lines)[:cut]
    path.write_bytes(content)
    # a row is whole when its object is, with or without the newline
    whole = sum(len(content) >= end for end in (len(lines[0]) - 1, len(lines[0] + lines[1]) - 1))
    assert read_records(path) == rows[:whole]
    with RecordWriter(path) as writer:
        writer.write({"steps": 99})
    assert read_records(path) == [*rows[:whole], {"schema": 1, "steps": 99}]
    assert scan_records(path).unreadable_lines == 0


def test_scan_counts_unreadable_lines_and_tells_of_a_torn_end(path: Path) -> None:
    path.write_bytes(b'{"a":1}\nnot json\n[1]\n\xff\xfe\n' + b"[" * 100_000 + b'\n{"a":2}\n{"a":')
    scan = scan_records(path)
    assert scan.rows == [{"a": 1}, {"a": 2}]
    assert scan.unreadable_lines == 4
    assert scan.is_torn


def test_line_beyond_the_limit_is_skipped_as_one(path: Path) -> None:
    path.write_bytes(b'{"a":1}\n' + b"x" * (2 * MAX_LINE_BYTES) + b'{"a":3}\n{"a":2}\n')
    scan = scan_records(path)
    assert scan.rows == [{"a": 1}, {"a": 2}]
    assert scan.unreadable_lines == 1
    assert not scan.is_torn


def test_row_is_never_glued_to_an_overlong_torn_line(path: Path) -> None:
    path.write_bytes(b'{"a":1}\n' + b"x" * (2 * MAX_LINE_BYTES))
    with RecordWriter(path) as writer:
        writer.write({"a": 2})
    assert [row["a"] for row in read_records(path)] == [1, 2]


FILE_SIZE_LIMITED = """
import resource, sys
from pathlib import Path
from redline.jsonl import RecordWriter

resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
with RecordWriter(Path(sys.argv[1])) as writer:
    writer.write({"steps": 1})
    try:
        writer.write({"note": "x" * 200})
    except OSError as error:
        sys.stdout.write(str(error.filename))
    writer.write({"steps": 2})
"""


def test_row_that_the_disk_takes_only_in_part_is_removed(path: Path) -> None:
    command = [sys.executable, "-c", FILE_SIZE_LIMITED, str(path)]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    assert result.stdout == str(path)
    assert path.read_bytes() == b'{"schema":1,"steps":1}\n{"schema":1,"steps":2}\n'


def test_nan_written_by_other_programs_is_read_as_none(path: Path) -> None:
    path.write_bytes(b'{"loss":NaN}\n')
    assert read_records(path) == [{"loss": None}]


def test_missing_file_is_an_error_and_not_an_empty_record(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_records(path)


def test_a_tail_gives_each_whole_row_once_and_waits_for_a_torn_one(path: Path) -> None:
    tail = RecordTail(path)
    assert tail.new_rows() == []
    path.write_bytes(b'{"a":1}\nnot json\n{"a":')
    assert tail.new_rows() == [{"a": 1}]
    with path.open("ab") as file:
        file.write(b"2}\n")
    assert tail.new_rows() == [{"a": 2}]
    assert tail.new_rows() == []


def test_a_tail_begins_anew_where_the_file_was_replaced_or_cut(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b'{"a":1}\n{"a":2}\n')
    tail = RecordTail(path)
    tail.new_rows()
    replacement = tmp_path / "replacement"
    replacement.write_bytes(b'{"a":3}\n{"a":4}\n')
    replacement.replace(path)
    assert tail.new_rows() == [{"a": 3}, {"a": 4}]
    path.write_bytes(b'{"a":5}\n')
    assert tail.new_rows() == [{"a": 5}]


def test_a_tail_of_so_many_bytes_leaves_out_what_is_older(path: Path) -> None:
    path.write_bytes(b"".join(b'{"a":%d}\n' % number for number in range(9)))
    assert RecordTail(path, last_bytes=20).new_rows() == [{"a": 7}, {"a": 8}]
    assert len(RecordTail(path, last_bytes=2000).new_rows()) == 9


def test_a_tail_skips_a_line_beyond_the_limit_as_one(path: Path) -> None:
    tail = RecordTail(path)
    path.write_bytes(b'{"a":1}\n' + b"[" * MAX_LINE_BYTES)
    assert tail.new_rows() == [{"a": 1}]
    with path.open("ab") as file:
        file.write(b'{"a":2}')
    assert tail.new_rows() == []
    with path.open("ab") as file:
        file.write(b'\n{"a":3}\n')
    assert tail.new_rows() == [{"a": 3}]


def test_a_tail_that_skips_a_line_begins_anew_in_another_file(path: Path) -> None:
    tail = RecordTail(path)
    path.write_bytes(b"[" * MAX_LINE_BYTES)
    tail.new_rows()
    path.write_bytes(b'{"a":1}\n')
    assert tail.new_rows() == [{"a": 1}]


def test_a_tail_reads_no_more_than_its_limit_at_once(path: Path) -> None:
    line = encode_row({"text": "x" * 900_000})
    path.write_bytes(line * 20)
    tail = RecordTail(path)
    counts = [len(tail.new_rows()) for _ in range(3)]
    assert counts == [-(-MAX_TAIL_BYTES // len(line)), 20 - -(-MAX_TAIL_BYTES // len(line)), 0]


def test_a_tail_of_a_file_of_many_gigabytes_reads_its_end(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(30 << 30)  # takes no room
        file.seek(0, os.SEEK_END)
        file.write(b'\n{"a":1}\n')
    assert RecordTail(path, last_bytes=1_000).new_rows() == [{"a": 1}]


def test_a_tail_of_a_pipe_or_a_folder_is_empty_and_does_not_wait(path: Path) -> None:
    os.mkfifo(path)
    assert RecordTail(path).new_rows() == []
    assert RecordTail(path.parent).new_rows() == []
    assert RecordTail(Path(os.devnull)).new_rows() == []


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 10**400, -(10**400), True, "1", None, [1]])
def test_what_is_no_number_of_sane_size_was_not_measured(value: object) -> None:
    assert measured(value) is None


@pytest.mark.parametrize("value", [0, -1.5, 1.8e9, 2**63, 3.4e38])
def test_a_count_or_a_float_was_measured(value: float) -> None:
    assert measured(value) is value


def test_a_tamed_row_is_the_same_but_for_what_nobody_can_have_written() -> None:
    row = {"a": 1, "b": [True, "x", None, {"c": 0.5}]}
    assert tamed(row) == row
    assert tamed({"a": math.inf, "b": [{"c": 10**400}, math.nan]}) == {"a": None, "b": [{"c": None}, None]}


def test_a_tamed_row_can_be_written_however_deep_it_was() -> None:
    deep = json.loads('{"a":' + "[" * 900 + "]" * 900 + "}")
    assert len(encode_row(tamed(deep))) < 100


def test_plain_text_is_one_short_line_that_no_terminal_obeys() -> None:
    assert plain_text("\x1b[2J\r\n\u202e\ud800é") == " [2J    é"
    assert plain_text("x" * 500) == "x" * 200 + "…"


def test_tail_notices_a_file_that_was_cut_and_grew_again_between_two_looks(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": 2}\n')
    tail = RecordTail(path)
    assert tail.new_rows() == [{"a": 1}, {"a": 2}]
    assert (tail.beginnings, tail.read_bytes) == (1, 18)
    path.write_bytes(b'{"a": 1}\n{"a": 7}\n{"a": 8}\n')  # the same inode, and longer than before
    assert tail.new_rows() == [{"a": 1}, {"a": 7}, {"a": 8}]
    assert tail.beginnings == 2


def test_tail_follows_no_link_if_told_so(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b'{"a": 1}\n')
    link = tmp_path / "link.jsonl"
    link.symlink_to("rows.jsonl")
    assert RecordTail(link).new_rows() == [{"a": 1}]
    assert RecordTail(link, follow_links=False).new_rows() == []

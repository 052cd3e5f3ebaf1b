import math
import re
from pathlib import Path

import pytest

from redline.jsonl import RecordTail, Row
from redline.monitor.hardware import FIELDS, flat, means

PAGE = Path(__file__).parents[2] / "docs" / "monitor.md"


def row(moment: float, interval_s: float, **values: object) -> Row:
    return {"schema": 1, "unix_s": moment, "interval_s": interval_s, **values}


def test_numbers_have_dotted_names() -> None:
    sample = row(
        5.0,
        1.0,
        core_busy=[0.5, 1.0],
        roles={"learner": {"cpu_cores_used": 1.5}},
        gpus=[{"index": 3, "name": "A", "power_w": 70.5, "throttle_reasons": ["x"], "processes": [{"pid": 7}]}],
        watched=[{"pid": 1}],
    )
    assert flat(sample) == {
        "unix_s": 5.0,
        "interval_s": 1.0,
        "core_busy.0": 0.5,
        "core_busy.1": 1.0,
        "roles.learner.cpu_cores_used": 1.5,
        "gpus.3.power_w": 70.5,
    }


def test_what_is_no_number_is_left_out() -> None:
    assert flat({"a": None, "b": math.nan, "c": math.inf, "d": True, "e": "x", "f": [None, {}], "g": 10**400}) == {}


def test_a_mean_weighs_a_sample_by_its_overlap_with_the_span() -> None:
    rows = [row(1.0, 1.0, x=10.0), row(3.0, 2.0, x=20.0), row(4.0, 1.0, x=1000.0)]
    # from 0.5 to 2.5: half a second of 10, one and a half of 20
    assert means(rows, begin_unix_s=0.5, end_unix_s=2.5) == {"x": pytest.approx((0.5 * 10 + 1.5 * 20) / 2)}


def test_a_value_that_only_some_samples_have_is_the_mean_of_those() -> None:
    rows = [row(1.0, 1.0, x=1.0), row(2.0, 1.0, x=3.0, pss_bytes=8)]
    assert means(rows, begin_unix_s=0.0, end_unix_s=2.0) == {"x": 2.0, "pss_bytes": 8.0}


def test_counters_have_no_mean_and_an_empty_span_has_none() -> None:
    rows = [row(1.0, 1.0, cpu_s=5.0, monitor_cpu_s=1.0, x=1.0)]
    assert means(rows, begin_unix_s=0.0, end_unix_s=1.0) == {"x": 1.0}
    assert means(rows, begin_unix_s=2.0, end_unix_s=3.0) == {}
    assert means([{"x": 1.0}], begin_unix_s=0.0, end_unix_s=3.0) == {}


def test_the_page_names_every_field_with_its_unit() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name, field in FIELDS.items():
        assert re.search(
            rf"^\| `{re.escape(name)}` \| {re.escape(field.unit)} \| {re.escape(field.meaning)}", text, re.M
        )


def test_a_tail_gives_whole_lines_once(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    tail = RecordTail(path)
    assert tail.new_rows() == []
    path.write_text('{"a": 1}\n{"a": 2')
    assert tail.new_rows() == [{"a": 1}]
    with path.open("a") as file:
        file.write('}\nnonsense\n{"a": 3}\n')
    assert tail.new_rows() == [{"a": 2}, {"a": 3}]
    assert tail.new_rows() == []
    path.write_text('{"a": 4}\n')  # cut and begun anew
    assert tail.new_rows() == [{"a": 4}]

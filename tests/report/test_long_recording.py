"""A recording of any length is read in bounded memory, and its means and sums stay what they were."""

import pytest
from made_runs import T0, collected, sample

from redline.report import rows as report_rows
from redline.report.hardware_use import Samples


def test_neighbours_become_their_mean() -> None:
    rows = [
        sample(1.0, 1.0, cpu_s=1.0, core_busy=[0.0, 1.0], gpus=[{"index": 0, "power_w": 10.0}], watched=[1]),
        sample(4.0, 3.0, cpu_s=2.0, core_busy=[1.0, 1.0], gpus=[{"index": 0, "power_w": 50.0}], pss_bytes=5),
    ]
    found = collected(rows, max_samples=1)
    busy = {"core_busy.0": 0.75, "core_busy.1": 1.0, "gpus.0.power_w": 40.0}
    assert found.rows == [sample(4.0, 4.0, cpu_s=2.0, pss_bytes=5, **busy)]
    assert found.problems == [
        "hardware.jsonl: 2 samples were averaged to 1, so peaks are a little lower than they were."
    ]


def test_means_and_sums_survive() -> None:
    rows = [
        sample(float(n), cpu_s=0.5 * n, rss_bytes=float(n % 7), gpus=[{"power_w": float(n)}]) for n in range(1, 1_001)
    ]
    again = [{**sample(2_000.0 + n, cpu_s=2.0 * n), "elapsed_s": float(n)} for n in range(1, 11)]
    few, many = (Samples(collected([*rows, *again], max_samples=most).rows) for most in (100, 10_000))
    assert (len(few.rows) < 200, len(many.rows)) == (True, 1_010)
    for name in ("cpu_s", "energy_j"):
        assert few.total(name) == pytest.approx(many.total(name))
    span = [(T0, T0 + 3_000.0)]
    assert few.means(span) == [pytest.approx(found) for found in many.means(span)]


def test_samples_that_do_not_follow_each_other_are_not_merged() -> None:
    rows = [sample(1.0), {"unix_s": "x"}, sample(2.5), sample(9.0), {**sample(10.0), "elapsed_s": None}, {"schema": 1}]
    assert len(collected(rows, max_samples=1).rows) == 4


def test_samples_that_cannot_be_merged_are_not_tried_again_at_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[int] = []
    halve = report_rows._halved
    monkeypatch.setattr(report_rows, "_halved", lambda rows: tried.append(len(rows)) or halve(rows))
    rows = [{**sample(10.0 * n), "elapsed_s": None} for n in range(1, 1_001)]
    assert len(collected(rows, max_samples=50).rows) == 1_000
    assert tried == [100, 200, 400, 800]

"""A recording of any length is read in bounded memory, and its means and sums stay what they were."""

from pathlib import Path

import pytest
from made_runs import T0, sample, write_run

from redline.report import rows as report_rows
from redline.report.hardware_use import spending
from redline.report.rows import clean, scan_samples
from redline.report.run_series import Integrals


def test_neighbours_become_their_mean(tmp_path: Path) -> None:
    rows = [
        sample(
            1.0, 1.0, cpu_s=1.0, core_busy=[0.0, 1.0], gpus=[{"index": 0, "name": "G", "power_w": 10.0}], watched=[1]
        ),
        sample(
            4.0, 3.0, cpu_s=2.0, core_busy=[1.0, 1.0], gpus=[{"index": 0, "name": "G", "power_w": 50.0}], pss_bytes=5
        ),
    ]
    scan, count = scan_samples(write_run(tmp_path / "run", hardware=rows) / "hardware.jsonl", max_samples=1)
    assert count == 2
    assert scan.rows == [
        {
            "schema": 1,
            **sample(4.0, 4.0, cpu_s=2.0, core_busy=[0.75, 1.0], pss_bytes=5),
            "gpus": [{"index": 0, "name": "G", "power_w": 40.0}],
        }
    ]


def test_means_and_sums_survive(tmp_path: Path) -> None:
    rows = [
        sample(float(n), cpu_s=0.5 * n, rss_bytes=float(n % 7), gpus=[{"power_w": float(n)}]) for n in range(1, 1_001)
    ]
    again = [{**sample(2_000.0 + n, cpu_s=2.0 * n), "elapsed_s": float(n)} for n in range(1, 11)]
    path = write_run(tmp_path / "run", hardware=[*rows, *again]) / "hardware.jsonl"
    scan, count = scan_samples(path, max_samples=100)
    assert count == 1_010
    assert len(scan.rows) < 200
    few, many = clean(scan.rows, "hardware").rows, clean([*rows, *again], "hardware").rows
    for name in ("cpu_s", "energy_j"):
        assert spending(few).total(name) == pytest.approx(spending(many).total(name))
    span = [(T0, T0 + 3_000.0)]
    assert Integrals(few).means(span) == [pytest.approx(found) for found in Integrals(many).means(span)]


def test_rows_that_are_no_samples_are_not_merged(tmp_path: Path) -> None:
    rows = [sample(1.0), {"unix_s": "x"}, sample(2.0), sample(9.0), {**sample(10.0), "elapsed_s": None}, {"schema": 1}]
    scan, _ = scan_samples(write_run(tmp_path / "run", hardware=rows) / "hardware.jsonl", max_samples=1)
    assert len(scan.rows) == 6


def test_samples_that_cannot_be_merged_are_not_tried_again_at_each_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []
    halve = report_rows._halved
    monkeypatch.setattr(report_rows, "_halved", lambda rows: tried.append(len(rows)) or halve(rows))
    rows = [{**sample(10.0 * n), "elapsed_s": None} for n in range(1, 1_001)]
    scan, _ = scan_samples(write_run(tmp_path / "run", hardware=rows) / "hardware.jsonl", max_samples=50)
    assert tried == [100, 200, 400, 800]
    assert len(scan.rows) == 1_000

"""What the monitor says of a process against what the process's own counters say, over the same window."""

from pathlib import Path
from typing import Any

import pytest
from busy_workers import BURN, HOLD, SHORT_LIVES, WRITE, worker

from redline.jsonl import Row, read_records
from redline.monitor import record

WITHIN = 0.05


def watch(work: str, out: Path, *args: str, hz: float = 10.0) -> tuple[list[Row], dict[str, Any]]:
    """Return the samples taken while a process worked, and what it says of itself."""
    with worker(work, *args) as process, record(out, pid=process.pid, hz=hz) as recording:
        told = process.work()
        recording.close()
    return read_records(out / "hardware.jsonl"), told


def integral(rows: list[Row], name: str) -> float:
    return float(sum(row[name] * row["interval_s"] for row in rows))


def test_cpu_time_is_that_of_getrusage(tmp_path: Path) -> None:
    rows, told = watch(BURN, tmp_path)
    assert told["cpu_s"] > 0.9
    assert rows[-1]["cpu_s"] == pytest.approx(told["cpu_s"], rel=WITHIN)
    assert integral(rows, "cpu_cores_used") == pytest.approx(told["cpu_s"], rel=WITHIN)
    assert sum(row["roles"]["main"]["cpu_cores_used"] * row["interval_s"] for row in rows) == pytest.approx(
        told["cpu_s"], rel=WITHIN
    )


def test_children_that_live_between_two_samples_are_counted(tmp_path: Path) -> None:
    rows, told = watch(SHORT_LIVES, tmp_path, hz=0.5)
    assert told["cpu_s"] > 0.9
    assert rows[-1]["cpu_s"] == pytest.approx(told["cpu_s"], rel=WITHIN)


def test_memory_that_was_touched_is_held(tmp_path: Path) -> None:
    rows, told = watch(HOLD, tmp_path)
    assert told["rss_bytes"] > 300_000_000
    assert rows[-1]["rss_bytes"] == pytest.approx(told["rss_bytes"], rel=WITHIN)
    assert rows[-1]["rss_bytes"] - rows[-1]["shared_bytes"] > 295_000_000


def test_bytes_written_are_those_of_the_process(tmp_path: Path) -> None:
    rows, told = watch(WRITE, tmp_path, str(tmp_path / "written"))
    assert told["write_bytes"] >= 50_000_000
    assert integral(rows, "write_bytes_per_s") == pytest.approx(told["write_bytes"], rel=WITHIN)


def test_the_device_was_written_to_at_least_as_much(tmp_path: Path) -> None:
    rows, told = watch(WRITE, tmp_path, str(tmp_path / "written"))
    if "disk_write_bytes_per_s" not in rows[-1]:
        assert not any(Path("/sys/dev/block").glob("*/stat"))  # only where the kernel shows no devices
    else:
        assert integral(rows, "disk_write_bytes_per_s") > 0.9 * told["write_bytes"]

"""What processors draw, against counters in a folder made like the kernel's."""

import os
from pathlib import Path

import pytest

from redline.jsonl import RecordWriter, Row, read_records
from redline.monitor import machine
from redline.monitor.machine import EnergyTail, PowerProbe, power_of
from redline.monitor.sampling import HardwareRecorder


def make_zone(root: Path, zone: str, name: str, count: int, wraps_at: int = 1_000_000_000) -> Path:
    """Make a zone that has counted so many millionths of a joule, and return its counter."""
    folder = root / zone
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "max_energy_range_uj").write_text(f"{wraps_at}\n")
    (folder / "energy_uj").write_text(f"{count}\n")
    return folder / "energy_uj"


def test_power_is_the_energy_of_all_packages_and_their_memory_over_time(tmp_path: Path) -> None:
    first = make_zone(tmp_path, "intel-rapl:0", "package-0", 5_000_000)
    second = make_zone(tmp_path, "intel-rapl:1", "package-1", 0)
    memory = make_zone(tmp_path, "intel-rapl:0:1", "dram", 70)
    make_zone(tmp_path, "intel-rapl:0:0", "core", 0).write_text("9")  # a part of its package
    make_zone(tmp_path, "intel-rapl:2", "psys", 0)  # the whole board
    make_zone(tmp_path, "intel-rapl-mmio:0", "package-0", 5_000_000)  # the same package again
    probe = PowerProbe(tmp_path)
    assert probe.absent == {}
    first.write_text("65000000")  # 60 J
    second.write_text("30000000")  # 30 J
    memory.write_text("10000070")  # 10 J
    assert probe.sample(2.0) == {"cpu_power_w": pytest.approx(50.0)}
    assert probe.sample(2.0) == {"cpu_power_w": 0.0}


def test_a_counter_that_begins_again_loses_nothing(tmp_path: Path) -> None:
    counter = make_zone(tmp_path, "intel-rapl:0", "package-0", 90_000_000, wraps_at=100_000_000)
    probe = PowerProbe(tmp_path)
    counter.write_text("5000000")
    assert probe.sample(1.0) == {"cpu_power_w": pytest.approx(15.0)}


def test_a_machine_without_counters_says_so(tmp_path: Path) -> None:
    probe = PowerProbe(tmp_path / "none")
    assert probe.sample(1.0) == {}
    assert probe.absent == {"cpu_power_w": "no energy counters (RAPL)"}


def test_counters_that_cannot_be_read_are_told_apart(tmp_path: Path) -> None:
    make_zone(tmp_path, "intel-rapl:0", "package-0", 0).unlink()
    assert PowerProbe(tmp_path).absent == {"cpu_power_w": "its energy counters can't be read, perhaps only by root"}


def test_a_counter_that_is_lost_costs_its_samples_and_not_the_energy(tmp_path: Path) -> None:
    counter = make_zone(tmp_path, "intel-rapl:0", "package-0", 0)
    probe = PowerProbe(tmp_path)
    counter.write_text("")
    assert probe.sample(1.0) == {}
    counter.write_text("8000000")
    assert probe.sample(1.0) == {"cpu_power_w": pytest.approx(8.0)}


def test_power_is_that_of_processors_and_gpus_as_far_as_they_tell_it() -> None:
    assert power_of({"cpu_power_w": 50.0, "gpus": [{"power_w": 200.5}, {"index": 1}]}) == 250.5
    assert power_of({"gpus": [{"index": 0}]}) is None
    assert power_of({}) is None


@pytest.fixture
def counter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(machine, "POWERCAP", tmp_path / "powercap")
    return make_zone(tmp_path / "powercap", "intel-rapl:0", "package-0", 0)


def record(out: Path, counter: Path, *, joules: int) -> list[Row]:
    """Record two samples, with so much energy before the first, and return all rows of the file."""
    recorder = HardwareRecorder(os.getpid(), out, hz=20.0, say=lambda _: None)
    counter.write_text(str(int(counter.read_text()) + joules * 1_000_000))
    recorder.take()
    recorder.take()
    recorder.finish("closed")
    return read_records(out / "hardware.jsonl")


def test_energy_adds_up_over_all_recordings_in_a_folder(tmp_path: Path, counter: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    first = record(out, counter, joules=3)
    assert [row["machine_energy_j"] for row in first] == pytest.approx([3.0, 3.0])
    both = record(out, counter, joules=4)
    assert [row["machine_energy_j"] for row in both] == pytest.approx([3.0, 3.0, 7.0, 7.0])


def test_what_draws_nothing_known_has_no_energy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "POWERCAP", tmp_path / "none")
    (tmp_path / "count").write_text("0")
    assert all("machine_energy_j" not in row for row in record(tmp_path, tmp_path / "count", joules=1))


def test_the_newest_energy_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "hardware.jsonl"
    tail = EnergyTail(path)
    assert tail.read() == {}
    with RecordWriter(path) as writer:
        writer.write({"machine_energy_j": 1.0})
        assert tail.read() == {}  # of an earlier recording, it seems
        writer.write({"cpu_power_w": 40.0, "machine_energy_j": 41.0})
        writer.write({"cpu_power_w": 50.0, "gpus": [{"power_w": 100.0}], "machine_energy_j": 191.0})
        assert tail.read() == {"power_w": 150.0, "energy_j": 191.0}
        assert tail.read() == {"power_w": 150.0, "energy_j": 191.0}


def test_what_the_machine_does_not_tell_is_not_looked_for_again(tmp_path: Path) -> None:
    path = tmp_path / "hardware.jsonl"
    path.touch()
    tail = EnergyTail(path)
    tail.read()
    with RecordWriter(path) as writer:
        writer.write({"cpu_cores_used": 1.0})
        assert tail.read() == {}
        writer.write({"cpu_power_w": 50.0, "machine_energy_j": 1.0})
        assert tail.read() == {}

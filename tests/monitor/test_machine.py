import os
import time
from pathlib import Path

import psutil
import pytest

from redline.monitor import machine
from redline.monitor.machine import MachineProbe, machine_facts


def test_the_machine_tells_what_is_used_and_what_is_left(tmp_path: Path) -> None:
    probe = MachineProbe(tmp_path)
    time.sleep(0.05)
    row = probe.sample(0.05)
    assert len(row["core_busy"]) == os.cpu_count()
    assert all(0.0 <= share <= 1.0 for share in row["core_busy"])
    assert row["machine_cpu_cores_used"] == pytest.approx(sum(row["core_busy"]))
    assert 0 < row["memory_available_bytes"] <= machine_facts()["memory_total_bytes"]
    facts = os.statvfs(tmp_path)
    assert row["disk_free_bytes"] == pytest.approx(facts.f_bavail * facts.f_frsize, rel=0.05)
    assert row["load_average_1m"] >= 0.0


def test_a_core_is_as_busy_as_its_clock_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal", "guest", "guest_nice")
    seconds = iter(
        [
            [dict.fromkeys(names, 10.0), dict.fromkeys(names, 10.0)],
            # 1 s user, of it 1 s of a guest, 2 s idle, 1 s stolen; and 4 s of waiting for a disk
            [
                dict.fromkeys(names, 10.0) | {"user": 11.0, "guest": 11.0, "idle": 12.0, "steal": 11.0},
                dict.fromkeys(names, 10.0) | {"iowait": 14.0},
            ],
        ]
    )
    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: [tuple(core.values()) for core in next(seconds)])
    assert MachineProbe(tmp_path).sample(4.0)["core_busy"] == [0.25, 0.0]


def test_what_a_machine_does_not_tell_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("not here")

    monkeypatch.setattr(os, "getloadavg", refuse)
    for name in ("virtual_memory", "disk_usage", "cpu_times"):
        monkeypatch.setattr(psutil, name, refuse)
    monkeypatch.setattr(machine, "SYS_BLOCK", tmp_path / "none")
    monkeypatch.setattr(machine, "MEMINFO", tmp_path / "none")
    assert MachineProbe(tmp_path).sample(1.0) == {}
    assert machine_facts() == {"cores": os.cpu_count()}
    monkeypatch.delattr(os, "getloadavg")  # as on Windows
    assert machine.read_load_average() is None


def test_a_folder_that_is_gone_costs_only_its_own_values(tmp_path: Path) -> None:
    probe = MachineProbe(tmp_path / "gone")
    time.sleep(0.05)
    row = probe.sample(0.05)
    assert "disk_free_bytes" not in row
    assert probe.absent.keys() == {"disk_read_bytes_per_s, disk_write_bytes_per_s"}
    assert "core_busy" in row

"""One look at a machine, also where it has no sensors and no control groups; processes by their runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from redline.fleet import machine_state
from redline.fleet.machine_state import Heat, read_heat, read_machine, read_oom_kills, read_space
from redline.fleet.process_table import private_bytes, read_processes


def test_this_machine_tells_what_it_has(tmp_path: Path) -> None:
    state = read_machine(tmp_path)
    assert len(state.boot_id) == 36
    assert 0 < state.memory_available_bytes <= psutil.virtual_memory().total
    assert state.disk is not None
    assert 0 < state.disk.free_bytes <= state.disk.total_bytes


def test_missing_folder_has_no_space(tmp_path: Path) -> None:
    assert read_space(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("membership", "file", "content", "expected"),
    [
        ("0::/job\n", "job/memory.events", "low 0\nhigh 3\nmax 9\noom 2\noom_kill 5\n", 5),
        ("4:memory:/job\n0::/\n", "memory/job/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n", 3),
        ("0::/job\n", "vmstat", "nr_free_pages 7\noom_kill 2\n", 2),
        ("0::/job\n", "vmstat", "nr_free_pages 7\n", None),
        ("0::/job\n", "none", "", None),
        ("damaged", "vmstat", "oom_kill many\n", None),
    ],
)
def test_kills_for_memory_are_counted_where_the_kernel_counts_them(
    tmp_path: Path, membership: str, file: str, content: str, expected: int | None
) -> None:
    (tmp_path / "membership").write_text(membership, encoding="ascii")
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(content, encoding="ascii")
    assert read_oom_kills(tmp_path, tmp_path / "membership", tmp_path / "vmstat") == expected


def test_sensor_nearest_to_its_limit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    def sensor(label: str, current: float, critical: float | None) -> SimpleNamespace:
        return SimpleNamespace(label=label, current=current, high=None, critical=critical)

    sensors = {"cpu": [sensor("core 0", 80.0, 105.0), sensor("", 60.0, 65.0)], "disk": [sensor("nvme", 70.0, None)]}
    monkeypatch.setattr(machine_state.psutil, "sensors_temperatures", lambda: sensors)
    assert read_heat() == Heat("cpu", 60.0, 65.0)


def test_machine_without_sensors_has_no_heat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_state.psutil, "sensors_temperatures", dict)
    assert read_heat() is None
    monkeypatch.delattr(machine_state.psutil, "sensors_temperatures")
    assert read_heat() is None


def test_processes_belong_to_a_run_by_descent_and_by_session() -> None:
    begun = subprocess.Popen(["sh", "-c", "sleep 60 & sleep 60 & wait"], start_new_session=True)
    try:
        while len(children := psutil.Process(begun.pid).children()) < 2:
            pass
        table = read_processes()
        pids = {begun.pid, *(child.pid for child in children)}
        assert {stat.pid for stat in table.tree(begun.pid)} == pids
        assert {stat.pid for stat in table.session(begun.pid)} == pids
        assert pids < {stat.pid for stat in table.tree(os.getpid())}
        assert 0 < private_bytes(table.tree(os.getpid())) < psutil.virtual_memory().total
        identities = [table.by_pid[pid].identity for pid in pids]
        begun.kill()
        begun.wait()
        table = read_processes()
        assert not table.is_living(begun.pid)
        assert {stat.pid for stat in table.session(begun.pid)} == {child.pid for child in children}
        assert len(table.living(identities)) == 2
    finally:
        os.killpg(begun.pid, 9)

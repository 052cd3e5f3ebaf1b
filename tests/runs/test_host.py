"""How much memory this process can still get."""

from __future__ import annotations

from pathlib import Path

import psutil

from redline.runs.host import available_bytes, cgroup_available_bytes


def write(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")


def test_control_group_version_2_with_a_tighter_parent(tmp_path: Path) -> None:
    write(tmp_path, {"membership": "0::/jobs/mine\n"})
    root = tmp_path / "cgroup"
    write(root / "jobs", {"memory.max": "1000\n", "memory.current": "700\n", "memory.stat": "inactive_file 50\n"})
    write(root / "jobs/mine", {"memory.max": "900\n", "memory.current": "100\n", "memory.stat": "anon 100\n"})
    assert cgroup_available_bytes(root, tmp_path / "membership") == 350


def test_control_group_without_a_limit(tmp_path: Path) -> None:
    write(tmp_path, {"membership": "0::/\n"})
    write(tmp_path / "cgroup", {"memory.max": "max\n", "memory.current": "700\n"})
    assert cgroup_available_bytes(tmp_path / "cgroup", tmp_path / "membership") is None


def test_control_group_version_1(tmp_path: Path) -> None:
    write(tmp_path, {"membership": "5:cpu:/\n4:memory:/job\n"})
    root = tmp_path / "cgroup"
    files = {"memory.limit_in_bytes": "800", "memory.usage_in_bytes": "300"}
    write(root / "memory/job", files | {"memory.stat": "total_inactive_file 20"})
    assert cgroup_available_bytes(root, tmp_path / "membership") == 520


def test_machine_without_control_groups(tmp_path: Path) -> None:
    assert cgroup_available_bytes(tmp_path, tmp_path / "none") is None


def test_available_is_never_more_than_the_machine_has() -> None:
    assert 0 < available_bytes() <= psutil.virtual_memory().total

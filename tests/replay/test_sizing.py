"""Whether a replay memory fits is known before it is allocated."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from redline.errors import UserError
from redline.replay import ReplayLayout, available_bytes, check_fits
from redline.replay.backing import cgroup_available_bytes

GB = 10**9
MILLION = ReplayLayout(capacity=1_000_000, frame_shape=(84, 84), frame_dtype="uint8", stack=4, lanes=8, codec="raw")


def test_a_million_pictures_need_what_they_need() -> None:
    assert 7.1 * GB < MILLION.num_bytes < 7.4 * GB


def test_capacity_that_fits_is_the_remedy() -> None:
    with pytest.raises(UserError) as error:
        check_fits(MILLION, free_ram_bytes=4 * GB, reserve_bytes=0)
    assert (
        str(error.value) == "replay needs 7.3 GB, 4.0 GB is free: use --replay.codec zstd or --replay.capacity 540_000"
    )


def test_the_remedy_fits_and_the_next_does_not() -> None:
    from dataclasses import replace

    for free in (1 * GB, 3 * GB, 7 * GB):
        with pytest.raises(UserError) as error:
            check_fits(MILLION, free_ram_bytes=free, reserve_bytes=GB // 2)
        capacity = int(str(error.value).rpartition(" ")[2])
        check_fits(replace(MILLION, capacity=capacity), free_ram_bytes=free, reserve_bytes=GB // 2)
        more = replace(MILLION, capacity=capacity + 10 ** (len(str(capacity)) - 2))
        assert more.num_bytes > free - GB // 2


def test_reserve_is_named_where_it_decides() -> None:
    with pytest.raises(
        UserError, match=r"needs 7.3 GB, 7.5 GB is free and [0-9.]+ MB of it is for the rest of the program: use"
    ):
        check_fits(MILLION, free_ram_bytes=int(7.5 * GB), reserve_bytes=GB // 2)


def test_without_room_for_anything_the_remedy_is_memory() -> None:
    with pytest.raises(UserError, match=r"[0-9.]+ MB is free: use --replay.codec zstd$"):
        check_fits(MILLION, free_ram_bytes=GB // 10)


def test_memory_that_fits_passes() -> None:
    check_fits(MILLION, free_ram_bytes=MILLION.num_bytes + 5, reserve_bytes=5)
    with pytest.raises(UserError):
        check_fits(MILLION, free_ram_bytes=MILLION.num_bytes + 4, reserve_bytes=5)


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

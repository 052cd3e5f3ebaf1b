"""Space is reserved before it is used, and a machine that has none left is an answer, not a crash."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from redline.errors import UserError
from redline.replay.backing import MARGIN_BYTES, Arena, Backing, Disk, Ram, ReplayError

PAGE = 4_096


@pytest.fixture(params=["ram", "disk"])
def backing(request: pytest.FixtureRequest, tmp_path: Path) -> Backing:
    return Ram(64 * PAGE) if request.param == "ram" else Disk(tmp_path)


def test_what_is_written_is_read(backing: Backing) -> None:
    assert backing.reserve(4 * PAGE)
    backing.write(100, b"abc")
    backing.write(3 * PAGE, memoryview(b"z" * PAGE))
    assert bytes(backing.read(100, 3)) == b"abc"
    assert bytes(backing.read(4 * PAGE - 1, 1)) == b"z"
    assert backing.reserved_bytes == 4 * PAGE
    backing.close()


def test_memory_that_the_machine_can_not_spare_is_not_taken() -> None:
    ram = Ram(64 * PAGE, free_bytes=lambda: MARGIN_BYTES + 2 * PAGE)
    assert ram.reserve(2 * PAGE)
    assert not ram.reserve(5 * PAGE)
    assert ram.reserved_bytes == 2 * PAGE
    assert ram.reserve(PAGE)  # reserved before


def test_memory_is_given_back_with_the_last_that_shows_it() -> None:
    process = psutil.Process()
    before = process.num_fds()
    ram = Ram(PAGE)
    assert process.num_fds() > before
    del ram
    assert process.num_fds() == before


def test_file_has_no_name_and_is_given_back(tmp_path: Path) -> None:
    disk = Disk(tmp_path / "new" / "folder")
    assert disk.reserve(10 * PAGE)
    assert list(tmp_path.rglob("*")) == [tmp_path / "new", tmp_path / "new" / "folder"]
    disk.close()
    with pytest.raises(ReplayError, match="can't be read"):
        disk.read(0, 1)


def test_folder_that_can_not_be_used_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match=r"replay.path can't be used: .*file.*: choose another folder"):
        Disk(tmp_path / "file")


def test_full_disk_is_noticed_before_anything_is_written(small_disk: Path) -> None:
    disk = Disk(small_disk)
    assert disk.reserve(100 * PAGE)
    assert not disk.reserve(1_000 * PAGE)
    disk.write(0, b"still here")
    assert disk.read(0, 10) == b"still here"


# The arena


def test_blobs_leave_in_order_and_their_room_is_used_again(backing: Backing) -> None:
    arena = Arena(backing, segment_bytes=PAGE, max_segments=4)
    held: list[tuple[int, bytes]] = []
    for number in range(500):
        blob = bytes([number % 256]) * (500 + 37 * number % 900)
        while not arena.has_room(len(blob)):
            offset, _ = held.pop(0)
            arena.drop(offset)
        held.append((arena.put(blob), blob))
        for offset, expected in held:
            assert bytes(backing.read(offset, len(expected))) == expected
        assert sum(len(blob) for _, blob in held) > (PAGE - 1_400) * 2 or number < 20
    assert backing.reserved_bytes == 4 * PAGE
    assert not arena.is_short


def test_segments_are_reserved_when_they_are_needed() -> None:
    ram = Ram(8 * PAGE)
    arena = Arena(ram, segment_bytes=PAGE, max_segments=8)
    assert ram.reserved_bytes == 0
    assert arena.has_room(10)
    arena.put(b"x" * 10)
    assert arena.has_room(10)
    assert ram.reserved_bytes == PAGE


def test_segments_ahead_are_there_before_they_are_needed() -> None:
    ram = Ram(8 * PAGE)
    arena = Arena(ram, segment_bytes=PAGE, max_segments=8, segments_ahead=3)
    assert arena.has_room(10)
    assert ram.reserved_bytes == 3 * PAGE


def test_an_arena_that_gets_no_more_says_so_and_goes_on_with_what_it_has() -> None:
    free = [MARGIN_BYTES + PAGE]
    arena = Arena(Ram(8 * PAGE, free_bytes=lambda: free[0]), segment_bytes=PAGE, max_segments=8)
    assert arena.has_room(PAGE)
    first = arena.put(b"x" * PAGE)
    free[0] = MARGIN_BYTES
    assert not arena.has_room(PAGE)
    assert arena.is_short
    arena.drop(first)
    assert not arena.has_room(PAGE)  # the current segment is not free before another takes its place

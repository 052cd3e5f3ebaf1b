"""Whether a replay memory fits is known before it is allocated."""

from __future__ import annotations

import pytest

from redline.errors import UserError
from redline.replay import ReplayLayout, check_fits

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

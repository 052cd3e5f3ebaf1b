"""Every codec gives back what it was given, and notices what is not its own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redline.errors import UserError
from redline.replay.frame_codec import CODECS, find_codec, max_encoded_bytes


@pytest.mark.parametrize("name", CODECS)
@given(data=st.one_of(st.binary(min_size=1, max_size=400), st.integers(1, 5_000).map(bytes)))
def test_frames_come_back_and_never_grow_beyond_the_bound(name: str, data: bytes) -> None:
    codec = find_codec(name)
    blob = codec.encode(memoryview(data))
    assert len(blob) <= max_encoded_bytes(len(data))
    out = bytearray(len(data))
    codec.decode_into(blob, memoryview(out))
    assert out == data


@pytest.mark.parametrize("name", CODECS)
def test_noise_of_a_whole_chunk_stays_within_the_bound(name: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, 16 * 84 * 84, np.uint8)
    assert len(find_codec(name).encode(noise.data)) <= max_encoded_bytes(noise.nbytes)


@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("length", [99, 101])
def test_another_length_than_expected_is_refused(name: str, length: int) -> None:
    codec = find_codec(name)
    blob = codec.encode(memoryview(bytes(range(100))))
    with pytest.raises(ValueError, match="replay chunk"):
        codec.decode_into(blob, memoryview(bytearray(length)))


@pytest.mark.parametrize("name", ["zstd", "lz4"])
def test_damaged_bytes_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="replay chunk"):
        find_codec(name).decode_into(b"\xff" * 50, memoryview(bytearray(100)))


def test_pictures_that_repeat_become_small() -> None:
    picture = np.random.default_rng(0).integers(0, 256, 7_056, np.uint8)
    chunk = np.tile(picture, 8)
    for name in ("zstd", "lz4"):
        assert len(find_codec(name).encode(chunk.data)) < 1.2 * picture.nbytes


def test_unknown_codec_is_a_user_error_with_the_nearest_name() -> None:
    with pytest.raises(UserError, match="unknown replay codec 'zst': did you mean zstd"):
        find_codec("zst")

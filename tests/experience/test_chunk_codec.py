"""A chunk as bytes says what it is, and nothing is allocated on the word of a stranger."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest
import zstandard

from redline.experience.chunk_codec import HEADER, MAGIC, PREFIX, SCHEMA, EncodedChunk, decode_chunk, encode_chunk

CHUNK = EncodedChunk(
    lane=3,
    chunk=2**40,
    first_number=2**41,
    num_transitions=2,
    columns={
        "frames": np.arange(12, dtype=np.float32).reshape(3, 2, 2),
        "action": np.array([5, 70_000, 0], np.int32),
        "reward": np.array([-1.5, 2.0, 0.0], np.float32),
        "step": np.array([7, 8, 9], np.int32),
        "flags": np.array([1, 7, 0], np.uint8),
    },
)


def decode(data: bytes, max_frames: int = 4) -> EncodedChunk:
    return decode_chunk(data, frame_shape=(2, 2), frame_dtype="float32", max_frames=max_frames)


def packed(*header: int, body: bytes) -> bytes:
    """Return a chunk with a right checksum over whatever it claims."""
    rest = HEADER.pack(*header) + body
    return PREFIX.pack(MAGIC, SCHEMA, zlib.crc32(rest)) + rest


def test_chunk_comes_back_as_it_was() -> None:
    found = decode(encode_chunk(CHUNK))
    assert replace(found, columns={}) == replace(CHUNK, columns={})
    for name, column in CHUNK.columns.items():
        np.testing.assert_array_equal(found.columns[name], column)
        assert found.columns[name].dtype == column.dtype


def test_every_damaged_byte_is_noticed() -> None:
    data = encode_chunk(CHUNK)
    for at in range(len(data)):
        damaged = data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]
        with pytest.raises(ValueError, match="replay chunk"):
            decode(damaged)


def test_more_frames_than_a_chunk_has_are_refused() -> None:
    with pytest.raises(ValueError, match="claims 3 frames, at most 2 are possible"):
        decode(encode_chunk(CHUNK), max_frames=2)


def test_bytes_that_would_swell_are_refused_before_they_do() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(10**7))
    with pytest.raises(ValueError, match="does not hold the 29 bytes that it claims"):
        decode(packed(0, 0, 0, 1, 1, body=bomb))


def test_bytes_that_are_no_zstd_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be decompressed"):
        decode(packed(0, 0, 0, 1, 1, body=b"not zstd at all"))


def test_more_transitions_than_frames_are_refused() -> None:
    with pytest.raises(ValueError, match="claims 1 frames and 2 transitions"):
        decode(packed(0, 0, 0, 1, 2, body=b""))

"""A block of chunks says what it is, and nothing is allocated on the word of a stranger."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest
import zstandard

from redline.replay.stored_form import HEADER, MAGIC, PREFIX, SCHEMA, StoredChunk, decode_block, encode_block

CHUNK = StoredChunk(
    lane=3,
    chunk=2**40,
    first_number=2**41,
    num_transitions=2,
    num_frames=3,
    rows={
        "action": np.array([5, 70_000, 0], np.int32),
        "reward": np.array([-1.5, 2.0, 0.0], np.float32),
        "step": np.array([7, 8, 9], np.int32),
        "flags": np.array([1, 7, 0], np.uint8),
    },
    codec="zstd",
    blob=b"some frames",
)
OTHER = replace(CHUNK, lane=4, chunk=1, num_frames=1, num_transitions=0, rows={}, blob=b"")
OTHER = replace(OTHER, rows={name: rows[2:] for name, rows in CHUNK.rows.items()})


def sealed(body: bytes) -> bytes:
    """Return a block with a right checksum over whatever it claims."""
    return PREFIX.pack(MAGIC, SCHEMA, zlib.crc32(body)) + body


def body_of(block: bytes) -> bytes:
    return block[PREFIX.size :]


def test_chunks_come_back_as_they_were() -> None:
    found = list(decode_block(encode_block([CHUNK, OTHER]), max_frames=4))
    assert len(found) == 2
    for chunk, expected in zip(found, (CHUNK, OTHER), strict=True):
        assert replace(chunk, rows={}, blob=b"") == replace(expected, rows={}, blob=b"")
        assert bytes(chunk.blob) == expected.blob
        for name, rows in expected.rows.items():
            assert chunk.rows[name].tolist() == rows.tolist()


@pytest.mark.parametrize("chunks", [[], [CHUNK, replace(CHUNK, codec="raw")]])
def test_a_block_holds_chunks_of_one_codec(chunks: list[StoredChunk]) -> None:
    with pytest.raises(ValueError, match="of one codec"):
        encode_block(chunks)


def refused(data: bytes, match: str, max_frames: int = 4) -> None:
    with pytest.raises(ValueError, match=match):
        list(decode_block(data, max_frames=max_frames))


def test_every_flipped_bit_is_noticed() -> None:
    block = encode_block([CHUNK, OTHER])
    for place in range(len(block)):
        damaged = bytearray(block)
        damaged[place] ^= 1 << place % 8
        refused(bytes(damaged), "block")


def test_every_truncation_is_noticed() -> None:
    block = encode_block([CHUNK])
    for length in range(len(block)):
        refused(block[:length], "block")


def test_claims_are_checked_before_anything_is_allocated() -> None:
    block = encode_block([CHUNK])
    refused(block, "claims more than", max_frames=2)
    refused(encode_block([CHUNK, OTHER]), "1 to 2 frames", max_frames=2)
    body = bytearray(body_of(block))
    HEADER.pack_into(body, 0, b"zstd", 5_000, 10)
    refused(sealed(bytes(body)), "at most 4096")
    HEADER.pack_into(body, 0, b"gzip", 1, 10)
    refused(sealed(bytes(body)), "codec 'gzip'")
    bomb = zstandard.ZstdCompressor().compress(bytes(10_000_000))
    refused(sealed(HEADER.pack(b"zstd", 1, len(bomb)) + bomb), "claims more than")
    short = zstandard.ZstdCompressor().compress(bytes(5))
    refused(sealed(HEADER.pack(b"zstd", 1, len(short)) + short), "cut short")
    refused(sealed(HEADER.pack(b"zstd", 1, 4) + b"junk"), "cannot be decompressed")
    refused(sealed(body_of(block) + b"more"), "bytes of frames")


def test_transitions_must_be_as_many_as_claimed() -> None:
    refused(encode_block([replace(CHUNK, num_transitions=1)]), "transitions are not those")

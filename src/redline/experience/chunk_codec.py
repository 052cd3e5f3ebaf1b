"""A sealed chunk as bytes: a header that says what must follow, then the rows, compressed with zstd.

Little-endian, no pickle. A checksum covers all that follows it, and sizes are compared with those expected before
anything is allocated.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from math import prod

import numpy as np
import zstandard

from redline.types import Array

MAGIC = b"RLCH"
SCHEMA = 1
PREFIX = struct.Struct("<4sHI")  # magic, schema, CRC-32 of the rest
HEADER = struct.Struct("<qqqII")  # lane, chunk, first number, frames, transitions
ROW_DTYPES = {"action": "<i4", "reward": "<f4", "step": "<i4", "flags": "u1"}


@dataclass(frozen=True)
class EncodedChunk:
    """A chunk outside the pool."""

    lane: int
    chunk: int  # index within the lane
    first_number: int  # of the first transition that starts in it
    num_transitions: int
    columns: dict[str, Array]  # frames [F, *frame], action, reward, step, flags [F]


def encode_chunk(chunk: EncodedChunk) -> bytes:
    """Return the chunk as bytes."""
    columns = chunk.columns
    frames = columns["frames"]
    header = HEADER.pack(chunk.lane, chunk.chunk, chunk.first_number, len(frames), chunk.num_transitions)
    parts = [frames.astype(frames.dtype.newbyteorder("<"), copy=False).tobytes()]
    parts += [columns[name].astype(dtype, copy=False).tobytes() for name, dtype in ROW_DTYPES.items()]
    body = header + zstandard.ZstdCompressor(level=1).compress(b"".join(parts))
    return PREFIX.pack(MAGIC, SCHEMA, zlib.crc32(body)) + body


def decode_chunk(data: bytes, *, frame_shape: tuple[int, ...], frame_dtype: str, max_frames: int) -> EncodedChunk:
    """Return the chunk that `data` holds, or raise ValueError if it is damaged or another kind of chunk."""
    if len(data) < PREFIX.size + HEADER.size:
        raise ValueError(f"a replay chunk has only {len(data)} bytes: it is cut short")
    magic, schema, checksum = PREFIX.unpack_from(data)
    if magic != MAGIC:
        raise ValueError("this is no replay chunk: its first bytes are wrong")
    if schema != SCHEMA:
        raise ValueError(f"the replay chunk has schema {schema}, this version reads {SCHEMA}")
    body = memoryview(data)[PREFIX.size :]
    if zlib.crc32(body) != checksum:
        raise ValueError("a replay chunk is damaged: its checksum does not match")
    lane, chunk, first_number, num_frames, num_transitions = HEADER.unpack_from(body)
    dtypes = {"frames": np.dtype(frame_dtype).newbyteorder("<").str, **ROW_DTYPES}
    shapes = {"frames": (num_frames, *frame_shape), **dict.fromkeys(ROW_DTYPES, (num_frames,))}
    sizes = {name: prod(shapes[name]) * np.dtype(dtypes[name]).itemsize for name in dtypes}
    if not 0 < num_frames <= max_frames:
        raise ValueError(f"a replay chunk claims {num_frames} frames, at most {max_frames} are possible")
    if num_transitions > num_frames:
        raise ValueError(f"a replay chunk claims {num_frames} frames and {num_transitions} transitions")
    rows = _decompress(body[HEADER.size :], sum(sizes.values()))
    columns, start = {}, 0
    for name, dtype in dtypes.items():
        part = rows[start : start + sizes[name]]
        columns[name] = np.frombuffer(part, dtype).reshape(shapes[name])
        start += sizes[name]
    return EncodedChunk(lane, chunk, first_number, num_transitions, columns)


def _decompress(data: memoryview, expected_bytes: int) -> bytes:
    try:
        if zstandard.frame_content_size(data) != expected_bytes:
            raise ValueError(f"a replay chunk does not hold the {expected_bytes} bytes that it claims")
        return zstandard.ZstdDecompressor().decompress(data)
    except zstandard.ZstdError as error:
        raise ValueError(f"a replay chunk cannot be decompressed: {error}") from error

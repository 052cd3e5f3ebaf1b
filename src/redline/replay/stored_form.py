"""The form in which a replay memory is saved: blocks of sealed chunks as bytes, and the manifest, typed.

A block is a header that says what must follow, a table compressed with zstd, then the chunks' blobs as they are in
memory, so that saving a compressed memory costs no more than copying it. Little-endian, no pickle. A checksum covers
all that follows it. What a file says is compared with what is possible before anything is allocated or made of it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
import numpy as np
import zstandard
from msgspec import Meta

from redline.errors import DamagedError, UserError
from redline.replay.chunks import STARTS, Count, StoredBlock
from redline.replay.frame_codec import CODECS
from redline.types import Array

MAGIC = b"RLCB"
SCHEMA = 2  # of blocks and of the manifest
PREFIX = struct.Struct("<4sHI")  # magic, schema, CRC-32 of the rest
HEADER = struct.Struct("<8sII")  # codec, chunks, bytes of the table
MAX_CHUNKS = 4_096
CHUNK_DTYPES = {
    "lane": "<i8",
    "chunk": "<i8",
    "first_number": "<i8",
    "num_transitions": "<i4",
    "num_frames": "<i4",
    "length": "<i4",
}
ROW_DTYPES = {"action": "<i4", "reward": "<f4", "step": "<i4", "flags": "u1"}

Size = Annotated[int, Meta(ge=1, le=2**40)]
FrameCount = Annotated[int, Meta(ge=1, le=2**20)]


@dataclass(frozen=True)
class StoredChunk:
    """A chunk outside the pool."""

    lane: int
    chunk: int  # index within the lane
    first_number: int  # of the first transition that starts in it
    num_transitions: int
    num_frames: int
    rows: dict[str, Array]  # action, reward, step, flags [F]
    codec: str
    blob: bytes | memoryview  # the frames

    @property
    def length(self) -> int:
        """Bytes of the blob."""
        return len(self.blob)


def encode_block(chunks: Sequence[StoredChunk]) -> bytes:
    """Return chunks of one codec as bytes."""
    if not 0 < len(chunks) <= MAX_CHUNKS or len({chunk.codec for chunk in chunks}) != 1:
        raise ValueError("a block holds 1 to 4096 chunks of one codec")
    parts = [
        np.array([getattr(chunk, name) for chunk in chunks], dtype).tobytes() for name, dtype in CHUNK_DTYPES.items()
    ]
    for name, dtype in ROW_DTYPES.items():
        parts.append(np.concatenate([chunk.rows[name] for chunk in chunks]).astype(dtype, copy=False).tobytes())
    table = zstandard.ZstdCompressor(level=1).compress(b"".join(parts))
    header = HEADER.pack(chunks[0].codec.encode(), len(chunks), len(table))
    body = b"".join([header, table, *(chunk.blob for chunk in chunks)])
    return PREFIX.pack(MAGIC, SCHEMA, zlib.crc32(body)) + body


def decode_block(data: bytes, *, max_frames: int) -> Iterator[StoredChunk]:
    """Yield the chunks that `data` holds, or raise ValueError if it is damaged."""
    _require(len(data) >= PREFIX.size + HEADER.size, f"cut short to {len(data)} bytes")
    magic, schema, checksum = PREFIX.unpack_from(data)
    _require(magic == MAGIC, "its first bytes are wrong")
    if schema != SCHEMA:
        raise ValueError(f"the block of replay chunks has schema {schema}, this version reads {SCHEMA}")
    body = memoryview(data)[PREFIX.size :]
    _require(zlib.crc32(body) == checksum, "its checksum does not match")
    name, num_chunks, table_bytes = HEADER.unpack_from(body)
    codec = name.rstrip(b"\0").decode("ascii", "replace")
    _require(codec in CODECS, f"there is no codec {codec!r}")
    _require(0 < num_chunks <= MAX_CHUNKS, f"{num_chunks} chunks, at most {MAX_CHUNKS} are possible")
    chunks, rows = _read_table(body[HEADER.size : HEADER.size + table_bytes], num_chunks, max_frames)
    blobs = body[HEADER.size + table_bytes :]
    ends = np.cumsum(chunks["length"], dtype=np.int64)
    lengths_fit = bool((chunks["length"] >= 0).all()) and ends[-1] == len(blobs)
    _require(lengths_fit, f"{len(blobs)} bytes of frames, not the {ends[-1]} it claims")
    row_ends = np.cumsum(chunks["num_frames"], dtype=np.int64)
    starts = np.add.reduceat(rows["flags"] & STARTS, row_ends - chunks["num_frames"], dtype=np.int64)
    _require(np.array_equal(starts, chunks["num_transitions"]), "its transitions are not those it claims")
    columns = [chunks[name].tolist() for name in CHUNK_DTYPES]
    for lane, chunk, first_number, num_transitions, num_frames, length, row_end, end in zip(
        *columns, row_ends.tolist(), ends.tolist(), strict=True
    ):
        own = {column: values[row_end - num_frames : row_end] for column, values in rows.items()}
        blob = blobs[end - length : end]
        yield StoredChunk(lane, chunk, first_number, num_transitions, num_frames, own, codec, blob)


def _require(is_so: bool, otherwise: str) -> None:
    if not is_so:
        raise ValueError(f"a block of replay chunks is damaged: {otherwise}")


def _read_table(data: memoryview, num_chunks: int, max_frames: int) -> tuple[dict[str, Array], dict[str, Array]]:
    chunk_bytes, row_bytes = (
        sum(np.dtype(dtype).itemsize for dtype in dtypes.values()) for dtypes in (CHUNK_DTYPES, ROW_DTYPES)
    )
    most = num_chunks * (chunk_bytes + max_frames * row_bytes)
    try:
        _require(0 < zstandard.frame_content_size(data) <= most, f"its table claims more than {most} bytes")
        table = zstandard.ZstdDecompressor().decompress(data)
    except zstandard.ZstdError as error:
        raise ValueError(f"a block of replay chunks is damaged: its table cannot be decompressed: {error}") from None
    rows_at = num_chunks * chunk_bytes
    _require(len(table) >= rows_at, "its table is cut short")
    chunks = _columns(table[:rows_at], CHUNK_DTYPES, num_chunks)
    counts = chunks["num_frames"]
    num_rows = int(counts.sum(dtype=np.int64))
    counts_fit = counts.min() >= 1 and counts.max() <= max_frames and len(table) == rows_at + num_rows * row_bytes
    _require(bool(counts_fit), f"its table does not fit chunks of 1 to {max_frames} frames")
    return chunks, _columns(table[rows_at:], ROW_DTYPES, num_rows)


def _columns(data: bytes, dtypes: dict[str, str], count: int) -> dict[str, Array]:
    columns, start = {}, 0
    for name, dtype in dtypes.items():
        columns[name] = np.frombuffer(data, dtype, count, start)
        start += columns[name].nbytes
    return columns


class Heads(msgspec.Struct, frozen=True):
    """How far each lane was written."""

    num_frames: list[Count]
    num_transitions: list[Count]
    ended_before: list[Count]
    step: list[Count]
    is_open: list[Annotated[int, Meta(ge=0, le=1)]]


class Unsealed(msgspec.Struct, frozen=True):
    """Chunks that were being written; their rows are in the arrays."""

    lane: list[Count]
    chunk: list[Count]
    first_number: list[Count]
    num_frames: list[Count]


class SnapshotManifest(msgspec.Struct, frozen=True):
    """What `take_snapshot` writes beside blocks and arrays."""

    schema: int
    capacity: Size
    budget_bytes: Size | None
    frame_budget_bytes: Count | None
    horizon_steps: Count
    codec: str
    frame_shape: list[Count]
    frame_dtype: str
    frames_per_chunk: FrameCount
    first_lane: Count
    lanes: list[Count]
    heads: Heads
    full_at: Count | None
    blocks: list[StoredBlock]
    chunks_gone: Count
    unsealed: Unsealed


def decode_manifest(manifest: Mapping[str, Any]) -> SnapshotManifest:
    """Return the manifest in types; DamagedError names the field that does not fit."""
    if isinstance(schema := manifest.get("schema"), int) and schema != SCHEMA:
        raise UserError(f"the saved replay has schema {schema}: this version reads {SCHEMA}")
    try:
        found = msgspec.convert(manifest, SnapshotManifest)
        for group in (found.heads, found.unsealed):
            if len({len(getattr(group, name)) for name in group.__struct_fields__}) > 1:
                raise msgspec.ValidationError(f"{type(group).__name__.lower()} of several lengths")
    except msgspec.ValidationError as error:
        raise DamagedError(f"a checkpoint's replay is damaged: {error}: remove that checkpoint") from error
    return found

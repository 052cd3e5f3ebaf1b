"""How the frames of a chunk are compressed: zstd by default, lz4 where speed counts more, raw where neither helps.

A codec serves one thread. `decode_into` raises ValueError if the blob does not hold exactly the bytes asked for.
"""

from __future__ import annotations

from collections.abc import Mapping

import lz4.block
import zstandard

from redline.errors import unknown_name

ZSTD_LEVEL = 1  # higher levels take far longer for a few per cent


class Zstd:
    """Small: a chunk of eight frames shrinks to about a twentieth."""

    def __init__(self) -> None:
        self._compressor = zstandard.ZstdCompressor(level=ZSTD_LEVEL)
        self._decompressor = zstandard.ZstdDecompressor()

    def encode(self, frames: memoryview) -> bytes:
        """Compress."""
        return self._compressor.compress(frames)

    def decode_into(self, blob: bytes | memoryview, out: memoryview) -> None:
        """Decompress straight into the buffer."""
        try:
            with self._decompressor.stream_reader(blob) as reader:
                count = reader.readinto(out)  # one pass: the whole frame is there, and the room for it
                surplus = reader.read(1)
        except zstandard.ZstdError as error:
            raise ValueError(f"a replay chunk cannot be decompressed: {error}") from None
        if count != len(out) or surplus:
            raise ValueError(f"a replay chunk does not hold the {len(out):_} bytes that it should")


class Lz4:
    """Fast: decodes in about half the time of zstd, and takes up to twice the space."""

    def encode(self, frames: memoryview) -> bytes:
        """Compress."""
        data: bytes = lz4.block.compress(frames, store_size=False)
        return data

    def decode_into(self, blob: bytes | memoryview, out: memoryview) -> None:
        """Decompress, then copy."""
        try:
            data = lz4.block.decompress(blob, uncompressed_size=len(out))
        except lz4.block.LZ4BlockError as error:
            raise ValueError(f"a replay chunk cannot be decompressed: {error}") from None
        if len(data) != len(out):
            raise ValueError(f"a replay chunk does not hold the {len(out):_} bytes that it should")
        out[:] = data


class Raw:
    """Uncompressed: for vectors, and to measure against."""

    def encode(self, frames: memoryview) -> memoryview:
        """Return the buffer."""
        return frames

    def decode_into(self, blob: bytes | memoryview, out: memoryview) -> None:
        """Copy."""
        if len(blob) != len(out):
            raise ValueError(f"a replay chunk does not hold the {len(out):_} bytes that it should")
        out[:] = blob


FrameCodec = Zstd | Lz4 | Raw
CODECS: Mapping[str, type[FrameCodec]] = {"zstd": Zstd, "lz4": Lz4, "raw": Raw}


def find_codec(name: str) -> FrameCodec:
    """Return a new codec, for one thread."""
    if name not in CODECS:
        raise unknown_name("replay codec", name, CODECS)
    return CODECS[name]()


def max_encoded_bytes(num_bytes: int) -> int:
    """Return the most bytes that a codec makes of `num_bytes`: incompressible data grow a little."""
    return num_bytes + num_bytes // 128 + 128

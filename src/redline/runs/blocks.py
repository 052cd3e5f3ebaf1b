"""A file of checked blocks: a crash can spoil only the last one, and readers skip and report damage.

    file  = FILE_MAGIC block*
    block = "RLrc" kind(1) 0 0 0 length(4) crc32(4) steps(8) payload(length)

All numbers are unsigned and little-endian. The checksum is over kind, length, steps and payload. A block is appended by
one write. The last one may be torn; the next writer removes it.
"""

from __future__ import annotations

import os
import struct
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, NamedTuple

from redline.errors import UserError
from redline.files import (
    READ_BYTES,
    AppendedFile,
    open_own,
    open_regular,
    replace_file,
    sync_directory,
    with_appended,
    write_all,
)

FILE_MAGIC = b"redline recordings 1\n"
BLOCK_MAGIC = b"RLrc"
MAX_PAYLOAD_BYTES = 64 * 1024**2
SEARCH_FACTOR = 16  # a search for blocks behind damage reads at most this many times the size of the file

_HEAD = struct.Struct("<4sB3sIIQ")  # magic, kind, zeros, length, checksum, steps
_ZEROS = bytes(3)
_CHECKED = struct.Struct("<BIQ")  # kind, length, steps


class Block(NamedTuple):
    """One block, and where it begins."""

    kind: int
    steps: int  # of the run, when it was written
    payload: bytes
    offset: int


class Damage(NamedTuple):
    """Bytes that are no block."""

    offset: int
    length: int
    is_torn: bool  # the file ends in the middle of a block: it was being written, most likely


def encode_block(kind: int, steps: int, payload: bytes) -> bytes:
    """Return a block as it stands in the file."""
    if len(payload) > MAX_PAYLOAD_BYTES:
        raise ValueError(f"a block of {len(payload):_} bytes: readers accept {MAX_PAYLOAD_BYTES:_}")
    return _HEAD.pack(BLOCK_MAGIC, kind, _ZEROS, len(payload), _checksum(kind, steps, payload), steps) + payload


def _checksum(kind: int, steps: int, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(_CHECKED.pack(kind, len(payload), steps)))


def iterate_blocks(path: Path) -> Iterator[Block | Damage]:
    """Yield all blocks in order, and the damage between them; UserError for a file of another kind."""
    with open_regular(path) as file:
        if (magic := file.read(len(FILE_MAGIC))) != FILE_MAGIC:
            if FILE_MAGIC.startswith(magic):  # its writer was killed at once
                return
            raise UserError(
                f"{path} is not a file of recordings: it does not begin with {FILE_MAGIC.decode().strip()!r}"
            )
        offset = len(FILE_MAGIC)
        size = os.fstat(file.fileno()).st_size
        search = _Search(file, SEARCH_FACTOR * size)
        while offset < size:
            found = _read_block(file, offset)
            if found is None:
                following = search.next_block(offset + 1)
                end = size if following is None else following
                yield Damage(offset, end - offset, is_torn=following is None and _is_torn(file, offset, size))
                offset = end
            else:
                yield found
                offset += _HEAD.size + len(found.payload)


def read_block(path: Path, offset: int) -> Block | None:
    """Return the block that begins there, None if there is none."""
    with open_regular(path) as file:
        return _read_block(file, offset)


def _read_block(file: BinaryIO, offset: int) -> Block | None:
    file.seek(offset)
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    magic, kind, zeros, length, checksum, steps = _HEAD.unpack(head)
    left_bytes = os.fstat(file.fileno()).st_size - offset - _HEAD.size
    if magic != BLOCK_MAGIC or zeros != _ZEROS or length > min(MAX_PAYLOAD_BYTES, left_bytes):
        return None
    payload = file.read(length)
    if len(payload) < length or checksum != _checksum(kind, steps, payload):
        return None
    return Block(kind, steps, payload, offset)


def _is_torn(file: BinaryIO, offset: int, size: int) -> bool:
    """Tell whether the rest of a file is the beginning of a block, or zeros left by a crash."""
    file.seek(offset)
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return BLOCK_MAGIC.startswith(head[:4]) or not any(head)
    magic, _, zeros, length, *_ = _HEAD.unpack(head)
    if magic == BLOCK_MAGIC:
        return bool(zeros == _ZEROS and offset + _HEAD.size + length > size)
    rest = iter(lambda: file.read(READ_BYTES), b"")
    return not any(head) and not any(any(piece) for piece in rest)


class _Search:
    """Looks for whole blocks behind damage, within a budget of bytes: damage must not keep a reader forever."""

    def __init__(self, file: BinaryIO, budget_bytes: int) -> None:
        self._file = file
        self._left_bytes = budget_bytes

    def next_block(self, begin: int) -> int | None:
        """Return where the next whole block begins; its magic may also occur inside another block's payload."""
        file = self._file
        file.seek(begin)
        piece, at = file.read(READ_BYTES), begin
        while len(piece) >= len(BLOCK_MAGIC):
            place = piece.find(BLOCK_MAGIC)
            while place >= 0:
                if self._left_bytes <= 0:
                    return None
                if _read_block(file, at + place) is not None:
                    return at + place
                self._left_bytes -= file.tell() - at - place
                place = piece.find(BLOCK_MAGIC, place + 1)
            at += len(piece) - len(BLOCK_MAGIC) + 1
            file.seek(at)
            piece = file.read(READ_BYTES)
        return None


class BlockWriter(AppendedFile):
    """Appends blocks to one file, each visible to readers at once."""

    def __init__(self, path: Path) -> None:
        if not path.parent.exists():
            path.parent.mkdir(mode=0o700)
            sync_directory(path.parent.parent)
        super().__init__(path)

    def append(self, kind: int, steps: int, payload: bytes) -> None:
        """Append one block."""
        self._append(encode_block(kind, steps, payload))

    def _mend(self, descriptor: int) -> None:
        end = _end_of_blocks(self.path)
        os.ftruncate(descriptor, end)
        if end == 0:
            write_all(descriptor, FILE_MAGIC)
            sync_directory(self.path.parent)


def _end_of_blocks(path: Path) -> int:
    """Return where the next block belongs: behind everything but a torn one."""
    if not path.exists() or path.stat().st_size < len(FILE_MAGIC):
        return 0
    end = len(FILE_MAGIC)
    for found in iterate_blocks(path):
        if isinstance(found, Block):
            end = found.offset + _HEAD.size + len(found.payload)
        elif not found.is_torn:
            end = found.offset + found.length
    return end


def set_aside(path: Path) -> str | None:
    """Rename a file that is not a file of blocks, and say so; None if it is one, or is missing."""
    try:
        next(iterate_blocks(path), None)
    except OSError:  # missing or unreadable: the writer will raise it
        return None
    except UserError as error:
        aside = path.with_name(f"{path.stem}.unreadable-{time.time_ns()}{path.suffix}")
        path.rename(aside)
        return f"{error}; it is now called {aside.name}"
    return None


def lost_recordings(path: Path) -> Path:
    """Return where the blocks of a file go that a resume takes back."""
    return path.with_name(f"{path.stem}.lost{path.suffix}")


def cut_blocks_after(path: Path, steps: int) -> int:
    """Move the blocks beyond `steps` to `<stem>.lost<suffix>`; return how many.

    They are safe there before the file is shortened; a cut that was killed in between stores nothing twice.
    """
    beyond = [block for block in _blocks_if_any(path) if block.steps > steps]
    if not beyond:
        return 0
    lost_path = lost_recordings(path)
    known = {bytes(found.payload) for found in _blocks_if_any(lost_path)}
    lost = b"".join(encode_block(b.kind, b.steps, b.payload) for b in beyond if b.payload not in known)
    if lost:
        replace_file(lost_path, with_appended(lost_path, lost, if_new=FILE_MAGIC))
    with os.fdopen(open_own(path, os.O_RDWR), "rb+") as file:
        file.truncate(beyond[0].offset)
        os.fsync(file.fileno())
    return len(beyond)


def _blocks_if_any(path: Path) -> Iterator[Block]:
    if path.is_file():
        yield from (found for found in iterate_blocks(path) if isinstance(found, Block))

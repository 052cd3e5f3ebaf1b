"""Replay memory on disk: append-only segments that all checkpoints of a run share."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self, TypedDict

from redline.errors import CheckpointError, DamagedError
from redline.files import BytesLike, explained, make_own_folder, open_own, open_regular, sync_directory, write_all

MAX_SEGMENT_BYTES = 64_000_000
SEGMENT_NAME = re.compile(r"segment-([0-9]{6,12})\.bin", re.ASCII)


class Location(TypedDict):
    """Where a chunk lies and what its content must be; plain JSON."""

    segment: str
    offset: int
    length: int
    sha256: str


def find_locations(value: object) -> Iterator[Mapping[str, Any]]:
    """Yield every location inside a JSON value: each object that has the key `segment`."""
    waiting = [value]  # a stack of our own: a file must not decide how deep we recurse
    while waiting:
        item = waiting.pop()
        if isinstance(item, Mapping):
            if "segment" in item:
                yield item
            else:
                waiting.extend(item.values())
        elif isinstance(item, list | tuple):
            waiting.extend(item)


def check_location(folder: Path, location: Mapping[str, Any]) -> Path:
    """Return the segment's path once name, bounds and file size are sound; reads no content."""
    name, offset, length = (location.get(key) for key in ("segment", "offset", "length"))
    # the name alone decides the path: nothing that is no segment's name gets near the file system
    if not isinstance(name, str) or SEGMENT_NAME.fullmatch(name) is None:
        raise DamagedError(f"{name!r} is not the name of a replay segment")
    if not isinstance(offset, int) or not isinstance(length, int):
        raise DamagedError(f"{name}: offset {offset!r} and length {length!r} are no whole numbers")
    if offset < 0 or length < 0 or offset + length > MAX_SEGMENT_BYTES:
        raise DamagedError(f"{name}: no chunk can lie at offset {offset} with length {length}")
    with explained(DamagedError, folder / name):
        size_bytes = (folder / name).lstat().st_size
    if offset + length > size_bytes:
        raise DamagedError(f"{folder / name} ends at {size_bytes:_}, before its chunk at {offset:_} + {length:_}")
    return folder / name


def read_chunk(folder: Path, location: Mapping[str, Any]) -> bytes:
    """Read a chunk and verify it."""
    path = check_location(folder, location)
    with explained(DamagedError, path), open_regular(path) as file:
        file.seek(location["offset"])
        data = file.read(location["length"])
    if hashlib.sha256(data).hexdigest() != location.get("sha256"):
        raise DamagedError(f"{path}: the chunk at {location['offset']:_} does not have the sha256 that was written")
    return data


class SegmentStore:
    """Appends chunks to the segments of one run; the caller holds the run's lock.

    A segment of an earlier process is never appended to: what a kill left at its end stays unnamed.
    """

    def __init__(self, folder: Path) -> None:
        make_own_folder(folder)
        self.folder = folder
        self._descriptor: int | None = None
        self._size_bytes = 0
        for path in self._segments().values():
            if path.stat().st_size == 0:
                path.unlink()
        self._number = max(self._segments(), default=0)
        self._last_number_before = self._number

    def append(self, data: BytesLike) -> Location:
        """Write one chunk behind the last; it is durable after `sync`."""
        view = memoryview(data).cast("B")
        if view.nbytes > MAX_SEGMENT_BYTES:
            raise ValueError(f"a chunk of {view.nbytes:_} bytes: a segment holds {MAX_SEGMENT_BYTES:_}")
        with explained(CheckpointError, self.folder, before="cannot write replay: "):
            self._write(self._descriptor_with_room_for(view.nbytes), view)
        location = Location(
            segment=_name(self._number),
            offset=self._size_bytes,
            length=view.nbytes,
            sha256=hashlib.sha256(view).hexdigest(),
        )
        self._size_bytes += view.nbytes
        return location

    def sync(self) -> None:
        """Return when every chunk appended so far is on the disk."""
        if self._descriptor is None:
            return
        with explained(CheckpointError, self.folder, before="cannot write replay: "):
            os.fsync(self._descriptor)
            sync_directory(self.folder)

    def holds(self, location: Mapping[str, Any]) -> bool:
        """Tell whether a chunk is still where it was stored, without reading it."""
        with suppress(DamagedError):
            return bool(check_location(self.folder, location))
        return False

    def read(self, location: Mapping[str, Any]) -> bytes:
        """Read a chunk and verify it; damage is a `DamagedError`."""
        return read_chunk(self.folder, location)

    def collect(self, named: Collection[str]) -> list[str]:
        """Delete the segments that no manifest names; return their names.

        Segments that this store wrote after the newest named one stay: the next manifest may name them.
        """
        segments = self._segments()
        newest_named = max((n for n, path in segments.items() if path.name in named), default=0)
        first_kept = max(newest_named, self._last_number_before) + 1
        doomed = [
            path
            for number, path in sorted(segments.items())
            if path.name not in named and number < first_kept and not self._is_open(number)
        ]
        for path in doomed:
            path.unlink()
        return [path.name for path in doomed]

    def close(self) -> None:
        """Close the open segment; the next append starts another. Closing twice is harmless."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _segments(self) -> dict[int, Path]:
        if not self.folder.is_dir():  # somebody may have removed it
            return {}
        files = (path for path in self.folder.iterdir() if path.is_file())
        matches = ((SEGMENT_NAME.fullmatch(path.name), path) for path in files)
        return {int(match[1]): path for match, path in matches if match}

    def _is_open(self, number: int) -> bool:
        return self._descriptor is not None and number == self._number

    def _descriptor_with_room_for(self, length: int) -> int:
        if self._descriptor is not None and self._size_bytes + length <= MAX_SEGMENT_BYTES and not self._is_lost():
            return self._descriptor
        # the full segment becomes durable now: `sync` knows only the open one
        if not self._is_lost():
            self.sync()
        self.close()
        make_own_folder(self.folder)
        number = self._number + 1
        self._descriptor = open_own(self.folder / _name(number), os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        self._number, self._size_bytes = number, 0
        return self._descriptor

    def _is_lost(self) -> bool:
        """Tell whether somebody removed or replaced the open segment."""
        with suppress(OSError):
            return self._descriptor is not None and not os.path.samestat(
                os.fstat(self._descriptor), (self.folder / _name(self._number)).lstat()
            )
        return True

    def _write(self, descriptor: int, view: memoryview) -> None:
        os.lseek(descriptor, self._size_bytes, os.SEEK_SET)
        try:
            write_all(descriptor, view)
        except OSError:
            # give the part back: on a full disk it is space that others need
            os.ftruncate(descriptor, self._size_bytes)
            raise


def _name(number: int) -> str:
    return f"segment-{number:06d}.bin"

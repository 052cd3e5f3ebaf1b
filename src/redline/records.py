"""JSON Lines: one writer, one reader, the rule for a torn line.

A row is one JSON object and a newline, and carries `schema`. A last line without a newline counts if it
is a whole object, and is a torn line otherwise: readers skip it, the next writer removes it. Unreadable
lines elsewhere are skipped and counted.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, Self

SCHEMA = 1
MAX_LINE_BYTES = 1_000_000

Row = dict[str, Any]


def as_python(value: object) -> object:
    """Turn a numpy scalar or array into Python's own numbers, without importing numpy."""
    convert = getattr(value, "tolist", None)
    if convert is None:
        raise TypeError(f"a {type(value).__name__} cannot be written as JSON")
    result: object = convert()
    return result


def as_json_value(value: object) -> object:
    """Return `value` as strict JSON can hold it: numpy scalars as numbers, NaN and infinities as null."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, PurePath):
        return str(value)
    if isinstance(value, Mapping):
        return {str(key): as_json_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [as_json_value(item) for item in value]
    return as_json_value(as_python(value))


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write every byte: the kernel may take fewer than it is given."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


class RecordWriter:
    """Appends rows to one file, each visible to readers at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            self._mend_last_line()
        except BaseException:
            self.close()
            raise

    def write(self, row: Mapping[str, object]) -> None:
        """Append one row; where the disk takes only a part of it, remove the part and raise."""
        line = encode_row(row)
        descriptor = self._open_descriptor()
        size_bytes = os.fstat(descriptor).st_size
        try:
            write_all(descriptor, line)
        except OSError as error:
            os.ftruncate(descriptor, size_bytes)
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def sync(self) -> None:
        """Return when all rows are on the disk."""
        os.fsync(self._open_descriptor())

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open_descriptor(self) -> int:
        if self._descriptor is None:
            raise ValueError(f"{self.path} is closed")
        return self._descriptor

    def _mend_last_line(self) -> None:
        descriptor = self._open_descriptor()
        size_bytes = os.fstat(descriptor).st_size
        if size_bytes == 0 or os.pread(descriptor, 1, size_bytes - 1) == b"\n":
            return
        start = max(0, size_bytes - MAX_LINE_BYTES)
        tail = os.pread(descriptor, size_bytes - start, start)
        newline = tail.rfind(b"\n")
        if newline < 0 and start > 0:
            # longer than any row of ours: end it rather than guess where it began
            write_all(descriptor, b"\n")
        elif parse_row(tail[newline + 1 :]) is not None:
            write_all(descriptor, b"\n")
        else:
            os.ftruncate(descriptor, start + newline + 1)


def encode_row(row: Mapping[str, object]) -> bytes:
    """Return the line that stands for `row`, newline included."""
    value = as_json_value({"schema": SCHEMA, **row})
    line = json.dumps(value, allow_nan=False, separators=(",", ":")).encode() + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"a row of {len(line):_} bytes: readers accept {MAX_LINE_BYTES:_}")
    return line


def parse_row(line: bytes) -> Row | None:
    """Return the row a line holds, or None where it is no whole JSON object."""
    try:
        # NaN is no JSON, but other programs write it
        value = json.loads(line, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def iterate_lines(path: Path) -> Iterator[tuple[bytes, Row | None]]:
    """Yield every byte of the file in order, by lines, each with its row or None where it is unreadable.

    A line beyond `MAX_LINE_BYTES` comes in pieces without a row, so that memory stays bounded.
    """
    with path.open("rb") as file:
        is_continued = False
        while piece := file.readline(MAX_LINE_BYTES):
            yield piece, None if is_continued else parse_row(piece)
            is_continued = not piece.endswith(b"\n")


@dataclass(frozen=True)
class Scan:
    """What a file of records holds, and what in it could not be read."""

    rows: list[Row]
    unreadable_lines: int  # whole lines that are no JSON object
    is_torn: bool  # the last line was cut off, or is being written


def scan_records(path: Path) -> Scan:
    """Read all rows, and count the lines that could not be read."""
    rows: list[Row] = []
    unreadable_lines = 0
    is_torn = False
    for line, row in iterate_lines(path):
        is_whole = line.endswith(b"\n")
        if row is not None:
            rows.append(row)
        elif is_whole:
            unreadable_lines += 1
        is_torn = row is None and not is_whole
    return Scan(rows=rows, unreadable_lines=unreadable_lines, is_torn=is_torn)


class RecordTail:
    """Reads what is appended to a file that another process writes; begins anew where the file was replaced or cut."""

    def __init__(self, path: Path, *, last_bytes: int | None = None) -> None:
        self.path = path
        self._last_bytes = last_bytes  # to begin with: whoever wants the newest row need not read a week of them
        self._file_id: tuple[int, int] | None = None  # device and inode
        self._read_bytes = 0

    def new_rows(self) -> list[Row]:
        """Return the rows of the whole lines that were added since the last call; none while there is no file."""
        try:
            with self.path.open("rb") as file:
                status = os.fstat(file.fileno())
                file_id = status.st_dev, status.st_ino
                if file_id != self._file_id or status.st_size < self._read_bytes:
                    skipped_bytes = 0 if self._last_bytes is None else max(0, status.st_size - self._last_bytes)
                    self._file_id, self._read_bytes = file_id, skipped_bytes
                file.seek(self._read_bytes)
                added = file.read()
        except OSError:
            return []
        whole = added[: added.rfind(b"\n") + 1]
        self._read_bytes += len(whole)
        return [row for line in whole.splitlines() if (row := parse_row(line)) is not None]


def read_records(path: Path) -> list[Row]:
    """Read all rows that can be read; `scan_records` also says what could not."""
    return scan_records(path).rows

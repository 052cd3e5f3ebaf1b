"""JSON Lines: one writer, one reader, the rule for a torn line, cutting rows after a step.

A row is one JSON object and a newline, and carries `schema`. A last line without a newline counts if it is a whole
object, and is a torn line otherwise: readers skip it, the next writer removes it. Unreadable lines elsewhere are
skipped and counted. Anybody may have written a file, so its content is shown only after `tamed` and `plain_text`.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any, BinaryIO

import msgspec

from redline.errors import UserError
from redline.files import AppendedFile, explained, open_regular, replace_file, with_appended, write_all

SCHEMA = 1
MAX_LINE_BYTES = 1_000_000
MAX_TAIL_BYTES = 16_000_000  # that are read at once of a file that is followed
MARK_BYTES = 64  # of the end of what was read: rows differ in their times
LARGEST = 1e39  # beyond int64 and float32: no count or measurement is larger
MAX_DEPTH = 32
MAX_CHARACTERS = 200

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


def measured(value: object) -> int | float | None:
    """Return a finite number of plausible size; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return value if -LARGEST < value < LARGEST else None  # false for NaN


def tamed(row: Row) -> Row:
    """Return a row that can be shown: None for implausible numbers and for what is nested too deeply, no escapes."""
    return {key: _tamed(value, MAX_DEPTH) for key, value in row.items()}


def _tamed(value: object, depth: int) -> object:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return value if value.isprintable() else "".join(map(_shown, value))
    if isinstance(value, dict) and depth:
        return {str(_tamed(key, depth)): _tamed(item, depth - 1) for key, item in value.items()}
    if isinstance(value, list) and depth:
        return [_tamed(item, depth - 1) for item in value]
    return measured(value)


def _shown(letter: str) -> str:
    return letter if letter.isprintable() or letter in "\n\t" else " "


def plain_text(value: object, most: int = MAX_CHARACTERS) -> str:
    """Return a value as one line of at most so many characters, none of which is a control character."""
    text = "".join(letter if letter.isprintable() else " " for letter in str(value)[: most + 1])
    return text if len(text) <= most else f"{text[:most]}…"


class RecordWriter(AppendedFile):
    """Appends rows to one file, each visible to readers at once."""

    def write(self, row: Mapping[str, object]) -> None:
        """Append one row."""
        self._append(encode_row(row))

    def _mend(self, descriptor: int) -> None:
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
    value = {"schema": SCHEMA, **row}
    try:
        text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError):  # rare, so a check of every row beforehand would cost more
        text = json.dumps(as_json_value(value), allow_nan=False, separators=(",", ":"))
    line = text.encode() + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"a row of {len(line):_} bytes: readers accept {MAX_LINE_BYTES:_}")
    return line


def parse_row(line: bytes) -> Row | None:
    """Return the row a line holds, or None where it is not a whole JSON object."""
    try:
        value = msgspec.json.decode(line)  # strict, and several times as fast as Python's own
    except (ValueError, RecursionError, msgspec.MsgspecError):
        value = _parse_leniently(line)
    return value if isinstance(value, dict) else None


def _parse_leniently(line: bytes) -> object:
    try:
        # NaN is no JSON, but other programs write it
        return json.loads(line, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return None


def iterate_lines(path: Path) -> Iterator[tuple[bytes, Row | None]]:
    """Yield every byte of the file in order, by lines, each with its row or None where it is unreadable.

    A line beyond `MAX_LINE_BYTES` comes in pieces without a row, so that memory stays bounded.
    """
    with open_regular(path, follow_links=True) as file:
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

    def __init__(self, path: Path, *, last_bytes: int | None = None, follow_links: bool = True) -> None:
        self.path = path
        self.read_bytes = 0  # how far it was read
        self.size_bytes = 0  # of the file, when it was last looked at
        self.beginnings = 0  # how often it was begun: a change says that earlier rows may be gone
        self._last_bytes = last_bytes  # to begin with: the newest row does not need a week of rows
        self._follow_links = follow_links
        self._file_id: tuple[int, int] | None = None  # device and inode
        self._before = b""  # the bytes before `read_bytes`: a file may be cut and grow again between two looks
        self._is_continued = False  # in the middle of a line beyond `MAX_LINE_BYTES`

    def new_rows(self, *, most_bytes: int = MAX_TAIL_BYTES) -> list[Row]:
        """Return the rows of the whole lines that were added since the last call; none while there is no file.

        Of very many, those of the first `most_bytes`: the next calls return the rest.
        """
        rows: list[Row] = []
        with suppress(OSError), open_regular(self.path, follow_links=self._follow_links) as file:
            self._find_begin(file)
            file.seek(self.read_bytes)
            end_bytes = self.read_bytes + most_bytes
            while self.read_bytes < end_bytes and (piece := file.readline(MAX_LINE_BYTES)):
                is_whole = piece.endswith(b"\n")
                if not is_whole and len(piece) < MAX_LINE_BYTES:
                    break  # being written
                if is_whole and not self._is_continued and (row := parse_row(piece)) is not None:
                    rows.append(row)
                self._is_continued = not is_whole
                self.read_bytes += len(piece)
                self._before = piece[-MARK_BYTES:]
        return rows

    def _find_begin(self, file: BinaryIO) -> None:
        status = os.fstat(file.fileno())
        file_id, self.size_bytes = (status.st_dev, status.st_ino), status.st_size
        if file_id != self._file_id or status.st_size < self.read_bytes or not self._is_as_before(file):
            skipped_bytes = 0 if self._last_bytes is None else max(0, status.st_size - self._last_bytes)
            self._file_id, self.read_bytes, self._is_continued, self._before = file_id, skipped_bytes, False, b""
            self.beginnings += 1

    def _is_as_before(self, file: BinaryIO) -> bool:
        if not self._before or self.size_bytes == self.read_bytes:
            return True
        return os.pread(file.fileno(), len(self._before), self.read_bytes - len(self._before)) == self._before


def read_records(path: Path) -> list[Row]:
    """Read all rows that can be read; `scan_records` also says what could not."""
    return scan_records(path).rows


def cut_after(path: Path, steps: int, *, evaluations: int | None = None) -> int:
    """Move the rows whose `steps` lie beyond `steps` to `<stem>.lost.jsonl`; return how many.

    Rows of evaluations beyond `evaluations` go too: an evaluation that ended while the checkpoint was saved may have
    been written before it without being counted in it. Rows without `steps` and unreadable lines stay. The lost rows
    are safe before the main file is replaced; a cut that was killed in between and is repeated stores nothing twice.
    """
    if not path.exists():
        return 0
    last = {"steps": steps} | ({} if evaluations is None else {"evaluation": evaluations})
    with explained(UserError, path):
        lost = [_ended(line) for line, row in iterate_lines(path) if _is_beyond(row, last)]
    if not lost:
        return 0
    lost_path = path.with_name(f"{path.stem}.lost.jsonl")
    rows = b"".join(lost)
    if not _ends_with(lost_path, rows):
        replace_file(lost_path, with_appended(lost_path, rows))
    replace_file(path, _kept_lines(path, last))
    return len(lost)


def _is_beyond(row: Row | None, last: Mapping[str, int]) -> bool:
    found = [] if row is None else [(row.get(key), limit) for key, limit in last.items()]
    return any(isinstance(value, int | float) and value > limit for value, limit in found)


def _kept_lines(path: Path, last: Mapping[str, int]) -> Iterator[bytes]:
    unended = b""  # a piece of an overlong line if more follows, a torn line if not
    for line, row in iterate_lines(path):
        yield unended
        unended = line if row is None and not line.endswith(b"\n") else b""
        if not unended and not _is_beyond(row, last):
            yield line if row is None else _ended(line)


def _ended(line: bytes) -> bytes:
    return line if line.endswith(b"\n") else line + b"\n"


def _ends_with(path: Path, rows: bytes) -> bool:
    if not path.exists() or path.stat().st_size < len(rows):
        return False
    with open_regular(path) as file:
        file.seek(-len(rows), 2)
        return file.read(len(rows)) == rows

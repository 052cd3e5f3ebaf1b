"""Take back the rows written after a checkpoint, so that a resumed run counts nothing twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from redline.records import Row, iterate_lines
from redline.runs.atomic import READ_BYTES, open_regular, replace_file


def cut_after(path: Path, steps: int, *, evaluations: int | None = None) -> int:
    """Move the rows whose `steps` lie beyond `steps` to `<stem>.lost.jsonl`; return how many.

    Rows of an evaluation whose number lies beyond `evaluations` go too: one that ended while a checkpoint was saved may
    have been written before it, and not be counted in it. Rows without `steps` and unreadable lines stay. The lost rows
    are safe before the main file is replaced; a cut that was killed in between and is repeated stores nothing twice.
    """
    if not path.exists():
        return 0
    last = {"steps": steps} | ({} if evaluations is None else {"evaluation": evaluations})
    lost = [_ended(line) for line, row in iterate_lines(path) if _is_beyond(row, last)]
    if not lost:
        return 0
    lost_path = path.with_name(f"{path.stem}.lost.jsonl")
    rows = b"".join(lost)
    if not _ends_with(lost_path, rows):
        replace_file(lost_path, _followed_by(lost_path, rows))
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


def _followed_by(path: Path, rows: bytes) -> Iterator[bytes]:
    if path.exists():
        with open_regular(path) as file:
            while piece := file.read(READ_BYTES):
                yield piece
    yield rows

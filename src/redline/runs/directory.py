"""The directory of one run: where it lies, who may write to it, and its records."""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from redline.errors import UserError
from redline.files import (
    check_own,
    explained,
    make_numbered_folder,
    open_regular,
    remove_temporary,
    replace_file,
    sync_directory,
    with_appended,
)
from redline.jsonl import RecordWriter, Row, iterate_lines
from redline.runs.blocks import BlockWriter, cut_blocks_after, lost_recordings, set_aside
from redline.runs.lock import LOCK_NAME, RunLock, SharedLock
from redline.runs.manifest import CHECKPOINTS, REPLAY, RUN_JSON
from redline.runs.run_json import encode_run_json, read_run_json

MAX_SLUG_CHARACTERS = 64

# events are a log of what happened and are never summed, so a resume leaves them as they are
COUNTED_RECORDS = ("metrics", "episodes")
RECORDS = (*COUNTED_RECORDS, "events", "hardware")

RECORDINGS = Path("recordings", "episodes.rec")


def slug(name: str) -> str:
    """Return `name` as a safe folder name: `ALE/Pong-v5` becomes `ale-pong-v5`."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    safe = re.sub(r"[^a-z0-9._]+", "-", plain)[:MAX_SLUG_CHARACTERS].strip("-._")
    if not safe:
        raise UserError(f"{name!r} cannot name a folder: use letters or digits")
    return safe


def check_layout(run: Path) -> None:
    """Refuse a run in which links, pipes or folders stand in place of its files: nothing outside it is written to."""
    names = [f"{name}{lost}.jsonl" for name in RECORDS for lost in ("", ".lost")]
    for folder in (CHECKPOINTS, REPLAY, "tensorboard"):
        check_own(run / folder, is_folder=True)
    for file in (RUN_JSON, LOCK_NAME, *names):
        check_own(run / file)
    # a run goes on without recordings if something else stands there, unless it leads elsewhere
    for path in (RECORDINGS.parent, RECORDINGS, lost_recordings(RECORDINGS)):
        if (run / path).is_symlink() or (run / path).is_file():
            check_own(run / path, is_folder=(run / path).is_dir())


class RunDirectory:
    """A run's folder, locked for this process from `create` or `open` until `close`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = RunLock(path)
        self._writers: dict[str, RecordWriter] = {}
        self._recordings: BlockWriter | None = None

    @classmethod
    def create(cls, log_dir: Path, *, game: str, algorithm: str, seed: int) -> Self:
        """Make `<log-dir>/<game>/<algorithm>/<YYYYMMDD-HHMMSS>-s<seed>` and lock it."""
        parent = log_dir / slug(game) / slug(algorithm)
        with explained(UserError, log_dir, before="cannot create a run: "):
            parent.mkdir(parents=True, exist_ok=True)
            path = make_numbered_folder(parent / f"{time.strftime('%Y%m%d-%H%M%S')}-s{seed}")
            for folder in (parent, parent.parent, log_dir):
                sync_directory(folder)
        try:
            return cls(path)
        except UserError:
            with suppress(OSError):
                (path / LOCK_NAME).unlink(missing_ok=True)
                path.rmdir()
            raise

    @classmethod
    def open(cls, path: Path) -> Self:
        """Lock an existing run to go on with it."""
        read_run_json(path)
        own = path.resolve() if path.is_symlink() else path  # a link to a run is fine, links inside it are not
        check_layout(own)
        run = cls(own)
        for folder in (own, own / RECORDINGS.parent):
            remove_temporary(folder)
        return run

    def share_lock(self) -> SharedLock:
        """Return the lock for a process that works on this run too."""
        return self._lock.share()

    def close(self) -> None:
        """Close the records and let other processes in; closing twice is harmless."""
        self._close_records()
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def metrics(self) -> RecordWriter:
        """One row per interval."""
        return self._writer("metrics")

    @property
    def episodes(self) -> RecordWriter:
        """One row per episode."""
        return self._writer("episodes")

    @property
    def events(self) -> RecordWriter:
        """One row per start, resume, checkpoint, warning, error, stop."""
        return self._writer("events")

    @property
    def recordings(self) -> BlockWriter:
        """One block per recorded episode."""
        if self._recordings is None:
            self._recordings = BlockWriter(self.path / RECORDINGS)
        return self._recordings

    def write_run_json(self, run: Mapping[str, object]) -> None:
        """Replace `run.json` as a whole."""
        path = self.path / RUN_JSON
        with explained(UserError, path):
            replace_file(path, [encode_run_json(run)])

    def open_records(self) -> None:
        """Make the files of all records, so that a reader finds them before their first row."""
        for name in ("metrics", "episodes", "events"):
            self._writer(name)

    def sync_records(self) -> None:
        """Return when all rows are on the disk: a checkpoint must not outlive rows from before it."""
        for writer in self._writers.values():
            writer.sync()
        if self._recordings is not None:
            self._recordings.sync()

    def set_unreadable_recordings_aside(self) -> list[str]:
        """Rename files in place of recordings that are none, so that the run can go on; say which."""
        path = self.path / RECORDINGS
        said = [set_aside(path), set_aside(lost_recordings(path))]
        return [line for line in said if line is not None]

    def cut_records(self, steps: int, *, evaluations: int | None = None) -> dict[str, int]:
        """Move rows and recordings after a checkpoint to `*.lost.*`; return how many of each.

        `steps` and `evaluations` are those that the checkpoint counts. Writers taken before are closed, because the
        files are replaced: take them anew.
        """
        self._close_records()
        cut = {name: cut_after(self._record_path(name), steps, evaluations=evaluations) for name in COUNTED_RECORDS}
        return cut | {"recordings": cut_blocks_after(self.path / RECORDINGS, steps)}

    def _record_path(self, name: str) -> Path:
        return self.path / f"{name}.jsonl"

    def _writer(self, name: str) -> RecordWriter:
        if name not in self._writers:
            self._writers[name] = RecordWriter(self._record_path(name))
        return self._writers[name]

    def _close_records(self) -> None:
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()
        if self._recordings is not None:
            self._recordings.close()
            self._recordings = None


# Rows after a checkpoint are taken back, so that a resumed run counts nothing twice


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

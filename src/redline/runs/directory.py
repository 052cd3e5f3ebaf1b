"""The directory of one run: where it lies, who may write to it, and its records."""

from __future__ import annotations

import fcntl
import json
import os
import platform
import re
import signal
import time
import unicodedata
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.reduction import DupFd
from pathlib import Path
from typing import Any, Self

import psutil

from redline.errors import UserError
from redline.files import (
    check_own,
    explained,
    make_folder,
    make_numbered_folder,
    open_own,
    open_regular,
    remove_temporary,
    replace_file,
    sync_directory,
    write_all,
)
from redline.jsonl import SCHEMA, RecordWriter, Row, cut_after, parse_row, plain_text
from redline.runs.blocks import BlockWriter, cut_blocks_after, lost_recordings, set_aside
from redline.runs.manifest import CHECKPOINTS, REPLAY, RUN_JSON
from redline.runs.run_json import encode_run_json, read_run_json

LOCK_NAME = "run.lock"  # advisory: the kernel drops it with its holder, whose name is in it
MAX_LOCK_BYTES = 4096
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
        with explained(UserError, log_dir, before="cannot create a run: ", after=": use another --log-dir"):
            make_folder(parent)
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

    def saved_bytes(self) -> int:
        """Return what the checkpoints and the saved replay memory take on the disk."""
        saved = (path for name in (CHECKPOINTS, REPLAY) for path in (self.path / name).rglob("*"))
        return sum(path.lstat().st_size for path in saved)

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
        """Rename files that stand in place of recordings, so that the run can go on; return a line about each."""
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


class RunLock:
    """Holds `run.lock` of a directory until released or until the process ends, however it ends."""

    def __init__(self, directory: Path, name: str = LOCK_NAME) -> None:
        path = directory / name
        with explained(UserError, path):
            descriptor = open_own(path, os.O_RDWR | os.O_CREAT)
            try:
                _lock(descriptor, directory)
                os.ftruncate(descriptor, 0)
                write_all(descriptor, json.dumps(_holder()).encode())
            except (OSError, UserError):
                os.close(descriptor)
                raise
        self._descriptor: int | None = descriptor

    def share(self) -> SharedLock:
        """Return the lock for a process that is being started: others get in when both have let go."""
        if self._descriptor is None:
            raise ValueError("the lock was released")
        return SharedLock(os.dup(self._descriptor))

    def release(self) -> None:
        """Let others in; releasing twice is harmless."""
        if self._descriptor is None:
            return
        # the file stays: removing it would let two openers lock two files of one name
        with suppress(OSError):
            os.ftruncate(self._descriptor, 0)
        os.close(self._descriptor)
        self._descriptor = None


def is_held(directory: Path) -> bool | None:
    """Tell whether a run is being written, by the holder that its lock names; None if that is on another host.

    The lock is not tried: a process that wants it at that moment would be refused.
    """
    holder = _read_holder(directory)
    pid, host = holder.get("pid"), holder.get("host")
    if not isinstance(pid, int):
        return False
    return None if host != platform.node() else _is_alive(pid, holder.get("process_start_unix_s"))


def ask_to_stop(directory: Path) -> bool:
    """Send SIGTERM to the process that writes a run on this host; False if there is none.

    Anybody may have written the name in the lock, so the process must also have that file open.
    """
    pid = _read_holder(directory).get("pid")
    if not isinstance(pid, int) or pid <= 1:
        return False
    with suppress(OSError, OverflowError):
        process = os.pidfd_open(pid)
        try:
            # asked now that the process is pinned: nobody else can get its number
            if is_held(directory) and _has_open(pid, directory / LOCK_NAME):
                signal.pidfd_send_signal(process, signal.SIGTERM)
                return True
        finally:
            os.close(process)
    return False


def _has_open(pid: int, path: Path) -> bool:
    wanted = path.lstat()
    for opened in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # closed meanwhile
            if os.path.samestat(opened.stat(), wanted):
                return True
    return False


def _read_holder(directory: Path) -> Row:
    try:
        with open_regular(directory / LOCK_NAME) as file:
            return parse_row(file.read(MAX_LOCK_BYTES)) or {}
    except OSError:
        return {}


class SharedLock:
    """The lock, held by another process until that ends."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.close = weakref.finalize(self, os.close, descriptor)

    def __reduce__(self) -> tuple[Callable[..., SharedLock], tuple[Any, ...]]:
        """Let a process that is being started hold it too."""
        return _attach, (DupFd(self._descriptor),)


def _attach(descriptor: Any) -> SharedLock:
    return SharedLock(descriptor.detach())


def _lock(descriptor: int, directory: Path) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = _describe_holder(os.pread(descriptor, MAX_LOCK_BYTES, 0))
        raise UserError(f"{directory} is in use by {holder}") from error


def _holder() -> dict[str, object]:
    return {
        "schema": SCHEMA,
        "pid": os.getpid(),
        "process_start_unix_s": psutil.Process().create_time(),
        "locked_unix_s": time.time(),
        "host": platform.node(),
    }


def _describe_holder(content: bytes) -> str:
    holder = parse_row(content) or {}
    pid, locked_unix_s, host = (holder.get(key) for key in ("pid", "locked_unix_s", "host"))
    if not isinstance(pid, int) or not isinstance(locked_unix_s, int | float):
        return "another process that is just starting: try again"
    since = "an unknown time"
    with suppress(ValueError, OverflowError, OSError):  # a moment that no clock can show
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(locked_unix_s))
    if host != platform.node():
        return f"process {plain_text(pid)} on {plain_text(host)} since {since}: stop it there first"
    if not _is_alive(pid, holder.get("process_start_unix_s")):
        return f"a child of process {pid}, which is gone: end the child or try again in a few seconds"
    return f"process {pid} since {since}: stop it first"


def _is_alive(pid: int, start_unix_s: object) -> bool:
    try:
        process = psutil.Process(pid)
        # a recycled pid has another start time; the clock's resolution is 10 ms
        is_same = isinstance(start_unix_s, int | float) and abs(process.create_time() - start_unix_s) < 1.0
        return is_same and process.status() != psutil.STATUS_ZOMBIE
    except (psutil.Error, ValueError, OverflowError):  # gone, or no valid process id
        return False

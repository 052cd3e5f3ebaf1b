"""Reading files that anybody may have written, and writing files that a kill can't spoil.

A reader accepts regular files only, up to a size: a link, a pipe, a device or a huge file could lead elsewhere, block
or fill the memory. A writer replaces a file as a whole or appends whole pieces. It never writes through a link: what
lies outside a run stays as it is, whatever somebody put into the run's folder.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, Self

from redline.errors import DamagedError, ForeignFileError, UserError

BytesLike = bytes | bytearray | memoryview

READ_BYTES = 1 << 20
PRIVATE = 0o700  # other users need not see what runs here
TEMPORARY_NAME = re.compile(r"\.redline-[0-9a-f]{16}\.tmp", re.ASCII)
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})
KINDS = {stat.S_IFLNK: "a link", stat.S_IFIFO: "a pipe", stat.S_IFDIR: "a folder", stat.S_IFREG: "a file"}


# Reading


def open_regular(path: Path, *, follow_links: bool = False) -> BinaryIO:
    """Open a regular file for reading; refuse pipes, devices and, unless told otherwise, links."""
    flags = os.O_RDONLY | os.O_NONBLOCK | (0 if follow_links else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP and not follow_links and path.is_symlink():
            raise OSError(errno.ELOOP, "it is a link, put the file itself there", str(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_bounded(path: Path, *, max_bytes: int, follow_links: bool = False) -> bytes:
    """Read a regular file of at most so many bytes."""
    with open_regular(path, follow_links=follow_links) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise DamagedError(f"{path} is larger than {max_bytes:_} bytes: it is none of Redline's files")
    return content


def read_json_object(path: Path, *, max_bytes: int) -> dict[str, Any]:
    """Read a file that holds one JSON object; OSError if it can't be read, DamagedError if it holds anything else."""
    content = read_bounded(path, max_bytes=max_bytes)
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise DamagedError(f"{path} is damaged, it is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise DamagedError(f"{path} is damaged: it holds no JSON object")
    return value


def read_pieces(path: Path) -> Iterator[bytes]:
    """Yield the content of a regular file in small pieces."""
    with open_regular(path) as file:
        while piece := file.read(READ_BYTES):
            yield piece


def sha256_of_file(path: Path) -> str:
    """Return the hex digest of a regular file."""
    digest = hashlib.sha256()
    for piece in read_pieces(path):
        digest.update(piece)
    return digest.hexdigest()


# Writing


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write every byte: the kernel may take fewer than it is given."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def sync_directory(path: Path) -> None:
    """Make names created, renamed or removed in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_synced(path: Path, chunks: Iterable[BytesLike]) -> None:
    """Write a new file and return when its content is on the disk; its name may still be lost."""
    with os.fdopen(open_own(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, chunks: Iterable[BytesLike]) -> None:
    """Give `path` new content such that a kill at any moment leaves the old or the new, whole."""
    with replacing(path) as temporary:
        write_synced(temporary, chunks)


def create_file(path: Path, chunks: Iterable[BytesLike]) -> None:
    """Make a file that is whole as soon as it has its name; FileExistsError if there is one, whoever is quicker."""
    temporary = path.with_name(f".redline-{secrets.token_hex(8)}.tmp")
    try:
        write_synced(temporary, chunks)
        os.link(temporary, path, follow_symlinks=False)  # one of several that try at once succeeds
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    sync_directory(path.parent)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary name; the file that the caller writes and syncs there becomes `path`, or is removed."""
    check_replaceable(path)
    # nobody can guess the name, so nobody can put a link there
    # runs, studies and videos clear up after a kill: `remove_temporary`
    temporary = path.with_name(f".redline-{secrets.token_hex(8)}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def check_replaceable(path: Path) -> None:
    """Raise ForeignFileError if a link, a pipe, a device or a folder stands where a file is to be written."""
    if path.is_symlink() or (path.exists() and not path.is_file()):
        check_own(path)


def remove_temporary(folder: Path, *, idle_s: float = 0.0) -> None:
    """Remove what killed processes left of `replacing`; where others may write now, only what was idle for so long."""
    for path in folder.iterdir() if folder.is_dir() else ():
        if TEMPORARY_NAME.fullmatch(path.name):
            with suppress(FileNotFoundError):  # its writer has just finished
                if not idle_s or time.time() - path.lstat().st_mtime > idle_s:
                    remove_tree(path)


def remove_tree(path: Path) -> None:
    """Remove a file, a link or a folder, as far as possible; what a link leads to stays."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink(missing_ok=True)


# Files and folders of ours: never a link, a pipe or a device, and never on another file system


def open_own(path: Path, flags: int) -> int:
    """Open a file for writing, relative to its folder; refuse what would change something outside of that folder."""
    check_own(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            descriptor = os.open(path.name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644, dir_fd=folder)
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from None
        try:
            _check_own(path, os.fstat(descriptor), os.fstat(folder), is_folder=False)  # no longer what it was?
        except ForeignFileError:
            os.close(descriptor)
            raise
    finally:
        os.close(folder)
    return descriptor


def make_numbered_folder(path: Path) -> Path:
    """Make a private folder with this name, or with -2, -3, … behind it where there is one already; return it."""
    for number in count(1):
        folder = path if number == 1 else path.with_name(f"{path.name}-{number}")
        with suppress(FileExistsError):
            folder.mkdir(mode=PRIVATE, parents=True)
            return folder
    raise AssertionError("count() has no end")


def make_folder(path: Path, *, mode: int = 0o777) -> None:
    """Make a folder and those above it, or none of them; accept those that are there."""
    missing = [folder for folder in (*reversed(path.parents), path) if not os.path.lexists(folder)]
    for folder in missing:
        with suppress(FileNotFoundError):
            os.lstat(missing[0].with_name(folder.name))  # is this name too long?
    made: list[Path] = []
    try:
        for folder in missing:
            folder.mkdir(mode=mode if folder == path else 0o777, exist_ok=True)
            made.append(folder)
        path.mkdir(exist_ok=True)  # says so if something else is there
    except OSError:
        for folder in reversed(made):
            with suppress(OSError):
                folder.rmdir()
        raise


def make_own_folder(path: Path) -> None:
    """Make a folder, or accept one that is there and is ours."""
    with suppress(FileExistsError):
        path.mkdir()
    check_own(path, is_folder=True)


def check_folders(path: Path) -> None:
    """Raise ForeignFileError if a folder below `path`, at any depth, is a link or on another file system."""
    for parent, folders, _ in os.walk(path):
        for name in folders:
            check_own(Path(parent) / name, is_folder=True)


def check_own(path: Path, *, is_folder: bool = False) -> None:
    """Raise ForeignFileError if what stands at `path` is no file, or no folder, of ours; nothing at all is fine."""
    with suppress(FileNotFoundError):
        _check_own(path, path.lstat(), path.parent.stat(), is_folder=is_folder)


def _check_own(path: Path, facts: os.stat_result, parent: os.stat_result, *, is_folder: bool) -> None:
    kind = stat.S_IFMT(facts.st_mode)
    if kind != (stat.S_IFDIR if is_folder else stat.S_IFREG):
        found = KINDS.get(kind, "a device or a socket")
        wanted = "folder" if is_folder else "file"
        raise ForeignFileError(f"{path} is {found}, not a {wanted} of Redline: move it away, or put the {wanted} there")
    if facts.st_dev != parent.st_dev:
        raise ForeignFileError(f"{path} is on another file system than its folder: copy it there")
    if not is_folder and facts.st_nlink > 1:
        raise ForeignFileError(f"{path} is a hard link, the same file has another name: put a copy there")


def with_appended(path: Path, more: bytes, *, if_new: bytes = b"") -> Iterator[bytes]:
    """Yield the content of a file, or `if_new` if there is none, and then `more`: new content for `replace_file`."""
    if path.exists():
        yield from read_pieces(path)
    else:
        yield if_new
    yield more


class AppendedFile(ABC):
    """A file that grows by whole pieces, each visible to readers at once."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = open_own(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        try:
            self._mend(self._descriptor)
        except BaseException:
            self.close()
            raise

    @abstractmethod
    def _mend(self, descriptor: int) -> None:
        """Remove what a killed writer left half written."""

    def _append(self, piece: bytes) -> None:
        """Append a piece; where the disk takes only a part of it, remove the part and raise."""
        descriptor = self._open_descriptor()
        size_bytes = os.fstat(descriptor).st_size
        try:
            write_all(descriptor, piece)
        except OSError as error:
            os.ftruncate(descriptor, size_bytes)
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def sync(self) -> None:
        """Return when all of it is on the disk."""
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


# What went wrong


def reason_of(error: OSError) -> str:
    """Return the system's words for what went wrong."""
    return (error.strerror or str(error)).lower()


def explain(error: OSError, path: Path) -> str:
    """Name the path and the reason and, where space ran out, the mount and what is free there."""
    reason = f"{path}: {reason_of(error)}"
    if error.errno == errno.EFBIG:
        return f"{reason}: a limit of this process (ulimit -f) or of the file system ends it there"
    if error.errno not in FULL:
        return reason
    mount = mount_point(path)
    facts = os.statvfs(mount)
    if facts.f_files and not facts.f_favail:
        return f"{reason}; {mount} can hold no more files: remove some"
    return f"{reason}; {mount} has {free_bytes(mount) / 1e6:,.1f} MB free: make room"


@contextmanager
def explained(kind: type[UserError], path: Path, *, before: str = "", after: str = "") -> Iterator[None]:
    """Turn an OSError into an error for the user, with its explanation between two texts.

    `after` names a remedy; a full disk has one of its own.
    """
    try:
        yield
    except ForeignFileError:
        raise
    except OSError as error:
        raise kind(f"{before}{explain(error, path)}{'' if error.errno in FULL else after}") from error


def mount_point(path: Path) -> Path:
    """Return where the file system that holds `path`, or will hold it, is mounted."""
    place = path.absolute()
    while not place.is_mount() and place != place.parent:
        place = place.parent
    return place


def free_bytes(path: Path) -> int:
    """Return how many bytes this user can still write to the file system of an existing `path`."""
    facts = os.statvfs(path)
    return facts.f_bavail * facts.f_frsize

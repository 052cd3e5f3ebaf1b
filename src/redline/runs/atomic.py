"""Files that are there whole or not at all: write, fsync, rename, fsync the directory."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

BytesLike = bytes | bytearray | memoryview

READ_BYTES = 1 << 20


def sync_directory(path: Path) -> None:
    """Make names created, renamed or removed in a directory durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_synced(path: Path, chunks: Iterable[BytesLike]) -> None:
    """Write a file and return when its content is on the disk; its name may still be lost."""
    with path.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)
        file.flush()
        os.fsync(file.fileno())


def replace_file(path: Path, chunks: Iterable[BytesLike]) -> None:
    """Give `path` new content such that a kill at any moment leaves the old or the new, whole."""
    # one fixed name: what a killed process left is overwritten by the next
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        write_synced(temporary, chunks)
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading; refuse links, pipes and devices, which could lead elsewhere or block."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(None, "not a regular file", str(path))
    return os.fdopen(descriptor, "rb")


def sha256_of_file(path: Path) -> str:
    """Return the hex digest of a regular file, read in small pieces."""
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while piece := file.read(READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()

"""A control group with a limit of memory, version 1 or 2, in which a child process can be started."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

NAME = f"redline-{os.getpid()}"


@dataclass(frozen=True)
class _Files:
    limit: str
    peak: str


VERSION_1 = _Files("memory.limit_in_bytes", "memory.max_usage_in_bytes")
VERSION_2 = _Files("memory.max", "memory.peak")


class MemoryGroup:
    """Made below a folder that the caller names, gone at the end; nothing but children that are told to joins it."""

    def __init__(self, parent: Path, limit_bytes: int) -> None:
        self._files = VERSION_1 if (parent / VERSION_1.limit).exists() else VERSION_2
        self.folder = parent / NAME
        self._limit_bytes = limit_bytes

    def __enter__(self) -> Self:
        self.folder.mkdir()
        try:
            (self.folder / self._files.limit).write_text(str(self._limit_bytes), encoding="utf-8")
        except OSError:
            self.folder.rmdir()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.folder.rmdir()

    def join(self) -> None:
        """Move the calling process into the group; a child does so before it becomes another program."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()), encoding="utf-8")

    @property
    def peak_bytes(self) -> int:
        """The most that was used, page cache included."""
        return int((self.folder / self._files.peak).read_text(encoding="utf-8"))

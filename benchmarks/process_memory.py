"""What processes take of the machine's memory, and a control group that limits it."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

GROUP = f"redline-{os.getpid()}"
BLOCK_BYTES = 512  # the unit of st_blocks, whatever the file system


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
        self.folder = parent / GROUP
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


@dataclass(frozen=True)
class MemoryUse:
    """Bytes of one process, or of several added up."""

    pss_bytes: int  # mapped and touched, pages of several processes shared out among them
    unmapped_bytes: int  # of anonymous files: reserved, but in no process's pages

    @property
    def num_bytes(self) -> int:
        """All of it."""
        return self.pss_bytes + self.unmapped_bytes


def memory_use(pid: int | None = None) -> MemoryUse:
    """Measure a process without its children, by default this one."""
    folder = Path("/proc") / str(pid or os.getpid())
    rollup = _rollup((folder / "smaps_rollup").read_text(encoding="utf-8"))
    reserved = _memfd_bytes(folder / "fd")
    return MemoryUse(rollup["Pss"], max(0, reserved - rollup.get("Pss_Shmem", 0)))


def family_memory_use(pid: int) -> MemoryUse:
    """Measure a process and all its descendants; one that ends meanwhile counts no more."""
    pss = unmapped = 0
    try:
        family = [pid, *(child.pid for child in psutil.Process(pid).children(recursive=True))]
    except psutil.Error:
        return MemoryUse(0, 0)
    for member in family:
        try:
            use = memory_use(member)
        except (OSError, KeyError):
            continue
        pss += use.pss_bytes
        unmapped += use.unmapped_bytes
    return MemoryUse(pss, unmapped)


def _rollup(text: str) -> dict[str, int]:
    sizes = {}
    for line in text.splitlines()[1:]:
        name, _, rest = line.partition(":")
        sizes[name] = int(rest.split()[0]) * 1024
    return sizes


def _memfd_bytes(descriptors: Path) -> int:
    """Return the bytes that the machine gave to anonymous files of a process, each file once."""
    found: dict[int, int] = {}
    for link in descriptors.iterdir():
        try:
            if str(link.readlink()).startswith("/memfd:"):
                stat = link.stat()  # of what it points to
                found[stat.st_ino] = stat.st_blocks * BLOCK_BYTES
        except OSError:
            continue  # closed meanwhile
    return sum(found.values())

"""Where a process runs, whether it still does, and whether other machines can see a folder."""

from __future__ import annotations

import os
import platform
import re
from contextlib import suppress
from pathlib import Path

import msgspec

from redline.monitor.processes import read_stat

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
PID_NAMESPACE = Path("/proc/self/ns/pid")
MOUNTS = Path("/proc/self/mountinfo")
ESCAPED = re.compile(rb"\\([0-3][0-7]{2})")  # in a path there: a blank is \040
# file systems that one kernel alone writes to; all others are taken for shared
OWN_FILE_SYSTEMS = frozenset(
    {
        *("ext2", "ext3", "ext4", "xfs", "btrfs", "zfs", "f2fs", "bcachefs", "jfs", "reiserfs", "tmpfs", "ramfs"),
        *("overlay", "aufs", "vfat", "exfat", "ntfs3", "fuseblk", "ecryptfs", "nilfs2"),
    }
)


class Place(msgspec.Struct, frozen=True):
    """Where a process runs: process ids say something only in the same place."""

    host: str
    boot_id: str
    pid_namespace: str

    def shares_pids(self, other: Place) -> bool:
        """Tell whether a process id means the same process in both; a machine may have been renamed since."""
        return self.shares_kernel(other) and self.pid_namespace == other.pid_namespace

    def shares_kernel(self, other: Place) -> bool:
        """Tell whether both are on one machine since it was started last."""
        return bool(self.boot_id) and self.boot_id == other.boot_id


def here() -> Place:
    """Return where this process runs."""
    boot_id, namespace = "", ""
    with suppress(OSError):
        boot_id = BOOT_ID.read_text(encoding="ascii").strip()
    with suppress(OSError):
        namespace = str(PID_NAMESPACE.readlink())
    return Place(platform.node(), boot_id, namespace)


def start_ticks(pid: int) -> int | None:
    """Return when a process started, in ticks since the machine did; None if it is gone, or only waits to be.

    No clock that somebody sets has a part in it, and no two processes of one id have the same.
    """
    stat = read_stat(pid)
    return None if stat is None or stat.has_ended else stat.started_ticks


def is_alive(pid: int, ticks: int) -> bool:
    """Tell whether the process of this id that started then still runs."""
    return pid > 0 and start_ticks(pid) == ticks


def is_shared(folder: Path) -> bool:
    """Tell whether another machine may write to the folder too."""
    kind = _file_system(folder)
    return kind not in OWN_FILE_SYSTEMS


def _file_system(folder: Path) -> str:
    """Return the kind of file system that holds a folder; empty if that can't be read."""
    place, longest, kind = os.path.realpath(folder), -1, ""
    try:
        lines = MOUNTS.read_bytes().splitlines()
    except OSError:
        return ""
    for line in lines:
        before, _, after = line.partition(b" - ")
        words = before.split()
        if len(words) < 5 or not after:
            continue
        mount = os.fsdecode(ESCAPED.sub(lambda found: bytes([int(found[1], 8)]), words[4]))
        is_above = place == mount or place.startswith(mount.rstrip("/") + "/")
        if is_above and len(mount) >= longest:  # of several mounted at one place the last counts
            longest, kind = len(mount), after.split()[0].decode(errors="replace")
    return kind

"""How much memory this process can still get: the machine, and the control groups it runs in."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import psutil


@dataclass(frozen=True)
class _CgroupFiles:
    """The names that a version of control groups uses."""

    mount: str  # below the root
    limit: str
    usage: str
    reclaimable: str  # in memory.stat: file pages in the usage that the kernel can drop


VERSION_2 = _CgroupFiles("", "memory.max", "memory.current", "inactive_file")
VERSION_1 = _CgroupFiles("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def available_bytes() -> int:
    """Return the bytes that this process can still get: the tighter of the machine and its control groups."""
    in_machine = int(psutil.virtual_memory().available)
    in_group = cgroup_available_bytes()
    return in_machine if in_group is None else min(in_machine, in_group)


def cgroup_available_bytes(
    root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> int | None:
    """Return what the tightest control group of this process leaves, or None if none sets a limit."""
    left = []
    for line in (_read(membership) or "").splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        files = VERSION_1 if controllers else VERSION_2
        mount = root / files.mount
        path = mount / group.lstrip("/")
        for folder in (path, *path.parents):  # a limit holds for all groups below it
            left.append(_bytes_left(folder, files))
            if folder == mount:
                break
    return min((count for count in left if count is not None), default=None)


def _bytes_left(folder: Path, files: _CgroupFiles) -> int | None:
    limit, usage = _read(folder / files.limit), _read(folder / files.usage)
    if limit is None or usage is None or limit.strip() == "max":
        return None
    stat = dict(line.split(maxsplit=1) for line in (_read(folder / "memory.stat") or "").splitlines())
    return max(int(limit) - int(usage) + int(stat.get(files.reclaimable, 0)), 0)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None

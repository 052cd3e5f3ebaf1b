"""Facts about the machine, its free memory, the versions and the command that a run is recorded with."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import psutil

PACKAGES = ("redline", "torch", "numpy", "ale-py", "gymnasium", "safetensors", "zstandard")
GIT_TIMEOUT_S = 5.0
BF16_FLAGS = {"avx512_bf16", "amx_bf16", "bf16", "svebf16"}  # of processors, in the kernel's words

# of each version of control groups: the mount below the root, the files of limit and usage, and the name in memory.stat
# of file pages in the usage that the kernel can drop
VERSION_2 = ("", "memory.max", "memory.current", "inactive_file")
VERSION_1 = ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def host_facts() -> dict[str, object]:
    """Gather what `run.json` says of where and how a run was started; imports none of the packages."""
    return {
        "command": shlex.join(sys.argv),
        "commit": commit(),
        "host": {
            "system": platform.platform(),
            "cpu_model": cpu_model(),
            "logical_cores": os.cpu_count(),
            "usable_cores": usable_cores(),
            "physical_cores": psutil.cpu_count(logical=False),
            "memory_bytes": psutil.virtual_memory().total,
        },
        "versions": {"python": platform.python_version()} | {name: version(name) for name in PACKAGES},
    }


def usable_cores() -> int:
    """Return how many cores this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_bytes() -> int:
    """Return the bytes that this process can still get: from the machine or its control groups, whichever is less."""
    in_machine = int(psutil.virtual_memory().available)
    in_group = cgroup_available_bytes()
    return in_machine if in_group is None else min(in_machine, in_group)


def cgroup_available_bytes(
    root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> int | None:
    """Return the bytes left in the tightest control group of this process; None: no limit."""
    left = []
    for line in (_read(membership) or "").splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers and "memory" not in controllers.split(","):
            continue
        below_root, *names = VERSION_1 if controllers else VERSION_2
        mount = root / below_root
        path = mount / group.lstrip("/")
        for folder in (path, *path.parents):  # a limit holds for all groups below it
            left.append(_bytes_left(folder, *names))
            if folder == mount:
                break
    return min((count for count in left if count is not None), default=None)


def _bytes_left(folder: Path, limit_name: str, usage_name: str, reclaimable: str) -> int | None:
    limit, usage = _read(folder / limit_name), _read(folder / usage_name)
    if limit is None or usage is None or limit.strip() == "max":
        return None
    stat = dict(line.split(maxsplit=1) for line in (_read(folder / "memory.stat") or "").splitlines())
    return max(int(limit) - int(usage) + int(stat.get(reclaimable, 0)), 0)


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None


def version(package: str) -> str | None:
    """Return the installed version of a package, or None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def cpu_model() -> str:
    """Return the processor's name as the kernel gives it, or the architecture where it gives none."""
    return _of_processor("model name") or platform.processor() or platform.machine()


def has_bf16() -> bool:
    """Tell whether the processor multiplies bf16 by instructions of its own, as far as the kernel tells."""
    flags = _of_processor("flags") or _of_processor("Features")  # as ARM calls them
    return not BF16_FLAGS.isdisjoint(flags.split())


def _of_processor(name: str) -> str:
    """Return what the kernel says of the first processor; empty where it says nothing."""
    lines = (_read(Path("/proc/cpuinfo")) or "").splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.partition(":")[0].strip() == name), "")


def commit() -> str | None:
    """Return the commit this code was checked out from, `+changes` if edited since; None if installed."""
    folder = Path(__file__).resolve().parent
    # an installed copy can lie inside someone else's checkout: only files git tracks are of its commit
    if _git(folder, "ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None
    head = _git(folder, "rev-parse", "HEAD")
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return f"{head}+changes" if head and changes else head


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        answer = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, check=True, text=True, timeout=GIT_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return answer.stdout.strip()

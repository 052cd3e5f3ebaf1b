"""Facts about the machine, the versions and the command that a run is recorded with."""

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


def version(package: str) -> str | None:
    """Return the installed version of a package, or None where it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def cpu_model() -> str:
    """Return the processor's name as the kernel gives it, or the architecture where it gives none."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


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

"""One look at the machine on which a fleet runs, cheap enough for every ten seconds. Unknown values are None."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from redline.fleet.place import BOOT_ID
from redline.monitor.machine import SHM
from redline.runs.host import available_bytes

HOT_C = 95.0  # of a sensor that does not tell its limit
CGROUP, MEMBERSHIP, VMSTAT = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup"), Path("/proc/vmstat")
OOM_FILES = ("memory.events", "memory.oom_control")  # of the two versions of control groups
OOM_KILL = "oom_kill"


@dataclass(frozen=True)
class Space:
    """A place for bytes: a disk, or shared memory."""

    free_bytes: int
    total_bytes: int
    free_files: int | None = None  # None: as many as fit


@dataclass(frozen=True)
class Heat:
    """The hottest sensor."""

    name: str
    celsius: float
    limit_c: float


@dataclass(frozen=True)
class MachineState:
    """What a look at the machine tells."""

    boot_id: str
    memory_available_bytes: int
    disk: Space | None
    shared: Space | None
    heat: Heat | None
    oom_kills: int | None  # since some moment in the past


def read_machine(folder: Path) -> MachineState:
    """Look at the machine, and at the disk that holds a folder."""
    boot_id = ""
    with suppress(OSError):
        boot_id = BOOT_ID.read_text(encoding="ascii").strip()
    return MachineState(
        boot_id=boot_id,
        memory_available_bytes=available_bytes(),
        disk=read_space(folder),
        shared=read_space(SHM),
        heat=read_heat(),
        oom_kills=read_oom_kills(),
    )


def read_space(folder: Path) -> Space | None:
    """Return what is free on the file system of a folder."""
    with suppress(OSError):
        facts = os.statvfs(folder)
        files = facts.f_favail if facts.f_files else None
        return Space(facts.f_bavail * facts.f_frsize, facts.f_blocks * facts.f_frsize, files)
    return None


def read_heat() -> Heat | None:
    """Return the sensor that is nearest to its limit."""
    found: list[Heat] = []
    with suppress(OSError, AttributeError, ValueError):
        for name, sensors in psutil.sensors_temperatures().items():
            for sensor in sensors:
                limit_c = sensor.critical or sensor.high or HOT_C
                found.append(Heat(sensor.label or name, sensor.current, limit_c if limit_c > 0 else HOT_C))
    return max(found, key=lambda heat: heat.celsius - heat.limit_c, default=None)


def read_oom_kills(root: Path = CGROUP, membership: Path = MEMBERSHIP, vmstat: Path = VMSTAT) -> int | None:
    """Return how often the kernel has killed for lack of memory: in this control group, else on the machine."""
    with suppress(OSError, ValueError):
        for line in membership.read_text(encoding="utf-8").splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            folder = (root / "memory" if controllers else root) / group.lstrip("/")
            for name in OOM_FILES:
                if (count := _count(folder / name)) is not None:
                    return count
    return _count(vmstat)


def _count(path: Path) -> int | None:
    with suppress(OSError, ValueError, IndexError):
        for line in path.read_text(encoding="ascii").splitlines():
            if line.startswith(f"{OOM_KILL} "):
                return int(line.split()[1])
    return None

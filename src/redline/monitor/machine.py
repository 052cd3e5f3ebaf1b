"""What the whole machine does: processors, memory, a folder's disk, shared memory. Unknown values are absent."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import psutil

from redline.jsonl import Row

SECTOR_BYTES = 512  # the unit of the kernel's counters, whatever the device's own
SHM = Path("/dev/shm")  # noqa: S108 - looked at, never written to
MEMINFO = Path("/proc/meminfo")  # psutil reads and computes far more of it
SYS_BLOCK = Path("/sys/dev/block")


class MachineProbe:
    """Compares counters of the machine with those of the last sample."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cores = _core_times()
        self._counters_path = _device_counters(folder)
        self._disk_bytes = self._read_disk()

    @property
    def absent(self) -> dict[str, str]:
        """What no sample has on this machine, and why."""
        if self._counters_path is None:
            return {"disk_read_bytes_per_s, disk_write_bytes_per_s": "the file system has no device with counters"}
        return {}

    def sample(self, interval_s: float) -> Row:
        """Return the use since the last sample, and what is left."""
        return {
            **self._sample_cores(),
            **self._sample_disk(interval_s),
            **without_absent(
                load_average_1m=read_load_average(),
                memory_available_bytes=read_memory_available_bytes(),
                disk_free_bytes=read_disk_free_bytes(self._folder),
            ),
            **_shared_memory(),
        }

    def _sample_cores(self) -> Row:
        before, now = self._cores, _core_times()
        self._cores = now
        if not now or len(now) != len(before):  # a core was switched on or off
            return {}
        grown = [(now_s[0] - then_s[0], now_s[1] - then_s[1]) for then_s, now_s in zip(before, now, strict=True)]
        if any(all_s <= 0 for _, all_s in grown):
            return {}
        shares = [min(max(busy_s / all_s, 0.0), 1.0) for busy_s, all_s in grown]
        return {"core_busy": shares, "machine_cpu_cores_used": sum(shares)}

    def _sample_disk(self, interval_s: float) -> Row:
        before, now = self._disk_bytes, self._read_disk()
        self._disk_bytes = now
        if before is None or now is None or interval_s <= 0:
            return {}
        rates = [(count - then) / interval_s for then, count in zip(before, now, strict=True)]
        return {"disk_read_bytes_per_s": rates[0], "disk_write_bytes_per_s": rates[1]}

    def _read_disk(self) -> tuple[int, int] | None:
        """Return the bytes read from and written to the device so far."""
        if self._counters_path is None:
            return None
        with suppress(OSError):
            counts = self._counters_path.read_text(encoding="ascii").split()
            return int(counts[2]) * SECTOR_BYTES, int(counts[6]) * SECTOR_BYTES
        return None


def _core_times() -> list[tuple[float, float]]:
    """Return for each core the seconds it was busy, and all its seconds."""
    with suppress(OSError, psutil.Error, RuntimeError):
        # user, nice, system, idle, iowait, irq, softirq, steal: time stolen by other guests is not used here;
        # what follows, time of own guests, is part of user time already
        return [(sum(times[:3]) + sum(times[5:7]), sum(times[:8])) for times in psutil.cpu_times(percpu=True)]
    return []


def _device_counters(folder: Path) -> Path | None:
    """Return the kernel's counters of the device that holds a folder; None for file systems without one."""
    with suppress(OSError):
        device = folder.stat().st_dev
        path = SYS_BLOCK / f"{os.major(device)}:{os.minor(device)}" / "stat"
        return path if path.exists() else None
    return None


def read_load_average() -> float | None:
    """Return how many processes ran or waited to run, over the last minute."""
    with suppress(OSError, AttributeError):  # Windows has none
        return os.getloadavg()[0]
    return None


def read_memory_available_bytes() -> int | None:
    """Return the memory available without swapping."""
    with suppress(OSError):
        for line in MEMINFO.read_bytes().splitlines():
            if line.startswith(b"MemAvailable:"):
                return int(line.split()[1]) * 1024
    return None


def read_disk_free_bytes(folder: Path) -> int | None:
    """Return the bytes that this user can still write to the file system of a folder."""
    with suppress(OSError):
        return int(psutil.disk_usage(str(folder)).free)
    return None


def _shared_memory() -> Row:
    with suppress(OSError):
        usage = psutil.disk_usage(str(SHM))
        return {"shm_used_bytes": int(usage.used), "shm_free_bytes": int(usage.free)}
    return {}


def machine_facts() -> Row:
    """Return the facts that stay the same during a recording."""
    with suppress(OSError, psutil.Error):
        return {"cores": os.cpu_count() or 1, "memory_total_bytes": int(psutil.virtual_memory().total)}
    return {"cores": os.cpu_count() or 1}


def without_absent(**values: float | None) -> dict[str, float]:
    """Return the values that are not None."""
    return {name: value for name, value in values.items() if value is not None}

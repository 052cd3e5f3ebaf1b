"""What the whole machine does: processors, memory, a folder's disk, shared memory, power. Unknown values are absent."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from redline.jsonl import MAX_LINE_BYTES, RecordTail, Row, measured

SECTOR_BYTES = 512  # the unit of the kernel's counters
SHM = Path("/dev/shm")  # noqa: S108 - looked at, never written to
MEMINFO = Path("/proc/meminfo")  # psutil would read and compute far more
SYS_BLOCK = Path("/sys/dev/block")


class MachineProbe:
    """Compares the machine's counters with those of the last sample."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._cores = _core_times()
        self._counters_path = _device_counters(folder)
        self._disk_bytes = self._read_disk()

    @property
    def absent(self) -> dict[str, str]:
        """The fields that no sample has on this machine, and why."""
        if self._counters_path is None:
            return {"disk_read_bytes_per_s, disk_write_bytes_per_s": "the file system has no device with counters"}
        return {}

    def sample(self, interval_s: float) -> Row:
        """Return the use since the last sample, and what is free."""
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
        # user, nice, system, idle, iowait, irq, softirq, steal: time stolen by other guests is not ours;
        # the rest, time of own guests, is part of user time
        return [(sum(times[:3]) + sum(times[5:7]), sum(times[:8])) for times in psutil.cpu_times(percpu=True)]
    return []


def _device_counters(folder: Path) -> Path | None:
    """Return the path of the counters of a folder's device; None if it has none."""
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


# Power: processors count their energy (RAPL), but often only root may read the counters

POWERCAP = Path("/sys/class/powercap")
ZONES = "intel-rapl:*"  # AMD's too; `intel-rapl-mmio` counts the same packages again
COUNTED = ("package", "dram")  # the others are parts of a package, or the whole board
MACHINE_ENERGY = "machine_energy_j"


@dataclass(frozen=True)
class Zone:
    """A counter of energy."""

    counter: Path  # in millionths of a joule
    wraps_at: int  # the largest count, after which it restarts at 0

    def read(self) -> int | None:
        """Return the count; None if it can't be read."""
        return _read_number(self.counter)

    def joules(self, before: int, now: int) -> float:
        """Return the energy between two counts less than one round apart."""
        return (now - before if now >= before else now - before + self.wraps_at) / 1e6


class PowerProbe:
    """Compares the energy counters of processors and memory with those of the last sample."""

    def __init__(self, root: Path | None = None) -> None:
        found = _find_zones(root or POWERCAP)
        self._counts = {zone: count for zone in found if (count := zone.read()) is not None}
        self.absent: dict[str, str] = {}
        if not self._counts:
            why = "its energy counters can't be read, perhaps only by root" if found else "no energy counters (RAPL)"
            self.absent = {"cpu_power_w": why}

    def sample(self, interval_s: float) -> Row:
        """Return the mean power since the last sample."""
        now = {zone: count for zone in self._counts if (count := zone.read()) is not None}
        if not now or now.keys() != self._counts.keys() or interval_s <= 0:
            return {}
        before, self._counts = self._counts, now
        return {"cpu_power_w": sum(zone.joules(before[zone], count) for zone, count in now.items()) / interval_s}


def _find_zones(root: Path) -> list[Zone]:
    zones = []
    for folder in sorted(root.glob(ZONES)):
        with suppress(OSError):
            name = (folder / "name").read_text(encoding="ascii")
            wraps_at = _read_number(folder / "max_energy_range_uj")
            if name.startswith(COUNTED) and wraps_at is not None:
                zones.append(Zone(folder / "energy_uj", wraps_at))
    return zones


def _read_number(path: Path) -> int | None:
    with suppress(OSError, ValueError):
        return int(path.read_text(encoding="ascii"))
    return None


def power_of(row: Row) -> float | None:
    """Return the known power of processors and GPUs in a sample; None if none is known."""
    told = [row.get("cpu_power_w"), *(gpu.get("power_w") for gpu in row.get("gpus") or ())]
    known = [watts for value in told if (watts := measured(value)) is not None]
    return float(sum(known)) if known else None


def energy_before(hardware: Path) -> float:
    """Return the energy counted by earlier recordings in a file."""
    rows = RecordTail(hardware, last_bytes=MAX_LINE_BYTES).new_rows()
    counts = (measured(row.get(MACHINE_ENERGY)) for row in reversed(rows))
    return float(next((count for count in counts if count is not None), 0.0))


class EnergyTail:
    """The newest power and energy that a monitor wrote; stops reading if the machine has neither."""

    def __init__(self, hardware: Path) -> None:
        self._tail = RecordTail(hardware, last_bytes=0)
        self._newest: dict[str, float | None] = {}
        self._is_told = True

    def read(self) -> dict[str, float | None]:
        """Return `power_w` and `energy_j`, or nothing if unknown."""
        if self._is_told and (rows := self._tail.new_rows()):
            self._is_told = MACHINE_ENERGY in rows[-1]
            newest = {"power_w": power_of(rows[-1]), "energy_j": measured(rows[-1].get(MACHINE_ENERGY))}
            self._newest = newest if self._is_told else {}
        return self._newest

"""What processors and GPUs draw; processors count their energy (RAPL), but often only root may read the counters."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from redline.jsonl import MAX_LINE_BYTES, RecordTail, Row, measured

POWERCAP = Path("/sys/class/powercap")
ZONES = "intel-rapl:*"  # AMD's have that name too; `intel-rapl-mmio` counts the same packages again
COUNTED = ("package", "dram")  # the others are parts of a package, or the whole board
MACHINE_ENERGY = "machine_energy_j"


@dataclass(frozen=True)
class Zone:
    """A part of the machine that counts its energy."""

    counter: Path  # in millionths of a joule
    wraps_at: int  # the largest count, after which it begins at 0 again

    def read(self) -> int | None:
        """Return the count; None if it can't be read."""
        return _read_number(self.counter)

    def joules(self, before: int, now: int) -> float:
        """Return the energy between two counts, less than one round apart."""
        return (now - before if now >= before else now - before + self.wraps_at) / 1e6


class PowerProbe:
    """Compares the energy counters of processors and their memory with those of the last sample."""

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
    """Return what processors and GPUs together draw by a sample, as far as they tell it; None if nothing does."""
    told = [row.get("cpu_power_w"), *(gpu.get("power_w") for gpu in row.get("gpus") or ())]
    known = [watts for value in told if (watts := measured(value)) is not None]
    return float(sum(known)) if known else None


def energy_before(hardware: Path) -> float:
    """Return the energy that earlier recordings in a file counted."""
    rows = RecordTail(hardware, last_bytes=MAX_LINE_BYTES).new_rows()
    counts = (measured(row.get(MACHINE_ENERGY)) for row in reversed(rows))
    return float(next((count for count in counts if count is not None), 0.0))


class EnergyTail:
    """The newest power and energy that a monitor writes; looks no further where the machine does not tell them."""

    def __init__(self, hardware: Path) -> None:
        self._tail = RecordTail(hardware, last_bytes=0)
        self._newest: dict[str, float | None] = {}
        self._is_told = True

    def read(self) -> dict[str, float | None]:
        """Return `power_w` and `energy_j`; nothing if they are not known."""
        if self._is_told and (rows := self._tail.new_rows()):
            self._is_told = MACHINE_ENERGY in rows[-1]
            newest = {"power_w": power_of(rows[-1]), "energy_j": measured(rows[-1].get(MACHINE_ENERGY))}
            self._newest = newest if self._is_told else {}
        return self._newest

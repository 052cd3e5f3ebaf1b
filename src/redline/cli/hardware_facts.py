"""A sample of the hardware as people read it: one fact for cores, memory, disk and each GPU."""

from collections.abc import Mapping, Sequence
from typing import Any

from redline.cli.wording import size
from redline.monitor.hardware import flat
from redline.records import Row, plain_text

MOST_CORES_SHOWN = 16
MOST_ROLES_SHOWN = 8
IN_READING = ("load_average_1m", "memory_available_bytes", "disk_free_bytes")

Fact = tuple[str, str]


def hardware_facts(row: Row | None, *, pss_bytes: float | None, beside_reading: bool) -> list[Fact]:
    """Return what a sample tells, by name, without what the machine does not have, or a reading beside it tells."""
    if row is None:
        return []
    numbers = flat(row)
    for name in IN_READING if beside_reading else ():
        numbers.pop(name, None)
    facts = {
        "cores": _cores(numbers),
        "memory": _memory(numbers, pss_bytes),
        "disk": _disk(numbers),
        **({} if beside_reading else _roles(row, numbers)),
        **_gpus(row, numbers),
    }
    return [(name, " · ".join(parts)) for name, parts in facts.items() if parts]


def _cores(numbers: Mapping[str, float]) -> list[str]:
    busy = [share for name, share in numbers.items() if name.startswith("core_busy.")]
    used, machine, load = (numbers.get(key) for key in ("cpu_cores_used", "machine_cpu_cores_used", "load_average_1m"))
    of = f" of {len(busy)}" if busy else ""
    return [
        *([] if used is None else [f"{used:.2f}{of} used"]),
        *([] if machine is None else [f"{machine:.2f} by anybody"]),
        *([f"each {_shares(busy)}"] if busy else []),
        *([] if load is None else [f"load {load:.1f}"]),
    ]


def _shares(busy: Sequence[float]) -> str:
    if len(busy) <= MOST_CORES_SHOWN:
        return " ".join(f"{share:.0%}" for share in busy)
    return f"{min(busy):.0%} to {max(busy):.0%}"


def _memory(numbers: Mapping[str, float], pss_bytes: float | None) -> list[str]:
    values = (
        (numbers.get("rss_bytes"), "resident"),
        (pss_bytes, "PSS"),
        (numbers.get("shared_bytes"), "shared"),
        (numbers.get("memory_available_bytes"), "available"),
        (numbers.get("shm_used_bytes"), "in /dev/shm"),
    )
    return [f"{size(value)} {what}" for value, what in values if value is not None]


def _disk(numbers: Mapping[str, float]) -> list[str]:
    rates = (("read", "read_bytes_per_s"), ("written", "write_bytes_per_s"))
    free = numbers.get("disk_free_bytes")
    return [
        *(f"{size(numbers[key])}/s {what}" for what, key in rates if key in numbers),
        *([] if free is None else [f"{size(free)} free"]),
    ]


def _roles(row: Row, numbers: Mapping[str, float]) -> dict[str, list[str]]:
    """Return one fact for each role, where there are several: of one alone the rest has told already."""
    roles = row.get("roles")
    if not isinstance(roles, dict) or len(roles) < 2:
        return {}
    facts = {}
    for role in list(roles)[:MOST_ROLES_SHOWN]:
        used, rss = numbers.get(f"roles.{role}.cpu_cores_used"), numbers.get(f"roles.{role}.rss_bytes")
        cores = [] if used is None else [f"{used:.2f} cores"]
        facts[plain_text(role)] = [*cores, *([] if rss is None else [size(rss)])]
    return facts


def _gpus(row: Row, numbers: Mapping[str, float]) -> dict[str, list[str]]:
    gpus = row.get("gpus")
    known = [gpu for gpu in gpus if isinstance(gpu, dict)] if isinstance(gpus, list) else []
    places = [gpu.get("index", place) for place, gpu in enumerate(known)]
    return {plain_text(f"GPU {at}"): _gpu(gpu, f"gpus.{at}.", numbers) for at, gpu in zip(places, known, strict=True)}


def _gpu(gpu: Mapping[str, Any], prefix: str, numbers: Mapping[str, float]) -> list[str]:
    values = {name.removeprefix(prefix): value for name, value in numbers.items() if name.startswith(prefix)}
    used, total = values.get("memory_used_bytes"), values.get("memory_total_bytes")
    shown = (
        ("utilisation_percent", "{:.0f} % busy"),
        ("power_w", "{:.0f} W"),
        ("temperature_c", "{:.0f} °C"),
        ("clock_sm_mhz", "{:.0f} MHz"),
    )
    reasons = gpu.get("throttle_reasons")
    return [
        *([plain_text(gpu["name"])] if gpu.get("name") else []),
        *(text.format(values[key]) for key, text in shown if key in values),
        *([] if used is None else [f"{size(used)}{'' if total is None else f' of {size(total)}'}"]),
        *([plain_text(f"slowed by {', '.join(map(str, reasons))}")] if isinstance(reasons, list) and reasons else []),
    ]

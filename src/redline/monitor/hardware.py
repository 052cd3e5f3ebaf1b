"""The fields of hardware.jsonl: units, meanings, flat names, and means over a span of time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from redline.jsonl import Row, measured

HARDWARE = "hardware.jsonl"
COUNTERS = frozenset(
    {"unix_s", "elapsed_s", "interval_s", "cpu_s", "machine_energy_j", "monitor_cpu_s"}
)  # their mean says nothing
NO_SERIES = frozenset({"schema", "watched"})
LABELS = frozenset({"index", "processes"})  # of a GPU: not measured


@dataclass(frozen=True)
class Field:
    """One field, for documents and charts."""

    unit: str
    meaning: str


FIELDS = {
    "unix_s": Field("s", "wall clock at the start of the recording plus monotonic time since, which never jumps"),
    "elapsed_s": Field("s", "monotonic time since this recording began"),
    "interval_s": Field("s", "monotonic time since the previous sample, which rates and shares cover"),
    "cpu_cores_used": Field("cores", "used by the watched processes, including those that ended in the interval"),
    "cpu_s": Field("CPU s", "used by the watched processes since this recording began"),
    "machine_cpu_cores_used": Field("cores", "used by all processes of the machine"),
    "core_busy.*": Field("0 … 1", "share of the interval in which any process used this core"),
    "load_average_1m": Field("processes", "running or waiting to run, over the last minute"),
    "rss_bytes": Field("bytes", "resident memory, summed; a page shared by several processes counts in each"),
    "shared_bytes": Field("bytes", "shared or file-backed part of the resident memory, summed"),
    "pss_bytes": Field("bytes", "resident memory, each shared page counted once; read every 10 s at most"),
    "processes": Field("processes", "watched now"),
    "threads": Field("threads", "of the watched processes"),
    "memory_available_bytes": Field("bytes", "of the machine, available without swapping"),
    "read_bytes_per_s": Field("bytes/s", "read from storage by the watched processes"),
    "write_bytes_per_s": Field("bytes/s", "written to storage by the watched processes"),
    "disk_read_bytes_per_s": Field("bytes/s", "read by all processes from the device that holds the output"),
    "disk_write_bytes_per_s": Field("bytes/s", "written by all processes to the device that holds the output"),
    "disk_free_bytes": Field("bytes", "free for this user on the file system of the output"),
    "shm_used_bytes": Field("bytes", "used by shared memory files of all processes"),
    "shm_free_bytes": Field("bytes", "free for shared memory files"),
    "cpu_power_w": Field("W", "drawn by all processor packages and, if counted separately, their memory"),
    "machine_energy_j": Field("J", "drawn by these and all GPUs since the first recording in this folder"),
    "roles.*.cpu_cores_used": Field("cores", "used by the processes of this role"),
    "roles.*.rss_bytes": Field("bytes", "resident memory of this role"),
    "roles.*.processes": Field("processes", "of this role"),
    "gpus.*.utilisation_percent": Field("%", "of the time with a kernel running on the GPU, over its own window"),
    "gpus.*.memory_controller_percent": Field("%", "of the time in which the GPU's memory was accessed"),
    "gpus.*.memory_used_bytes": Field("bytes", "of the GPU's memory, used by all processes"),
    "gpus.*.memory_total_bytes": Field("bytes", "of the GPU's memory in total"),
    "gpus.*.power_w": Field("W", "drawn by the GPU"),
    "gpus.*.temperature_c": Field("°C", "of the GPU"),
    "gpus.*.fan_percent": Field("%", "of the fan's full speed, as requested"),
    "gpus.*.clock_sm_mhz": Field("MHz", "clock of the GPU's processors"),
    "gpus.*.clock_memory_mhz": Field("MHz", "clock of the GPU's memory"),
    "monitor_cpu_s": Field("CPU s", "used by the monitor itself since it was started"),
}


def flat(row: Row) -> dict[str, float]:
    """Return all numbers of a sample by dotted names, such as `core_busy.1`, `roles.learner.rss_bytes`."""
    return {name: float(number) for name, _, value in leaves(row) if (number := measured(value)) is not None}


def leaves(row: Row) -> Iterator[tuple[str, str, object]]:
    """Yield the dotted name, the name in FIELDS and the value of everything in a sample."""
    for key, value in row.items():
        items: Iterable[tuple[object, object]]
        if key in NO_SERIES:
            continue
        if isinstance(value, list):
            items = [(item.get("index", at) if isinstance(item, dict) else at, item) for at, item in enumerate(value)]
        elif isinstance(value, dict):
            items = value.items()
        else:
            yield key, key, value
            continue
        for name, item in items:
            if not isinstance(item, dict):
                yield f"{key}.{name}", f"{key}.*", item
                continue
            for field, leaf in item.items():
                if key != "gpus" or field not in LABELS:
                    yield f"{key}.{name}.{field}", f"{key}.*.{field}", leaf


def means(rows: Iterable[Row], *, begin_unix_s: float, end_unix_s: float) -> dict[str, float]:
    """Return the mean of each number over a span; a sample counts by the part of its interval within it."""
    sums: dict[str, float] = {}
    weights: dict[str, float] = {}
    for row in rows:
        numbers = flat(row)
        moment, interval_s = numbers.get("unix_s"), numbers.get("interval_s")
        if moment is None or interval_s is None:
            continue
        overlap_s = min(moment, end_unix_s) - max(moment - interval_s, begin_unix_s)
        if overlap_s <= 0:
            continue
        for name, value in numbers.items():
            if name not in COUNTERS:
                sums[name] = sums.get(name, 0.0) + overlap_s * value
                weights[name] = weights.get(name, 0.0) + overlap_s
    return {name: total / weights[name] for name, total in sums.items()}

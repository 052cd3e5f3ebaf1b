"""What a run takes of the machine, from the files that it writes and, while it lives, from its processes.

Its monitor writes `hardware.jsonl`: processors, memory, GPUs. Its metrics tell how full the replay memory is, and the
manifest of its first checkpoint how large that will be.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redline.errors import UserError
from redline.files import read_json_object
from redline.fleet.packing import Needs
from redline.jsonl import MAX_LINE_BYTES, RecordTail, Row, measured
from redline.monitor.hardware import HARDWARE, means
from redline.runs.host import usable_cores
from redline.runs.manifest import CHECKPOINTS, MANIFEST, MAX_JSON_BYTES, REPLAY, checkpoint_folders
from redline.runs.run_json import read_run_json

LEARNING_S = 10.0  # of learning are enough to tell
PATIENCE_S = 60.0  # for a run to begin to learn: its warm-up counts then
WINDOW_S = 30.0
LEAST_CPU_S = 1.0  # over which a share of waiting means something
BUSY = 0.9  # of the cores: nobody knows what a run would have used that is over
KEPT_CHECKPOINTS = 5  # the newest three, the best, and the one that is being written
LEAST_PROGRESS = 0.001
MAX_DIGITS = 4  # of a GPU's number
PROC = Path("/proc")


def measure_needs(run: Path, pid: int | None) -> Needs | None:
    """Return what a run takes; None if it has not learnt for long enough yet. `pid` is None once it is over."""
    metrics, hardware = _newest(run / "metrics.jsonl"), _newest(run / HARDWARE)
    if not metrics or (pid is not None and not _has_shown(metrics)):
        return None
    try:
        facts = read_run_json(run)
    except UserError:
        return None
    config = facts.get("config", {})
    usage = _usage(metrics, hardware)
    replay = _replay(run, metrics[-1], is_on_disk=bool(_setting(config, "replay").get("path")))
    gpu = find_gpu(hardware, device=str(facts.get("device") or "cpu"))
    return Needs(
        cores=_cores(usage, metrics[-1], hardware, pid),
        memory_bytes=_resident(metrics, hardware) + replay.memory_to_come_bytes,
        disk_bytes=_disk(run, metrics[-1], replay),
        gpu_memory_bytes=None if gpu is None else gpu.own_bytes,
        gpu_share=None if gpu is None else gpu.share,
        is_gpu_unknown=gpu is None and str(facts.get("device")).startswith("cuda"),
        replay_bytes=0 if replay.is_on_disk else replay.full_bytes,
        replay_capacity=replay.capacity,
    )


def resident_bytes(run: Path) -> int:
    """Return the memory that a run holds now."""
    return _resident(_newest(run / "metrics.jsonl"), _newest(run / HARDWARE)[-1:])


def _newest(path: Path) -> list[Row]:
    """Return the newest rows of a file."""
    return RecordTail(path, last_bytes=MAX_LINE_BYTES).new_rows()


def _has_shown(metrics: Sequence[Row]) -> bool:
    """Tell whether a run has learnt for long enough, or is unlikely to begin soon."""
    last_s = _number(metrics[-1], "time_s")
    learning_s = [_number(row, "time_s") for row in metrics if _number(row, "updates") > 0]
    return last_s >= PATIENCE_S or bool(learning_s and last_s - learning_s[0] >= LEARNING_S)


# Processors: on a busy machine a run gets less than it wants


def _usage(metrics: Sequence[Row], hardware: Sequence[Row]) -> dict[str, float]:
    """Return the means of what a run has used lately while it learnt."""
    end_unix_s = _number(metrics[-1], "unix_s")
    learning = [_number(row, "unix_s") for row in metrics if _number(row, "updates") > 0]
    begin_unix_s = max(end_unix_s - WINDOW_S, min(learning, default=0.0))
    if begin_unix_s >= end_unix_s:
        begin_unix_s = end_unix_s - WINDOW_S
    return means(hardware, begin_unix_s=begin_unix_s, end_unix_s=end_unix_s + 1.0)


def _cores(usage: Mapping[str, float], metrics: Row, hardware: Sequence[Row], pid: int | None) -> float:
    """Return the cores that a run would use if it had the machine for itself; one if nothing tells."""
    used = usage.get("cpu_cores_used", _number(metrics, "cpu_percent") / 100) or 1.0
    ran_s = waited_s = 0.0
    for times in _schedule_times(_pids(hardware[-1:]) if pid is not None else ()):
        ran_s, waited_s = ran_s + times[0], waited_s + times[1]
    if ran_s >= LEAST_CPU_S:
        return used * (ran_s + waited_s) / ran_s
    is_busy = usage.get("machine_cpu_cores_used", 0.0) >= BUSY * usable_cores()
    return max(used, 1.0) if is_busy else used


def _schedule_times(pids: Iterable[int]) -> Iterable[tuple[float, float]]:
    """Yield for each living thread the seconds it ran, and those it was ready and had no core."""
    for pid in pids:
        tasks = PROC / str(pid) / "task"
        with suppress(OSError):
            for task in os.listdir(tasks):  # noqa: PTH208 - a folder of the kernel, read often
                with suppress(OSError, ValueError, IndexError):
                    ran_ns, waited_ns = (tasks / task / "schedstat").read_text(encoding="ascii").split()[:2]
                    yield int(ran_ns) / 1e9, int(waited_ns) / 1e9


def _pids(hardware: Sequence[Row]) -> set[int]:
    processes = [process for row in hardware for process in _rows(row.get("watched"))]
    return {pid for process in processes if isinstance(pid := process.get("pid"), int) and pid > 0}


# Memory and disk: the replay memory grows until it is full


@dataclass(frozen=True)
class Replay:
    """A replay memory that is being filled."""

    capacity: int = 0
    full_bytes: int = 0
    to_come_bytes: int = 0
    is_on_disk: bool = False

    @property
    def memory_to_come_bytes(self) -> int:
        """Memory that it has not touched yet."""
        return 0 if self.is_on_disk else self.to_come_bytes


def _replay(run: Path, metrics: Row, *, is_on_disk: bool) -> Replay:
    capacity, used_bytes = int(_number(metrics, "replay_capacity_transitions")), int(_number(metrics, "replay_bytes"))
    if capacity <= 0:
        return Replay()
    budget_bytes = _number(_saved_replay(run), "budget_bytes")
    if budget_bytes > 0:  # compressed frames: it grows piece by piece
        return Replay(capacity, int(budget_bytes), max(0, int(budget_bytes) - used_bytes), is_on_disk)
    fill = min(1.0, _number(metrics, "replay_transitions") / capacity)  # all of it is reserved, and touched in time
    return Replay(capacity, used_bytes, int(used_bytes * (1.0 - fill)), is_on_disk)


def _saved_replay(run: Path) -> Mapping[str, Any]:
    """Return what the newest checkpoint says of the replay memory."""
    with suppress(OSError, UserError, IndexError):
        newest = checkpoint_folders(run / CHECKPOINTS)[0]
        saved = read_json_object(newest / MANIFEST, max_bytes=MAX_JSON_BYTES).get("replay")
        return saved if isinstance(saved, dict) else {}
    return {}


def _resident(metrics: Sequence[Row], hardware: Sequence[Row]) -> int:
    """Return the most memory that a run held lately; pages that its processes share count once where that is known."""
    for name in ("pss_bytes", "rss_bytes"):
        if known := [_number(row, name) for row in hardware if name in row]:
            return int(max(known))
    return int(max((_number(row, "rss_bytes") for row in metrics), default=0.0))


def _disk(run: Path, metrics: Row, replay: Replay) -> int:
    """Return what a run will take of the disk: its checkpoints, and records that grow until its end."""
    saved_bytes = max((folder_bytes(folder) for folder in checkpoint_folders(run / CHECKPOINTS)), default=0)
    grown_bytes = folder_bytes(run, without=(CHECKPOINTS, REPLAY))
    progress = min(1.0, max(_number(metrics, "progress"), LEAST_PROGRESS))
    places = 2 if replay.is_on_disk else 1  # the memory itself, and its copy in the checkpoints
    return int(KEPT_CHECKPOINTS * saved_bytes + places * replay.full_bytes + grown_bytes / progress)


def folder_bytes(folder: Path, *, without: Sequence[str] = ()) -> int:
    """Return the size of all files in a folder; those that vanish meanwhile count nothing."""
    total = 0
    for parent, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if name not in without]
        for name in files:
            with suppress(OSError):
                total += (Path(parent) / name).lstat().st_size
    return total


# GPUs


@dataclass(frozen=True)
class GpuUse:
    """What a run takes of its GPU, and what is there for all runs."""

    own_bytes: int
    room_bytes: int  # without what other programs hold
    share: float | None  # of the time in which it computes


def find_gpu(hardware: Sequence[Row], *, device: str) -> GpuUse | None:
    """Return the use of the GPU on which a run computes; None if it uses none, or nothing tells."""
    if not device.startswith("cuda"):
        return None
    number = device.partition(":")[2]
    pids, index = (
        _pids(hardware),
        int(number) if number.isascii() and number.isdecimal() and len(number) <= MAX_DIGITS else 0,
    )
    rows = [gpu for row in hardware for gpu in _rows(row.get("gpus")) if gpu.get("index") == index]
    known = [gpu for gpu in rows if _number(gpu, "memory_total_bytes") > 0]
    if not known:
        return None
    used_bytes = _number(known[-1], "memory_used_bytes")
    own = [
        _number(process, "memory_bytes")
        for process in _rows(known[-1].get("processes"))
        if isinstance(pid := process.get("pid"), int) and pid in pids
    ]
    own_bytes = sum(own) or used_bytes  # a container does not see its own process ids there
    shares = [_number(gpu, "utilisation_percent") / 100 for gpu in rows if "utilisation_percent" in gpu]
    return GpuUse(
        own_bytes=int(own_bytes),
        room_bytes=int(_number(known[-1], "memory_total_bytes") - used_bytes + own_bytes),
        share=sum(shares) / len(shares) if shares else None,
    )


def gpu_room_bytes(run: Path) -> int | None:
    """Return the memory of its GPU that runs like this one may take together."""
    with suppress(UserError):
        found = find_gpu(_newest(run / HARDWARE), device=str(read_run_json(run).get("device")))
        return None if found is None else found.room_bytes
    return None


# Rows that anybody may have written


def _rows(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _setting(config: object, name: str) -> Mapping[str, Any]:
    found = config.get(name) if isinstance(config, dict) else None
    return found if isinstance(found, dict) else {}


def _number(row: Mapping[str, Any], name: str) -> float:
    """Return a number that is not negative; 0 for anything else."""
    return max(0.0, float(measured(row.get(name)) or 0))

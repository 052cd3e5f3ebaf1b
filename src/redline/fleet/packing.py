"""How many runs of a fleet fit side by side on this machine, and the threads of each, from what one run takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

from redline.errors import UserError
from redline.units import size

FILLED = 0.95  # of the cores: a further run could only wait for them
MEMORY_SHARE = 0.9  # of the free memory that several runs may take together
DISK_SHARE = 0.9
GPU_MEMORY_SHARE = 0.9  # the rest is for other programs' peaks


@dataclass(frozen=True)
class Machine:
    """What the runs of a fleet may take together."""

    cores: int
    memory_bytes: int
    disk_bytes: int
    gpu_memory_bytes: int | None = None  # of the GPU that the runs use


@dataclass(frozen=True)
class Needs:
    """What one run takes."""

    cores: float  # busy, while it learns
    memory_bytes: int  # once its replay memory is full
    disk_bytes: int  # at its end
    gpu_memory_bytes: int | None = None
    gpu_share: float | None = None  # of the time in which the GPU computes
    is_gpu_unknown: bool = False  # it uses one that nothing has measured
    replay_bytes: int = 0  # of the memory, when full
    replay_capacity: int = 0  # transitions


@dataclass(frozen=True)
class Packing:
    """How many runs go side by side, and the threads of each that begins now."""

    concurrency: int
    threads: int
    why: str


class NoRoomError(UserError):
    """Not even one run fits."""


def choose(needs: Needs, machine: Machine, *, slots: int, asked: int = 0) -> Packing:
    """Return how many of `slots` runs go side by side: as many as fill the cores, and fit; `asked` replaces the first.

    With one thread each, no run waits for threads of its own, so as many runs as cores are faster together than fewer
    with more threads. NoRoomError if not even one fits.
    """
    limits = _limits(needs, machine)
    if nothing := next((name for name, most in limits.items() if most < 1), None):
        raise NoRoomError(_no_room(nothing, needs, machine))
    wanted = min(asked or _to_fill(needs, machine), max(1, slots))
    concurrency = min([wanted, *limits.values()])
    threads = max(1, machine.cores // concurrency)
    return Packing(concurrency, threads, _why(needs, machine, limits, concurrency, threads, slots=slots, asked=asked))


def together(measured: Sequence[Needs]) -> Needs:
    """Return what to count with when runs differ: the cores of the first, which ran alone, and the most of the rest."""
    first = measured[0]
    gpu_bytes = [needs.gpu_memory_bytes for needs in measured if needs.gpu_memory_bytes is not None]
    largest = max(measured, key=lambda needs: needs.memory_bytes)
    return replace(
        largest,
        cores=first.cores,
        disk_bytes=max(needs.disk_bytes for needs in measured),
        gpu_memory_bytes=max(gpu_bytes, default=None),
        gpu_share=first.gpu_share,
        is_gpu_unknown=any(needs.is_gpu_unknown for needs in measured),
    )


def _to_fill(needs: Needs, machine: Machine) -> int:
    """Return the fewest runs that keep the cores, or the GPU, busy."""
    by_cores = ceil(FILLED * machine.cores / max(needs.cores, 0.01))
    if needs.gpu_share is None:
        return by_cores
    return max(1, min(by_cores, ceil(FILLED / max(needs.gpu_share, 0.01))))


def _limits(needs: Needs, machine: Machine) -> dict[str, int]:
    """Return how many runs each resource allows."""
    limits = {
        "memory": _most(needs.memory_bytes, machine.memory_bytes, MEMORY_SHARE),
        "disk": _most(needs.disk_bytes, machine.disk_bytes, DISK_SHARE),
    }
    if needs.is_gpu_unknown:
        limits["a GPU that is not measured"] = 1
    elif needs.gpu_memory_bytes and machine.gpu_memory_bytes is not None:
        limits["GPU memory"] = _most(needs.gpu_memory_bytes, machine.gpu_memory_bytes, GPU_MEMORY_SHARE)
    return limits


def _most(need_bytes: int, free_bytes: int, share: float) -> int:
    """Return how many fit into a share of what is free; one may take all of it."""
    need_bytes = max(need_bytes, 1)
    return max(int(share * free_bytes / need_bytes), int(free_bytes >= need_bytes))


def _why(
    needs: Needs, machine: Machine, limits: dict[str, int], concurrency: int, threads: int, *, slots: int, asked: int
) -> str:
    cores = f"one run uses {needs.cores:.1f} of {machine.cores} cores"
    gpu = "" if needs.gpu_share is None else f" and {needs.gpu_share:.0%} of the GPU"
    first, *others = limits.items()
    allowed = ", ".join([f"{first[0]} allows {first[1]:,}", *(f"{name} {most:,}" for name, most in others)])
    chosen = f"{concurrency} side by side"
    if asked > concurrency and concurrency < slots:
        chosen += f", not {asked} as asked"
    elif asked == concurrency:
        chosen += " as asked"
    later = f"; the disk has no room for all {slots}" if limits["disk"] < slots else ""
    return f"{chosen}, {threads} thread{'s' * (threads != 1)} each: {cores}{gpu}, {allowed}{later}"


def _no_room(what: str, needs: Needs, machine: Machine) -> str:
    if what == "memory":
        return _no_memory(needs, machine)
    if what == "disk":
        fact = f"one run needs {size(needs.disk_bytes, 1)} of disk, {size(machine.disk_bytes, 1)} is free"
        return f"{fact}: make room, or use --set record=best"
    free = size(machine.gpu_memory_bytes or 0, 1)
    return f"one run needs {size(needs.gpu_memory_bytes or 0, 1)} of GPU memory, {free} is free: use --set device=cpu"


def _no_memory(needs: Needs, machine: Machine) -> str:
    fact = f"one run needs {size(needs.memory_bytes, 1)}, {size(machine.memory_bytes, 1)} is free"
    capacity = 0
    if needs.replay_bytes > 0:
        room = machine.memory_bytes - (needs.memory_bytes - needs.replay_bytes)
        capacity = _round_down(needs.replay_capacity * max(0, room) // needs.replay_bytes)
    return f"{fact}: " + (f"use --set replay.capacity={capacity}" if capacity else "free some first")


def _round_down(number: int) -> int:
    """Return a number in two significant digits."""
    unit = int(10 ** max(len(str(number)) - 2, 0))
    return number // unit * unit

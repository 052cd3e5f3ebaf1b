"""How many bytes a replay memory takes in every layout, and what fits a machine.

Pure arithmetic; measurements are passed in.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil, prod
from pathlib import Path
from typing import Any

from redline.replay import ReplayLayout, largest_capacity, with_budget
from redline.runtime.replay_sizing import CAPACITY, Measured, layout_for
from redline.types import EnvSpec
from redline.units import size

# action int64, reward, done and time-out float32: what Stable-Baselines3 keeps beside the observations
STEP_BYTES = 20
CODECS = ("raw", "lz4", "zstd")


@dataclass(frozen=True)
class Room:
    """Free memory and disk of a machine."""

    ram_available_bytes: int
    ram_kept_free_bytes: int  # of it, for networks, emulators and the rest
    shm_free_bytes: int | None  # in /dev/shm, where there is one
    disk_free_bytes: int
    disk_path: str

    @property
    def ram_for_replay_bytes(self) -> int:
        """RAM that a replay memory may take."""
        return max(self.ram_available_bytes - self.ram_kept_free_bytes, 0)


@dataclass(frozen=True)
class Layout:
    """One way to store transitions."""

    name: str  # stable: scripts read it
    label: str
    basis: str  # "computed", or "measured" here by playing
    bytes_per_transition: int  # rounded up
    own: ReplayLayout | None = None  # how Redline itself stores it
    frame_bytes: float = 0.0  # measured, of a transition

    def own_at(self, capacity: int, path: Path | None = None) -> ReplayLayout | None:
        """Return what a run would reserve, if this is a layout of Redline's."""
        if self.own is None:
            return None
        layout = replace(self.own, capacity=capacity, path=path)
        return with_budget(layout, self.frame_bytes) if layout.is_packed else layout

    def total_bytes(self, capacity: int) -> int:
        """Return the size of `capacity` transitions."""
        return capacity * self.bytes_per_transition

    def reserved_bytes(self, capacity: int) -> int:
        """Return what must be free for `capacity` transitions."""
        own = self.own_at(capacity)
        return self.total_bytes(capacity) if own is None else own.num_bytes

    def fits_disk(self, capacity: int, room: Room) -> bool:
        """Tell whether the disk can hold the transitions, and RAM their index."""
        own = self.own_at(capacity, path=Path(room.disk_path))
        if own is None:
            return self.total_bytes(capacity) <= room.disk_free_bytes
        return own.disk_bytes <= room.disk_free_bytes and own.ram_bytes <= room.ram_for_replay_bytes

    def largest_capacity(self, free_bytes: int) -> int:
        """Return how many transitions fit, in two significant digits."""
        bound = max(free_bytes, 0) // self.bytes_per_transition
        return largest_capacity(bound, lambda capacity: self.reserved_bytes(capacity) <= free_bytes)


@dataclass(frozen=True)
class Row:
    """A layout at the capacity that was asked for."""

    layout: Layout
    total_bytes: int
    reserved_bytes: int
    fits_ram: bool
    fits_shm: bool
    fits_disk: bool
    largest_capacity_in_ram: int

    @property
    def fits(self) -> str:
        """The best place that has room: ram, disk or nowhere."""
        return "ram" if self.fits_ram else "disk" if self.fits_disk else "nowhere"

    def to_json(self) -> dict[str, Any]:
        """Return it as one plain object."""
        figures = {name: value for name, value in vars(self).items() if name != "layout"}
        told = {name: getattr(self.layout, name) for name in ("label", "basis", "bytes_per_transition")}
        return {**told, **figures, "fits": self.fits}


@dataclass(frozen=True)
class Recommendation:
    """What to type, and why."""

    layout: str | None
    place: str  # ram, disk or nowhere
    capacity: int
    command: str | None
    why: str


@dataclass(frozen=True)
class MemoryPlan:
    """All layouts at one capacity, on one machine."""

    capacity: int
    spec: EnvSpec
    room: Room
    rows: tuple[Row, ...]
    recommendation: Recommendation

    def to_json(self) -> dict[str, Any]:
        """Return the plan as one plain object; bytes are integers."""
        return {
            "env": self.spec.name,
            "frame_shape": list(self.spec.frame_shape),
            "frame_dtype": self.spec.frame_dtype,
            "stack": self.spec.stack,
            "capacity": self.capacity,
            "machine": asdict(self.room),
            "layouts": {row.layout.name: row.to_json() for row in self.rows},
            "recommended": asdict(self.recommendation),
        }


def plan_memory(
    spec: EnvSpec, measured: Mapping[str, Measured], *, env_flags: Sequence[str], capacity: int, room: Room
) -> MemoryPlan:
    """Compare all layouts and recommend one of Redline's; `env_flags` name the env to `redline train`."""
    rows = tuple(_row(layout, capacity, room) for layout in layouts(spec, measured))
    return MemoryPlan(capacity, spec, room, rows, recommend(rows, env_flags=env_flags, capacity=capacity, room=room))


def layouts(spec: EnvSpec, measured: Mapping[str, Measured]) -> list[Layout]:
    """Return every layout that makes sense for such frames, the largest first."""
    values = prod(spec.frame_shape)
    stack_values = spec.stack * values

    def computed(name: str, label: str, num_bytes: int) -> Layout:
        return Layout(name, label, "computed", num_bytes + STEP_BYTES)

    # two stacks: state and next state; SB3 optimized: optimize_memory_usage=True
    found = [
        computed("float64_stacks", "float64, 2 stacks", 2 * 8 * stack_values),
        computed("float32_stacks", "float32, 2 stacks", 2 * 4 * stack_values),
    ]
    if spec.frame_dtype == "uint8":
        found += [
            computed("uint8_two_stacks", "uint8, 2 stacks (SB3)", 2 * stack_values),
            computed("uint8_one_stack", "uint8, 1 stack (SB3, optimized)", stack_values),
        ]
    else:
        found.append(computed("float32_one_stack", "float32, 1 stack (SB3, optimized)", 4 * stack_values))
    found += [_frames_once(spec, measured[codec]) for codec in CODECS if codec in measured]
    return sorted(found, key=lambda layout: -layout.bytes_per_transition)


def recommend(rows: tuple[Row, ...], *, env_flags: Sequence[str], capacity: int, room: Room) -> Recommendation:
    """Choose the smallest of Redline's layouts: in RAM, else on disk, else with fewer transitions."""
    best = min((row for row in rows if row.layout.own), key=lambda row: row.layout.bytes_per_transition)
    name, free = best.layout.name, room.ram_for_replay_bytes
    needed = size(best.reserved_bytes)

    def command(capacity: int, *more: str) -> str:
        own = best.layout.own
        codec = ["--replay.codec", own.codec] if own is not None and own.is_picture else []  # vectors have none
        return shlex.join(["redline", "train", *env_flags, "--replay.capacity", f"{capacity:_}", *codec, *more])

    if best.fits_ram:
        why = f"it reserves at most {needed} of the {size(free)} of RAM that a replay may take"
        return Recommendation(name, "ram", capacity, command(capacity), why)
    if best.fits_disk:
        why = f"it needs {needed}, for which RAM has {size(free)} and the disk {size(room.disk_free_bytes)}"
        return Recommendation(name, "disk", capacity, command(capacity, "--replay.path", room.disk_path), why)
    if fewer := best.largest_capacity_in_ram:
        why = f"{capacity:,} transitions need {needed}, for which neither RAM ({size(free)}) nor the disk has room"
        return Recommendation(name, "ram", fewer, command(fewer), why)
    return Recommendation(None, "nowhere", 0, None, f"RAM has {size(free)} for it: free some memory first")


def _frames_once(spec: EnvSpec, measured: Measured) -> Layout:
    base = layout_for(spec, codec=measured.codec, capacity=CAPACITY)
    label = f"{spec.frame_dtype}, each frame once"
    return Layout(
        f"frames_once_{measured.codec}",
        f"{label}, {measured.codec}" if base.is_picture else label,
        "measured",
        ceil(measured.bytes_per_transition),
        base,
        measured.bytes_per_frame * measured.frames_per_transition,
    )


def _row(layout: Layout, capacity: int, room: Room) -> Row:
    needed = layout.reserved_bytes(capacity)
    return Row(
        layout=layout,
        total_bytes=layout.total_bytes(capacity),
        reserved_bytes=needed,
        fits_ram=needed <= room.ram_for_replay_bytes,
        fits_shm=room.shm_free_bytes is not None and needed <= room.shm_free_bytes,
        fits_disk=layout.fits_disk(capacity, room),
        largest_capacity_in_ram=layout.largest_capacity(room.ram_for_replay_bytes),
    )

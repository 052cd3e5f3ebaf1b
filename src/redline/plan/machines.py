"""Which machine to pay for: rows of cores, memory and price, ranked by the money and hours that a training takes there.

Pure arithmetic; measurements are passed in.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redline.errors import UserError, unknown_name
from redline.jsonl import plain_text
from redline.plan.scaling import EXTRAPOLATED, MOST_CORES, CoresSpeed, Scaling
from redline.replay import ReplayLayout, largest_capacity
from redline.replay.layout import RESERVE_BYTES, at_capacity

SYSTEM_BYTES = 500_000_000  # of a machine's memory, for its operating system
PRICED_STEPS = 1_000_000  # whose hours and money are compared
TABLE = "machine"
REQUIRED = ("name", "cores", "memory_gb", "price_per_hour")
KEYS = (*REQUIRED, "gpu")
MOST_MACHINES = 1_000
MOST_MEMORY_GB = 100_000
MOST_PRICE_PER_HOUR = 100_000


@dataclass(frozen=True)
class Machine:
    """One row of the user's file."""

    name: str
    cores: int
    memory_bytes: int
    price_per_hour: float
    gpu: str | None = None


@dataclass(frozen=True)
class Needs:
    """The memory that a training takes, wherever it runs."""

    processes_bytes: int  # of all its processes, measured with a small replay memory
    layout: ReplayLayout | None  # of the replay memory, if there is one

    @property
    def memory_bytes(self) -> int:
        """What a machine must have, its operating system included."""
        return self._with(self.layout)

    @property
    def beside_bytes(self) -> int:
        """What all but the replay memory takes: a run refuses to start if less than the reserve is left for it."""
        return max(self.processes_bytes, RESERVE_BYTES)

    def largest_capacity(self, memory_bytes: int) -> int | None:
        """Return the largest replay memory that fits a machine, at most the one asked for; None if there is none."""
        layout = self.layout
        if layout is None:
            return None
        if self.memory_bytes <= memory_bytes:
            return layout.capacity
        return largest_capacity(
            layout.capacity - 1, lambda capacity: self._with(at_capacity(layout, capacity)) <= memory_bytes
        )

    def _with(self, layout: ReplayLayout | None) -> int:
        return SYSTEM_BYTES + self.beside_bytes + (0 if layout is None else layout.ram_bytes)


@dataclass(frozen=True)
class Row:
    """A machine with what a million steps take there."""

    machine: Machine
    speed: CoresSpeed  # with its cores alone
    fits: bool
    largest_capacity: int | None  # of a replay memory, None for a training without one

    @property
    def hours(self) -> float:
        """Hours of a million steps."""
        return hours_of(self.speed.steps_per_s)

    @property
    def cost(self) -> float:
        """Money for a million steps."""
        return self.hours * self.machine.price_per_hour

    @property
    def is_comparable(self) -> bool:
        """Whether it may be named the best: it has room, and no GPU, whose speed is unknown here."""
        return self.fits and self.machine.gpu is None

    def to_json(self) -> dict[str, Any]:
        """Return it as one plain object."""
        machine, speed = self.machine, self.speed
        low, high = hours_of(speed.high_steps_per_s), hours_of(speed.low_steps_per_s)
        return {
            **vars(machine),
            **speed.to_json(),
            "hours_per_1m_steps": self.hours,
            "low_hours": low,
            "high_hours": high,
            "cost_per_1m_steps": self.cost,
            "low_cost": low * machine.price_per_hour,
            "high_cost": high * machine.price_per_hour,
            "gpu_measured": None if machine.gpu is None else False,
            "fits": self.fits,
            "largest_capacity": self.largest_capacity,
        }


@dataclass(frozen=True)
class Ranking:
    """All machines, those that fit first, the cheapest of them first."""

    rows: tuple[Row, ...]

    @property
    def cheapest(self) -> Row | None:
        """The machine on which a million steps cost least."""
        return next((row for row in self.rows if row.is_comparable), None)

    @property
    def cheapest_not_extrapolated(self) -> Row | None:
        """The same among those whose cores lie within what was measured."""
        known = (row for row in self.rows if row.is_comparable and row.speed.basis != EXTRAPOLATED)
        return next(known, None)

    @property
    def quickest(self) -> Row | None:
        """The machine on which a million steps take the least time; of equals the cheapest."""
        return min((row for row in self.rows if row.is_comparable), key=lambda row: row.hours, default=None)


def rank(machines: Sequence[Machine], scaling: Scaling, needs: Needs) -> Ranking:
    """Say what a training takes on each machine, and order them by money, then by time."""
    rows = [
        Row(
            machine=machine,
            speed=scaling.speed(machine.cores),
            fits=needs.memory_bytes <= machine.memory_bytes,
            largest_capacity=needs.largest_capacity(machine.memory_bytes),
        )
        for machine in machines
    ]
    return Ranking(tuple(sorted(rows, key=lambda row: (not row.fits, row.cost, row.hours, row.machine.name))))


def hours_of(steps_per_s: float) -> float:
    """Return the hours of a million steps."""
    return PRICED_STEPS / steps_per_s / 3_600


# The user's file


def machines_in(content: Mapping[str, Any], place: object) -> tuple[Machine, ...]:
    """Return the machines of a file's tables [[machine]]; `place` names the file in what is wrong with it."""
    if others := [key for key in content if key != TABLE]:
        raise UserError(f"{place}: {unknown_name('key', plain_text(others[0]), [TABLE])}")
    tables = content.get(TABLE, [])
    if not isinstance(tables, list) or not all(isinstance(table, Mapping) for table in tables):
        raise UserError(f"{place}: {TABLE} is no list of tables: begin each machine with [[{TABLE}]]")
    if not 1 <= len(tables) <= MOST_MACHINES:
        raise UserError(f"{place} names {len(tables)} machines: write 1 to {MOST_MACHINES:_} tables [[{TABLE}]]")
    machines = []
    for number, table in enumerate(tables, start=1):
        try:
            machines.append(_machine(table))
        except UserError as error:
            raise UserError(f"{place}, machine {number}: {error}") from None
    names = [machine.name for machine in machines]
    if twice := next((name for place, name in enumerate(names) if name in names[:place]), None):
        raise UserError(f"{place} has two machines {twice!r}: give each a name of its own, or remove one")
    return tuple(machines)


def _machine(table: Mapping[str, Any]) -> Machine:
    for key in table:
        if key not in KEYS:
            raise unknown_name("key", plain_text(key), KEYS)
    for key in REQUIRED:
        if key not in table:
            raise UserError(f"{key} is missing: each machine has {', '.join(REQUIRED)}, and gpu if it has one")
    memory_gb = _number(table, "memory_gb", low=0.1, high=MOST_MEMORY_GB)
    cores = _number(table, "cores", low=1, high=MOST_CORES)
    if cores != int(cores):
        raise UserError(f"cores is {cores:g}: use a whole number")
    return Machine(
        name=_text(table, "name"),
        cores=int(cores),
        memory_bytes=round(memory_gb * 1e9),
        price_per_hour=_number(table, "price_per_hour", low=0, high=MOST_PRICE_PER_HOUR),
        gpu=_text(table, "gpu") if "gpu" in table else None,
    )


def _number(table: Mapping[str, Any], key: str, *, low: float, high: float) -> float:
    value = table[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise UserError(f"{key} is {plain_text(repr(value))}: use a number, {low:g} to {high:_g}")
    if not low <= value <= high:
        raise UserError(f"{key} is {value:g}: use {low:g} to {high:_g}")
    return value


def _text(table: Mapping[str, Any], key: str) -> str:
    value = table[key]
    if not isinstance(value, str) or not value.strip() or plain_text(value) != value:
        raise UserError(f"{key} is {plain_text(repr(value))}: use a short text on one line")
    return value

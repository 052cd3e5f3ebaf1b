"""Which machine to pay for: rows of cores, memory and price, ranked by the money and hours that a training takes there.

Speeds are measured for some numbers of cores, estimated for the others, and marked so. Between two measured numbers,
the time of a step is taken to be linear in 1 / cores. Beyond the last it follows Amdahl's law: a serial part, which
stays, and a parallel part, which the cores share. A law fitted to a few cores flatters many: from twice as many as were
measured on, further ones count only for the high end. Pure arithmetic; measurements are passed in.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from redline.bench.measuring import rate_of
from redline.errors import UserError, check_range, unknown_name
from redline.jsonl import plain_text
from redline.replay import ReplayLayout, largest_capacity
from redline.replay.layout import RESERVE_BYTES, at_capacity

MEASURED, INTERPOLATED, EXTRAPOLATED = "measured", "interpolated", "extrapolated"
LEAST_GAIN = 0.05  # a core that adds less does not pay
MOST_CORES = 1_024
MOST_COUNTS = 8  # that are measured: each is a training of its own, in memory beside the others
TRUSTED_TIMES = 2  # as many cores as were measured, for Amdahl's law
SYSTEM_BYTES = 500_000_000  # of a machine's memory, for its operating system
PRICED_STEPS = 1_000_000  # whose hours and money are compared
TABLE = "machine"
REQUIRED = ("name", "cores", "memory_gb", "price_per_hour")
KEYS = (*REQUIRED, "gpu")
MOST_MACHINES = 1_000
MOST_MEMORY_GB = 100_000
MOST_PRICE_PER_HOUR = 100_000


# Speeds by the number of cores


@dataclass(frozen=True)
class CoresSpeed:
    """Steps per second with so many cores."""

    steps_per_s: float
    low_steps_per_s: float
    high_steps_per_s: float
    basis: str  # MEASURED, INTERPOLATED or EXTRAPOLATED

    def to_json(self) -> dict[str, Any]:
        """Return it as one plain object."""
        return dict(vars(self))


@dataclass(frozen=True)
class Enough:
    """After how many cores a further one adds less than 5 %."""

    cores: int
    next_gain: float  # of the speed, by the next core
    basis: str  # of the speed with that next core


@dataclass(frozen=True)
class Scaling:
    """Speeds by the number of cores; one core is always among the measured."""

    measured: Mapping[int, CoresSpeed]

    @property
    def most_cores(self) -> int:
        """The most cores that were measured."""
        return max(self.measured)

    @property
    def serial_s(self) -> float:
        """Seconds of a step that more cores don't shorten."""
        return self._fit[0]

    @property
    def parallel_s(self) -> float:
        """Seconds of a step that cores share; 0 where the measured ones gained nothing from each other."""
        return self._fit[1]

    @property
    def _fit(self) -> tuple[float, float]:
        """Fit Amdahl's law to the measured times, by least squares with neither part below 0."""
        seconds = [1.0 / speed.steps_per_s for speed in self.measured.values()]
        shares = [1.0 / cores for cores in self.measured]
        if len(shares) == 1:
            return seconds[0], 0.0
        parallel_s, serial_s = np.polyfit(shares, seconds, 1).tolist()
        if parallel_s <= 0.0:
            return float(np.mean(seconds)), 0.0
        if serial_s < 0.0:
            return 0.0, float(np.dot(shares, seconds) / np.dot(shares, shares))
        return serial_s, parallel_s

    def speed(self, cores: int) -> CoresSpeed:
        """Return the speed with so many cores: measured, or estimated from what was measured."""
        if cores in self.measured:
            return self.measured[cores]
        return self._between(cores) if cores < self.most_cores else self._beyond(cores)

    def enough(self) -> Enough | None:
        """Return the cores after which the next one no longer pays; None if it lies too far beyond the measured."""
        if self.most_cores == 1:
            return None
        for cores in range(1, self._most_trusted):
            following = self.speed(cores + 1)
            gain = following.steps_per_s / self.speed(cores).steps_per_s - 1.0
            if gain < LEAST_GAIN:
                return Enough(cores, gain, following.basis)
        return None

    @property
    def _most_trusted(self) -> int:
        """The most cores for which Amdahl's law is more than a bound: envs, batches and memory end what it promises."""
        return TRUSTED_TIMES * self.most_cores

    def _between(self, cores: int) -> CoresSpeed:
        fewer = max(count for count in self.measured if count < cores)
        more = min(count for count in self.measured if count > cores)
        weight = (1 / cores - 1 / more) / (1 / fewer - 1 / more)  # 1 with `fewer` cores, 0 with `more`

        def rate(name: str) -> float:
            seconds = [1.0 / getattr(self.measured[count], name) for count in (fewer, more)]
            return float(1.0 / np.dot(seconds, (weight, 1.0 - weight)))

        return CoresSpeed(rate("steps_per_s"), rate("low_steps_per_s"), rate("high_steps_per_s"), INTERPOLATED)

    def _beyond(self, cores: int) -> CoresSpeed:
        """Estimate by Amdahl's law, cores that are too many left out: they are the high end. No gain is the low end."""
        last, (serial_s, parallel_s) = self.measured[self.most_cores], self._fit

        def gain(cores: int) -> float:
            return (serial_s + parallel_s / self.most_cores) / (serial_s + parallel_s / cores)

        most_gain = gain(cores) if self.most_cores > 1 else float(cores)  # of one core, no law can be fitted
        return replace(
            last,
            steps_per_s=last.steps_per_s * gain(min(cores, self._most_trusted)),
            high_steps_per_s=last.high_steps_per_s * most_gain,
            basis=EXTRAPOLATED,
        )


def scaling_of(rounds: Mapping[int, Sequence[float]]) -> Scaling:
    """Return the scaling that rounds of measured steps per second show, by the number of cores."""
    found = {cores: rate_of(rates) for cores, rates in sorted(rounds.items())}
    return Scaling(
        {cores: CoresSpeed(rate["median"], rate["low"], rate["high"], MEASURED) for cores, rate in found.items()}
    )


def counts_to_measure(usable_cores: int, wanted: Sequence[int]) -> tuple[int, ...]:
    """Choose how many cores to measure with: 1 and all, those that are wanted, and the small ones between them."""
    possible = [*wanted, *range(1, usable_cores)]
    chosen = [1, usable_cores]
    for cores in possible:
        if cores <= usable_cores and cores not in chosen and len(chosen) < MOST_COUNTS:
            chosen.append(cores)
    return tuple(sorted(set(chosen)))


# The machines


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
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UserError(f"{key} is {plain_text(repr(value))}: use a number, {low:g} to {high:_g}")
    check_range(key, value, low, high)
    return value


def _text(table: Mapping[str, Any], key: str) -> str:
    value = table[key]
    if not isinstance(value, str) or not value.strip() or plain_text(value) != value:
        raise UserError(f"{key} is {plain_text(repr(value))}: use a short text on one line")
    return value

"""One run on one page before it starts: memory, disk, cores, time and money, and the largest settings that fit.

Pure arithmetic; measurements are passed in.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from math import prod
from typing import Any

import numpy as np

from redline.algorithms.on_policy import OnPolicy
from redline.envs.game_lists import GameLimit
from redline.plan.disk import DiskPlan
from redline.plan.speed import RoleUse
from redline.plan.time import Bill, Projection, Span, Speed, project
from redline.replay import ReplayLayout, largest_capacity
from redline.replay.layout import RESERVE_BYTES, at_capacity
from redline.replay.rollout import ROW_DTYPES
from redline.runtime.config import Job, flag_of
from redline.types import Adjustment, EnvSpec

# measured on a machine with two cores: a training process without its envs, and each further one of --topology async
PROGRAM_BYTES = 400_000_000
PEER_BYTES = 250_000_000
EMULATOR_BYTES = 1_400_000  # of one Atari game; other envs are small
MOST_RECORD = 1_000_000  # one episode in so many


@dataclass(frozen=True)
class Need:
    """What a run takes of one thing, what there is of it, and what to change where that does not suffice."""

    what: str
    parts: Mapping[str, int]  # bytes
    free_bytes: int
    remedy: str | None = None  # the largest setting that fits; None where it fits, or where none does

    @property
    def needed_bytes(self) -> int:
        """All parts together."""
        return sum(self.parts.values())

    @property
    def fits(self) -> bool:
        """Whether there is as much."""
        return self.needed_bytes <= self.free_bytes

    def to_json(self) -> dict[str, Any]:
        """Return it as one plain object; bytes are integers."""
        return {
            "needed_bytes": self.needed_bytes,
            "free_bytes": self.free_bytes,
            "parts": dict(self.parts),
            "fits": self.fits,
            "remedy": self.remedy,
        }


@dataclass(frozen=True)
class Footprint:
    """The memory of a run: its replay memory, and all the rest."""

    layout: ReplayLayout | None
    num_envs: int
    actors: int  # that share the envs evenly
    fixed_bytes: int  # of programs and networks
    env_bytes: int  # of each env: its emulator, and its share of a rollout

    @property
    def beside_bytes(self) -> int:
        """All but the replay memory: at least the reserve without which a run does not start."""
        return max(RESERVE_BYTES, self.fixed_bytes + self.num_envs * self.env_bytes)

    def need(self, free_bytes: int) -> Need:
        """Return what the run needs of the memory that is free."""
        parts = {"programs, networks and envs": self.beside_bytes}
        if self.layout is not None:
            parts = {"replay memory": self.layout.ram_bytes, **parts}
        need = Need("memory", parts, free_bytes)
        return need if need.fits else replace(need, remedy=self._remedy(free_bytes))

    def _remedy(self, free_bytes: int) -> str | None:
        layout, left_bytes = self.layout, free_bytes - self.beside_bytes
        if layout is not None:
            capacity = largest_capacity(
                layout.capacity - 1, lambda capacity: at_capacity(layout, capacity).ram_bytes <= left_bytes
            )
            if capacity:
                return f"--replay.capacity {capacity:_}"
        replay_bytes = 0 if layout is None else layout.ram_bytes
        if not self.env_bytes or free_bytes - replay_bytes < RESERVE_BYTES:
            return None
        num_envs = (free_bytes - replay_bytes - self.fixed_bytes) // self.env_bytes // self.actors * self.actors
        return f"--num-envs {num_envs}" if num_envs > 0 else None


def footprint(
    job: Job, spec: EnvSpec, layout: ReplayLayout | None, *, network_bytes: int, measured_bytes: int | None = None
) -> Footprint:
    """Return the memory of a resolved job; `network_bytes` are those of the weights and all that goes with them.

    `measured_bytes` of all processes take the place of what is computed.
    """
    env_bytes = EMULATOR_BYTES if spec.is_image else 0
    if isinstance(job.algorithm, OnPolicy):
        frames = spec.stack * prod(spec.frame_shape) * np.dtype(spec.frame_dtype).itemsize
        row_bytes = frames + sum(np.dtype(dtype).itemsize for dtype in ROW_DTYPES.values())
        env_bytes += job.algorithm.rollout_steps * row_bytes
    peers = job.actors + 2 if job.topology == "async" else 0  # the supervisor and the evaluator too
    fixed_bytes = PROGRAM_BYTES + peers * PEER_BYTES + network_bytes
    if measured_bytes is not None:
        fixed_bytes = max(0, measured_bytes - job.num_envs * env_bytes)
    return Footprint(layout, job.num_envs, job.actors, fixed_bytes, env_bytes)


def disk_need(plan: DiskPlan, layout: ReplayLayout | None, saved_bytes: Callable[[ReplayLayout], int]) -> Need:
    """Return what a run needs of the disk; `saved_bytes` are those that a replay memory takes there."""
    parts = {
        "recordings": plan.recordings_bytes,
        "checkpoints": plan.checkpoints_bytes,
        "replay memory": plan.replay_bytes,
        "logs": plan.rows_bytes,
    }
    need = Need("disk", parts, plan.free_bytes)
    if need.fits:
        return need
    if replace(plan, record="off").fits:
        every = 2 + bisect_left(range(2, MOST_RECORD), True, key=lambda every: replace(plan, record=str(every)).fits)
        return replace(need, remedy=f"--record {every if every < MOST_RECORD else 'off'}")
    if layout is None:
        return need
    if capacity := _largest_saved(plan, layout, saved_bytes):
        return replace(need, remedy=f"--replay.capacity {capacity:_}")
    capacity = _largest_saved(replace(plan, record="off"), layout, saved_bytes)
    return replace(need, remedy=f"--replay.capacity {capacity:_} --record off") if capacity else need


def _largest_saved(plan: DiskPlan, layout: ReplayLayout, saved_bytes: Callable[[ReplayLayout], int]) -> int:
    """Return the largest replay memory whose checkpoints the disk holds, 0 if there is none."""
    return largest_capacity(
        layout.capacity - 1,
        lambda capacity: replace(plan, replay_bytes=saved_bytes(at_capacity(layout, capacity))).fits,
    )


# Cores


@dataclass(frozen=True)
class Role:
    """What a run does in threads of its own."""

    name: str
    setting: str  # that decides the threads
    threads: int
    count: int = 1  # of processes that do it


@dataclass(frozen=True)
class CoresPlan:
    """Who needs the cores."""

    usable: int
    roles: tuple[Role, ...]
    used: Mapping[str, RoleUse]  # by process, measured; empty if it was not

    @property
    def too_many(self) -> list[Role]:
        """Roles with more threads than there are cores: they wait for each other, and the run trains, but slower."""
        return [role for role in self.roles if role.threads > self.usable]

    def to_json(self) -> dict[str, Any]:
        """Return it as one plain object."""
        return {
            "usable": self.usable,
            "roles": [dict(vars(role)) for role in self.roles],
            "used": {name: dict(vars(use)) for name, use in self.used.items()},
            "too_many": {role.name: f"{flag_of(role.setting)} {self.usable}" for role in self.too_many},
        }


def roles_of(job: Job) -> tuple[Role, ...]:
    """Return the roles of a resolved job."""
    learner, envs = Role("learner", "learner.threads", job.learner.threads), job.actor.threads
    if job.topology == "inline":
        return learner, Role("envs", "actor.threads", envs)
    evaluator = (Role("evaluator", "evaluator.threads", job.evaluator.threads),)
    return (
        learner,
        Role("actor", "actor.threads", envs, job.actors),
        *(evaluator if job.evaluator.every_minutes else ()),
    )


# Time and money


@dataclass(frozen=True)
class TimePlan:
    """How long a run will train, and what that costs."""

    projection: Projection
    ends_by: str  # the limit that ends it

    def to_json(self) -> dict[str, Any]:
        """Return it as one plain object, rounded as it is shown."""
        told = self.projection.to_json()
        row, total = told["rows"][0], told["total"]
        names = ("hours", "low", "high", "days", "cost")
        speed = {name: row[name] for name in ("steps", "rate", "rate_unit", "rate_source")}
        return {**speed, **{name: total[name] for name in names}, "ends_by": self.ends_by}


def plan_time(job: Job, game: str, speed: Speed, *, frames_per_step: int, price: Decimal | None) -> TimePlan | None:
    """Project a run at a speed until its first limit; None if it has no limit of steps, episodes or minutes."""
    limits, minutes = job.limits, job.limits.max_minutes
    steps = limits.total_steps(frames_per_step=frames_per_step)
    found = []
    if steps is not None:
        found.append((GameLimit(game, steps, "steps"), f"{steps:,} steps"))
    if limits.max_episodes is not None and speed.episode_steps is not None:
        words = f"{limits.max_episodes:,} episodes of {speed.episode_steps:,.0f} steps"
        found.append((GameLimit(game, limits.max_episodes, "episodes"), words))
    if minutes is not None:
        by_clock = int(Decimal(minutes) * 60 * speed.rate) or 1
        found.append((GameLimit(game, by_clock, "steps"), f"{minutes:g} minutes"))
    plans = [TimePlan(project([limit], {game: speed}, Bill(price_per_hour=price)), words) for limit, words in found]
    if not plans:
        return None
    spans = [plan.projection.span for plan in plans]
    if minutes is not None:
        hours = Decimal(minutes) / 60  # however fast it is
        spans[-1] = Span(hours, hours, hours)
    first = min(range(len(plans)), key=lambda place: spans[place].hours)
    span = Span(*(min(getattr(span, end) for span in spans) for end in ("hours", "low", "high")))
    return replace(plans[first], projection=replace(plans[first].projection, span=span))


# The whole


@dataclass(frozen=True)
class RunPlan:
    """Everything that one run takes."""

    job: Job  # resolved
    algorithm: str
    steps: int | None  # that end it; None without such a limit
    memory: Need
    disk: Need
    disk_path: str
    cores: CoresPlan
    time: TimePlan | None  # None without a speed, or without a limit
    has_speed: bool
    price: Decimal | None
    adjustments: tuple[Adjustment, ...]  # requested → effective

    @property
    def misfits(self) -> list[tuple[str, str | None]]:
        """What does not fit, each with the largest setting that does, if there is one."""
        return [(need.what, need.remedy) for need in (self.memory, self.disk) if not need.fits]

    @property
    def fits(self) -> bool:
        """Whether this machine has all of it."""
        return not self.misfits

    def to_json(self) -> dict[str, Any]:
        """Return it as one plain object."""
        return {
            "algorithm": self.algorithm,
            "env": self.job.env.id,
            "topology": self.job.topology,
            "num_envs": self.job.num_envs,
            "steps": self.steps,
            "memory": self.memory.to_json(),
            "disk": {**self.disk.to_json(), "path": self.disk_path},
            "cores": self.cores.to_json(),
            "time": None if self.time is None else self.time.to_json(),
            "price_per_hour": None if self.price is None else float(self.price),
            "adjustments": [str(adjustment) for adjustment in self.adjustments],
            "does_not_fit": [{"what": what, "remedy": remedy} for what, remedy in self.misfits],
            "fits": self.fits,
        }

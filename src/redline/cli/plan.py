"""`redline plan memory`: what a replay memory will take, before a run is started; `plan disk` is beside it."""

import json
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from redline.cli.flags import default_job, scan
from redline.cli.main import DONE, FAILED, refuse
from redline.cli.parsing import parse
from redline.cli.plan_disk import free_at, run_disk
from redline.cli.tables import is_plain, print_table, progress_bar
from redline.cli.wording import size
from redline.envs.catalog import env_spec, resolve
from redline.envs.config import EnvConfig
from redline.envs.vector import EnvError
from redline.errors import UserError, unknown_name
from redline.experience import available_bytes
from redline.experience.sizing import RESERVE_BYTES, SURPLUS
from redline.plan.memory import CODECS, MemoryPlan, Room, Row, plan_memory
from redline.runs.errors import free_bytes
from redline.runtime.compression import measure_codecs

SUBJECTS = ("memory", "disk")
MIN_CAPACITY, MAX_CAPACITY = 1_000, 10**12
SHM = Path("/dev/shm")  # noqa: S108 - looked at, never written to


@dataclass(frozen=True)
class PlanMemoryFlags:
    """Compare what a replay memory takes in every layout; compression is measured by playing the game at random."""

    env: EnvConfig
    """The environment."""
    capacity: int = 1_000_000
    """Transitions to keep."""
    seconds: float = 3.0
    """Seconds to play."""
    seed: int = 0
    """Seed of the games and of the actions."""
    path: Path = Path()
    """Folder on the disk that could hold the memory."""
    plain: bool = False
    """Plain text, no drawing."""
    json: bool = False
    """Print the plan as one JSON object on stdout, and nothing else there."""

    def __post_init__(self) -> None:
        if not MIN_CAPACITY <= self.capacity <= MAX_CAPACITY:
            raise UserError(f"capacity is {self.capacity}: use {MIN_CAPACITY:_} to {MAX_CAPACITY:_}")
        if not 0.0 < self.seconds <= 3_600.0:
            raise UserError(f"seconds is {self.seconds:g}: use more than 0 and at most 3600, such as --seconds 3")
        if not 0 <= self.seed < 2**31:
            raise UserError(f"seed is {self.seed}: use 0 to {2**31 - 1:_}")


def run(args: Sequence[str]) -> int:
    """Plan what the first word names, and return the exit code."""
    at = next((i for i, arg in enumerate(args) if arg not in ("--plain", "--json")), len(args))
    if at == len(args) or (args[at].startswith("-") and args[at] not in ("--help", "-h")):
        raise UserError(
            "plan needs a subject: redline plan memory --capacity 1_000_000, or redline plan disk --steps 50_000_000"
        )
    if args[at] in ("--help", "-h"):
        print(
            "usage: redline plan memory|disk [options]\n\n"
            "redline plan memory --help and redline plan disk --help show the options"
        )
        return DONE
    if args[at] not in SUBJECTS:
        raise unknown_name("plan", args[at], SUBJECTS)
    rest = [*args[:at], *args[at + 1 :]]
    if args[at] == "disk":
        return run_disk(rest)
    return run_memory(rest)


def run_memory(args: Sequence[str]) -> int:
    """Measure, compare, print."""
    env_id = scan(args, {"env": "env", "env.id": "env"}).get("env", EnvConfig.id)
    usual = default_job("dqn", env_id).env
    flags = parse(PlanMemoryFlags, args, default=PlanMemoryFlags(env=usual), prog="redline plan memory")
    env, adjustments = resolve(flags.env.id).effective(flags.env)
    for adjustment in adjustments:
        if adjustment.setting != "env.size" or flags.env.size != usual.size:  # the default was not asked for
            print(f"requested → effective: {adjustment}", file=sys.stderr)
    room = find_room(flags.path)
    spec = env_spec(env)
    plain = is_plain(plain=flags.plain, as_json=flags.json)
    try:
        with progress_bar(f"playing {spec.name}", plain=plain) as progress:
            measured = measure_codecs(
                env,
                CODECS if spec.is_image else ("raw",),
                seconds=flags.seconds,
                seed=flags.seed,
                capacity=flags.capacity,
                progress=progress,
            )
    except EnvError as error:
        return refuse(str(error), as_json=flags.json, code=FAILED)
    plan = plan_memory(
        spec,
        measured,
        env_flags=env_flags(env, usual, ignored={item.setting for item in adjustments}),
        capacity=flags.capacity,
        room=room,
    )
    if flags.json:
        print(json.dumps(plan.to_json()))
    else:
        show(plan, plain=plain, num_played=max(found.num_transitions for found in measured.values()))
    return DONE


def find_room(path: Path) -> Room:
    """Return what is free on this machine and on the disk of `path`, which need not exist yet."""
    return Room(
        ram_bytes=available_bytes(),
        kept_free_bytes=RESERVE_BYTES,
        shm_bytes=free_bytes(SHM) if SHM.is_dir() else None,
        disk_bytes=free_at(path),
        disk_path=str(path),
    )


def env_flags(env: EnvConfig, usual: EnvConfig, *, ignored: Collection[str]) -> list[str]:
    """Return the flags with which `redline train` plays the same env, without those that it would ignore."""
    flags = ["--env", env.id]
    for field in fields(env):
        value = getattr(env, field.name)
        if field.name != "id" and f"env.{field.name}" not in ignored and value != getattr(usual, field.name):
            flags += [f"--env.{field.name.replace('_', '-')}", str(value)]
    return flags


def show(plan: MemoryPlan, *, plain: bool, num_played: int) -> None:
    """Print the plan as a table."""
    spec, room = plan.spec, plan.room
    shape = " × ".join(map(str, spec.frame_shape))
    print(f"{plan.capacity:,} transitions of {spec.name}: frames {shape} {spec.frame_dtype}, stack {spec.stack}")
    head = ("layout", "each", "in all", "fits in", "most in RAM")
    print_table(head, [_cells(row) for row in plan.rows], plain=plain, numeric=(1, 2, 4))
    print(f"frames kept once were measured on {num_played:,} steps of random play, with all that is noted beside them")
    if spec.is_image:
        print(f"room is reserved for compressed frames {SURPLUS:g} × as large: a better player sees more")
    shm = "none" if room.shm_bytes is None else size(room.shm_bytes)
    print(
        f"free here: RAM {size(room.ram_bytes)}, {size(room.kept_free_bytes)} of it kept for the rest · "
        f"{SHM} {shm} · disk at {room.disk_path} {size(room.disk_bytes)}"
    )
    choice = plan.recommendation
    print(f"recommended: {choice.command or 'nothing fits'}")
    print(f"  because {choice.why}")


def _cells(row: Row) -> tuple[str, ...]:
    places = {"RAM": row.fits_ram, "shm": row.fits_shm, "disk": row.fits_disk}
    return (
        row.layout.label,
        size(row.layout.bytes_per_transition),
        size(row.total_bytes),
        " ".join(name for name, fits in places.items() if fits) or "nowhere",
        f"{row.largest_capacity_in_ram:,}",
    )

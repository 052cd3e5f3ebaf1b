"""`redline plan memory`: a replay memory in every layout, and what fits this machine."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from redline.cli.flags import default_job, scan
from redline.cli.output import give, is_plain, print_table, progress_bar
from redline.cli.parsing import Json, Plain, parse
from redline.cli.plan.asked import ENV_NAMES, effective_env, env_flags, free_at
from redline.envs.catalog import env_spec
from redline.envs.config import EnvConfig
from redline.errors import check_range, check_seed
from redline.files import free_bytes
from redline.plan.memory import CODECS, MemoryPlan, Room, Row, plan_memory
from redline.replay import available_bytes
from redline.replay.layout import RESERVE_BYTES, SURPLUS
from redline.runtime.replay_sizing import measure_codecs
from redline.units import size

SHM = Path("/dev/shm")  # noqa: S108 - looked at, never written to


@dataclass(frozen=True)
class PlanMemoryFlags:
    """Compare the size of a replay memory in every layout; compression is measured by random play."""

    env: EnvConfig
    """The environment."""
    capacity: int = 1_000_000
    """Transitions in the memory."""
    seconds: float = 3.0
    """Seconds to play."""
    seed: int = 0
    """Seed of the games and of the actions."""
    path: Path = Path()
    """Folder on the disk that could hold the memory."""
    plain: Plain = False
    json: Json = False

    def __post_init__(self) -> None:
        check_range("capacity", self.capacity, 1_000, 10**12)
        check_range("seconds", self.seconds, 0.001, 3_600)
        check_seed(self.seed)


def run(args: Sequence[str]) -> int:
    """Measure, compare, print."""
    usual = default_job("dqn", scan(args, ENV_NAMES).get("env", EnvConfig.id)).env
    flags = parse(PlanMemoryFlags, args, default=PlanMemoryFlags(env=usual), prog="redline plan memory")
    env, ignored = effective_env(flags.env, usual)
    room = Room(
        ram_available_bytes=available_bytes(),
        ram_kept_free_bytes=RESERVE_BYTES,
        shm_free_bytes=free_bytes(SHM) if SHM.is_dir() else None,
        disk_free_bytes=free_at(flags.path),
        disk_path=str(flags.path),
    )
    spec = env_spec(env)
    with progress_bar(f"playing {spec.name}", plain=is_plain(flags)) as progress:
        measured = measure_codecs(
            env,
            CODECS if spec.is_image else ("raw",),
            seconds=flags.seconds,
            seed=flags.seed,
            capacity=flags.capacity,
            progress=progress,
        )
    env_words = env_flags(env, usual, ignored=ignored)
    plan = plan_memory(spec, measured, env_flags=env_words, capacity=flags.capacity, room=room)
    num_played = max(found.num_transitions for found in measured.values())
    return give(plan.to_json(), flags, lambda _, plain: show_memory(plan, plain=plain, num_played=num_played))


def show_memory(plan: MemoryPlan, *, plain: bool, num_played: int) -> None:
    """Print a plan of the memory as a table."""
    spec, room, choice = plan.spec, plan.room, plan.recommendation
    shape = " × ".join(map(str, spec.frame_shape))
    print(f"{plan.capacity:,} transitions of {spec.name}: frames {shape} {spec.frame_dtype}, stack {spec.stack}")
    head = ("layout", "each", "in all", "fits in", "most in RAM")
    print_table(head, [_cells(row) for row in plan.rows], plain=plain, numeric=(1, 2, 4))
    print(f"layouts with each frame once were measured over {num_played:,} steps of random play, all data included")
    if spec.is_image:
        print(f"compressed frames get {SURPLUS:g} × that room: a better player sees more varied frames")
    shm = "none" if room.shm_free_bytes is None else size(room.shm_free_bytes)
    print(
        f"free here: RAM {size(room.ram_available_bytes)}, {size(room.ram_kept_free_bytes)} of it kept for the rest · "
        f"{SHM} {shm} · disk at {room.disk_path} {size(room.disk_free_bytes)}"
    )
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

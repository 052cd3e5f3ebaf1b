"""`redline plan memory` and `redline plan disk`: what a replay memory, or a whole run, will need."""

import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated

import tyro

from redline.algorithms.catalog import canonical_name
from redline.algorithms.q_learning import QLearning
from redline.cli.flags import default_job, scan
from redline.cli.main import failing
from redline.cli.output import give, is_plain, print_table, progress_bar
from redline.cli.parsing import Json, Plain, check_range, check_seed, parse, run_subject
from redline.envs.catalog import env_spec, resolve
from redline.envs.config import EnvConfig
from redline.envs.vector import EnvError
from redline.episodes.estimate import measure_recordings
from redline.episodes.tracing import RecordingConfig
from redline.errors import UserError
from redline.files import explained, free_bytes
from redline.plan.disk import DiskPlan
from redline.plan.memory import CODECS, MemoryPlan, Room, Row, plan_memory
from redline.replay import available_bytes
from redline.replay.sizing import RESERVE_BYTES, SURPLUS, ReplayConfig
from redline.runs.host import usable_cores
from redline.runtime.building import KEPT_CHECKPOINTS, checkpoint_bytes
from redline.runtime.replay_sizing import measure_codecs
from redline.runtime.resolve import resolve_job
from redline.units import size

NUM_ENVS = 4  # to play in: each takes a moment to start
SHM = Path("/dev/shm")  # noqa: S108 - looked at, never written to
ENV_NAMES = {"env": "env", "env.id": "env"}


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


@dataclass(frozen=True)
class PlanDiskFlags:
    """Project what a run will leave on disk; the size of recordings is measured by random play."""

    env: EnvConfig
    """The environment."""
    algo: Annotated[str, tyro.conf.arg(aliases=("--model",))] = "dqn"
    """Algorithm, by name: its network decides the size of a checkpoint."""
    steps: int = 50_000_000
    """Steps of the run."""
    recording: Annotated[RecordingConfig, tyro.conf.arg(name="")] = field(default_factory=RecordingConfig)
    """What is kept of every episode."""
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    """The replay memory, which checkpoints save."""
    steps_per_s: float = 500.0
    """Speed of the run: some files grow with time."""
    seconds: float = 3.0
    """Seconds to play; more are needed for long episodes."""
    seed: int = 0
    """Seed of the games and of the actions."""
    path: Path = Path("runs")
    """Folder that will hold the run."""
    plain: Plain = False
    json: Json = False

    def __post_init__(self) -> None:
        check_range("steps", self.steps, 1, 10**12)
        check_range("steps-per-s", self.steps_per_s, 0.1, 10**9)
        check_range("seconds", self.seconds, 0.001, 3_600)
        check_seed(self.seed)


def run(args: Sequence[str]) -> int:
    """Plan what the first word names, and return the exit code."""
    with failing(EnvError):
        return run_subject("plan", args, SUBJECTS)


def effective_env(asked: EnvConfig, usual: EnvConfig) -> tuple[EnvConfig, set[str]]:
    """Return the env as it will be, and the settings that have no effect; name those that the user typed."""
    env, adjustments = resolve(asked.id).effective(asked)
    for adjustment in adjustments:
        if adjustment.setting != "env.size" or asked.size != usual.size:
            print(f"requested → effective: {adjustment}", file=sys.stderr)
    return env, {adjustment.setting for adjustment in adjustments}


def free_at(path: Path) -> int:
    """Return the free bytes on the disk of a folder, which need not exist yet."""
    with explained(UserError, path, before="path ", after=": use another --path"):
        place = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
        if not place.is_dir():
            raise UserError(f"path {path} is no folder: name a folder on the disk that is meant")
        return free_bytes(place)


def run_memory(args: Sequence[str]) -> int:
    """Measure, compare, print."""
    usual = default_job("dqn", scan(args, ENV_NAMES).get("env", EnvConfig.id)).env
    flags = parse(PlanMemoryFlags, args, default=PlanMemoryFlags(env=usual), prog="redline plan memory")
    env, ignored = effective_env(flags.env, usual)
    room = Room(
        ram_bytes=available_bytes(),
        kept_free_bytes=RESERVE_BYTES,
        shm_bytes=free_bytes(SHM) if SHM.is_dir() else None,
        disk_bytes=free_at(flags.path),
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


def env_flags(env: EnvConfig, usual: EnvConfig, *, ignored: Collection[str]) -> list[str]:
    """Return the flags with which `redline train` plays the same env, without those that have no effect."""
    flags = ["--env", env.id]
    for setting in fields(env):
        value = getattr(env, setting.name)
        if setting.name != "id" and f"env.{setting.name}" not in ignored and value != getattr(usual, setting.name):
            flags += [f"--env.{setting.name.replace('_', '-')}", str(value)]
    return flags


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
    shm = "none" if room.shm_bytes is None else size(room.shm_bytes)
    print(
        f"free here: RAM {size(room.ram_bytes)}, {size(room.kept_free_bytes)} of it kept for the rest · "
        f"{SHM} {shm} · disk at {room.disk_path} {size(room.disk_bytes)}"
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


def run_disk(args: Sequence[str]) -> int:
    """Measure, project, print."""
    typed = scan(args, {**ENV_NAMES, "algo": "algo", "model": "algo"})
    algo = canonical_name(typed.get("algo", PlanDiskFlags.algo))
    usual = default_job(algo, typed.get("env", EnvConfig.id))
    replay = usual.algorithm.replay or ReplayConfig()
    default = PlanDiskFlags(env=usual.env, algo=algo, replay=replay)
    flags = parse(PlanDiskFlags, args, default=default, prog="redline plan disk")
    if usual.algorithm.replay is None and flags.replay != replay:
        raise UserError(f"{algo} has no replay memory: leave out --replay.…, or use --algo dqn")
    env, _ = effective_env(flags.env, usual.env)
    free = free_at(flags.path)
    with progress_bar(f"playing {env.id}", plain=is_plain(flags)) as progress:
        algorithm = usual.algorithm
        if isinstance(algorithm, QLearning):
            algorithm = replace(algorithm, replay=flags.replay)
        settled = resolve_job(replace(usual, env=env, algorithm=algorithm))
        measured = measure_recordings(
            settled.job.env,
            values=flags.recording.record_values,
            seconds=flags.seconds,
            seed=flags.seed,
            num_envs=NUM_ENVS,
            threads=min(usable_cores(), NUM_ENVS),
            progress=progress,
        )
    checkpoints = checkpoint_bytes(replace(settled, layout=None))
    in_use = settled.layout.disk_bytes if settled.layout is not None else 0  # with --replay.path
    plan = DiskPlan(
        env=env.id,
        algorithm=algo,
        steps=flags.steps,
        steps_per_s=flags.steps_per_s,
        record=flags.recording.record,
        has_values=flags.recording.record_values,
        num_actions=settled.spec.num_actions,
        cores=usable_cores(),
        measured=measured,
        checkpoints_bytes=checkpoints,
        replay_bytes=checkpoint_bytes(settled) - checkpoints + in_use,
        free_bytes=free,
        path=str(flags.path),
    )
    return give(plan.to_json(), flags, lambda _, plain: show_disk(plan, plain=plain))


def show_disk(plan: DiskPlan, *, plain: bool) -> None:
    """Print a plan of the disk as a table."""
    measured = plan.measured
    print(f"{plan.steps:,} steps of {plan.algorithm} on {plan.env}")
    basis = "measured" if measured.is_measured else "computed"
    usual = {"all": "every episode", "best": "the best episodes", "off": "none"}
    recorded = usual.get(plan.record, f"one episode in {plan.record}") + " with values" * plan.has_values
    kept = f"{KEPT_CHECKPOINTS} at once"
    rows = [
        ("recordings", size(plan.recordings_bytes), f"{basis}: {recorded}"),
        ("checkpoints", size(plan.checkpoints_bytes), f"computed: {kept}, with target network and optimizer"),
        ("replay memory", size(plan.replay_bytes), f"at most: {kept}, nothing shared between them"),
        ("logs", size(plan.rows_bytes), f"about, at {plan.steps_per_s:g} steps/s"),
        ("in all", size(plan.total_bytes), ""),
    ]
    print_table(("what", "bytes", "basis"), rows, plain=plain, numeric=(1,))
    if measured.is_measured:
        print(
            f"recordings: {size(measured.bytes_per_episode, 0)} per episode, {measured.bytes_per_step:.2f} B per step, "
            f"over {measured.num_episodes:,} episodes of random play, {measured.mean_length_steps:,.0f} steps each"
        )
    else:
        print(
            f"no episode ended within {measured.num_steps:,} steps: recordings are computed for episodes of that "
            "length (more --seconds would measure them)"
        )
    verdict = (
        "it fits" if plan.fits else "it does not fit: make room, use another --path or a smaller --replay.capacity"
    )
    print(f"free at {plan.path}: {size(plan.free_bytes)}, {verdict}")


SUBJECTS = {
    "memory": (run_memory, "a replay memory in every layout, and what fits this machine"),
    "disk": (run_disk, "what a whole run will leave on disk"),
}

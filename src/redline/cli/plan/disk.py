"""`redline plan disk`: what a whole run will leave on disk."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro

from redline.algorithms.catalog import canonical_name
from redline.algorithms.q_learning import QLearning
from redline.cli.flags import default_job, scan
from redline.cli.output import give, is_plain, print_table, progress_bar
from redline.cli.parsing import Json, Plain, parse
from redline.cli.plan.asked import ENV_NAMES, effective_env, free_at
from redline.envs.config import EnvConfig
from redline.episodes.estimate import MeasuredRecordings, measure_recordings
from redline.episodes.tracing import RecordingConfig
from redline.errors import UserError, check_range, check_seed
from redline.plan.disk import DiskPlan
from redline.replay import ReplayLayout
from redline.replay.layout import ReplayConfig
from redline.runs.host import usable_cores
from redline.runtime.building import KEPT_CHECKPOINTS, checkpoint_bytes, saved_replay_bytes
from redline.runtime.config import Job
from redline.runtime.resolve import ResolvedJob, resolve_job
from redline.units import size

NUM_ENVS = 4  # to play in: each takes a moment to start


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
    algorithm = usual.algorithm
    if isinstance(algorithm, QLearning):
        algorithm = replace(algorithm, replay=flags.replay)
    free_at(flags.path)  # before anything is measured
    settled = resolve_job(
        replace(usual, env=env, algorithm=algorithm, recording=flags.recording, seed=flags.seed, log_dir=flags.path)
    )
    measured = play_at_random(settled.job, seconds=flags.seconds, plain=is_plain(flags))
    plan = disk_plan(settled, measured, algorithm=algo, steps=flags.steps, steps_per_s=flags.steps_per_s)
    return give(plan.to_json(), flags, lambda _, plain: show_disk(plan, plain=plain))


def play_at_random(job: Job, *, seconds: float, plain: bool) -> MeasuredRecordings:
    """Return the size of recordings, measured by playing for so long."""
    with progress_bar(f"playing {job.env.id}", plain=plain) as progress:
        return measure_recordings(
            job.env,
            values=job.recording.record_values,
            seconds=seconds,
            seed=job.seed,
            num_envs=NUM_ENVS,
            threads=min(usable_cores(), NUM_ENVS),
            progress=progress,
        )


def disk_plan(
    settled: ResolvedJob, measured: MeasuredRecordings, *, algorithm: str, steps: int, steps_per_s: float
) -> DiskPlan:
    """Return the plan of a resolved job, with recordings as they were measured."""
    job, layout = settled.job, settled.layout
    return DiskPlan(
        env=job.env.id,
        algorithm=algorithm,
        steps=steps,
        steps_per_s=steps_per_s,
        record=job.recording.record,
        has_values=job.recording.record_values,
        num_actions=settled.spec.num_actions,
        cores=usable_cores(),
        measured=measured,
        checkpoints_bytes=checkpoint_bytes(replace(settled, layout=None)),
        replay_bytes=0 if layout is None else replay_disk_bytes(layout),
        free_bytes=free_at(job.log_dir),
        path=str(job.log_dir),
    )


def replay_disk_bytes(layout: ReplayLayout) -> int:
    """Return what a replay memory takes on the disk: in checkpoints, and with --replay.path while it is in use."""
    return saved_replay_bytes(layout) + layout.disk_bytes


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

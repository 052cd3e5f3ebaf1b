"""`redline plan disk`: what a run will leave on the disk, before it is started."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

import tyro

from redline.algorithms.catalog import canonical_name
from redline.algorithms.q_learning import QLearning
from redline.cli.flags import default_job, scan
from redline.cli.main import DONE, FAILED, refuse
from redline.cli.parsing import parse
from redline.cli.tables import is_plain, print_table, progress_bar
from redline.cli.wording import size
from redline.envs.catalog import resolve
from redline.envs.config import EnvConfig
from redline.envs.vector import EnvError
from redline.errors import UserError
from redline.experience.sizing import ReplayConfig
from redline.plan.disk import DiskPlan, plan_disk
from redline.recordings.estimate import measure_recordings
from redline.recordings.tracing import RecordingConfig
from redline.runs.errors import explain, free_bytes
from redline.runtime.building import KEPT_CHECKPOINTS, Settled, checkpoint_bytes, settle
from redline.runtime.job import Job
from redline.runtime.roles import usable_cores

PROGRAM = "redline plan disk"
MOST_STEPS = 10**12
NUM_ENVS = 4  # to play: each takes a moment to start


@dataclass(frozen=True)
class PlanDiskFlags:
    """Project what a run will leave on the disk; recordings are measured by playing the game at random."""

    env: EnvConfig
    """The environment."""
    algo: Annotated[str, tyro.conf.arg(aliases=("--model",))] = "dqn"
    """Algorithm, by name: its network decides how large a checkpoint is."""
    steps: int = 50_000_000
    """Steps of the run."""
    recording: Annotated[RecordingConfig, tyro.conf.arg(name="")] = field(default_factory=RecordingConfig)
    """What is kept of every episode."""
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    """The replay memory, which checkpoints save."""
    steps_per_s: float = 500.0
    """Speed of the run: some records are written by the clock."""
    seconds: float = 3.0
    """Seconds to play; more where episodes are long."""
    seed: int = 0
    """Seed of the games and of the actions."""
    path: Path = Path("runs")
    """Folder that will hold the run."""
    plain: bool = False
    """Plain text, no drawing."""
    json: bool = False
    """Print the plan as one JSON object on stdout, and nothing else there."""

    def __post_init__(self) -> None:
        if not 1 <= self.steps <= MOST_STEPS:
            raise UserError(f"steps is {self.steps}: use 1 to {MOST_STEPS:_}")
        if not 0.1 <= self.steps_per_s <= 1e9:
            raise UserError(f"steps-per-s is {self.steps_per_s:g}: use 0.1 or more, such as --steps-per-s 500")
        if not 0.0 < self.seconds <= 3_600.0:
            raise UserError(f"seconds is {self.seconds:g}: use more than 0 and at most 3600, such as --seconds 3")
        if not 0 <= self.seed < 2**31:
            raise UserError(f"seed is {self.seed}: use 0 to {2**31 - 1:_}")


def run_disk(args: Sequence[str]) -> int:
    """Measure, project, print."""
    typed = scan(args, {"env": "env", "env.id": "env", "algo": "algo", "model": "algo"})
    algo = canonical_name(typed.get("algo", PlanDiskFlags.algo))
    usual = default_job(algo, typed.get("env", EnvConfig.id))
    replay = usual.algorithm.replay or ReplayConfig()
    default = PlanDiskFlags(env=usual.env, algo=algo, replay=replay)
    flags = parse(PlanDiskFlags, args, default=default, prog=PROGRAM)
    env, adjustments = resolve(flags.env.id).effective(flags.env)
    for adjustment in adjustments:
        if adjustment.setting != "env.size" or flags.env.size != usual.env.size:  # the default was not asked for
            print(f"requested → effective: {adjustment}", file=sys.stderr)
    free = free_at(flags.path)
    plain = is_plain(plain=flags.plain, as_json=flags.json)
    try:
        with progress_bar(f"playing {env.id}", plain=plain) as progress:
            settled = settle(with_replay(replace(usual, env=env), flags.replay, is_asked=flags.replay != replay))
            measured = measure_recordings(
                settled.job.env,
                values=flags.recording.record_values,
                seconds=flags.seconds,
                seed=flags.seed,
                num_envs=NUM_ENVS,
                threads=min(usable_cores(), NUM_ENVS),
                progress=progress,
            )
    except EnvError as error:
        return refuse(str(error), as_json=flags.json, code=FAILED)
    weights, saved_replay = checkpoints_of(settled)
    plan = plan_disk(
        measured,
        env=env.id,
        algorithm=algo,
        steps=flags.steps,
        steps_per_s=flags.steps_per_s,
        num_actions=settled.spec.num_actions,
        record=flags.recording.record,
        has_values=flags.recording.record_values,
        checkpoints_bytes=weights,
        replay_bytes=saved_replay,
        cores=usable_cores(),
        free_bytes=free,
        path=str(flags.path),
    )
    if flags.json:
        print(json.dumps(plan.to_json()))
    else:
        show(plan, plain=plain)
    return DONE


def free_at(path: Path) -> int:
    """Return what is free on the disk of a folder, which need not exist yet."""
    try:
        place = next(folder for folder in (path.absolute(), *path.absolute().parents) if folder.exists())
        if not place.is_dir():
            raise UserError(f"path {path} is no folder: use one on the disk that is meant")
        return free_bytes(place)
    except OSError as error:
        raise UserError(f"path {explain(error, path)}: use another --path") from None


def with_replay(job: Job, replay: ReplayConfig, *, is_asked: bool) -> Job:
    """Return the job with that replay memory; refuse where the algorithm has none."""
    if isinstance(job.algorithm, QLearning):
        return replace(job, algorithm=replace(job.algorithm, replay=replay))
    if is_asked:
        raise UserError("this algorithm has no replay memory: leave out --replay.…, or use --algo dqn")
    return job


def checkpoints_of(settled: Settled) -> tuple[int, int]:
    """Return what all kept checkpoints take at most: without the replay memories that they name, and those."""
    weights_bytes = checkpoint_bytes(replace(settled, layout=None))
    in_use_bytes = settled.layout.disk_bytes if settled.layout is not None else 0  # with --replay.path
    return weights_bytes, checkpoint_bytes(settled) - weights_bytes + in_use_bytes


def show(plan: DiskPlan, *, plain: bool) -> None:
    """Print the plan as a table."""
    measured = plan.measured
    print(f"{plan.steps:,} steps of {plan.algorithm} on {plan.env}")
    share = "measured" if measured.is_measured else "computed"
    kept = f"{KEPT_CHECKPOINTS} at once"
    rows = [
        ("recordings", size(plan.recordings_bytes), f"{share}: {_recorded(plan)}"),
        ("checkpoints", size(plan.checkpoints_bytes), f"computed: {kept}, weights, the target's and the optimiser's"),
        ("replay memory", size(plan.replay_bytes), f"at most: {kept}, none sharing with another"),
        ("rows of records", size(plan.rows_bytes), f"about, at {plan.steps_per_s:g} steps/s"),
        ("in all", size(plan.total_bytes), ""),
    ]
    print_table(("what", "bytes", "how it was found"), rows, plain=plain, numeric=(1,))
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


def _recorded(plan: DiskPlan) -> str:
    values = " with values" if plan.has_values else ""
    return {"all": "every episode", "best": "the best ones", "off": "none"}.get(
        plan.record, f"one episode in {plan.record}"
    ) + values

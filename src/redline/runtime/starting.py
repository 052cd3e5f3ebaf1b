"""How a session begins: a new run, or an old one from its newest valid checkpoint."""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from redline.algorithms.catalog import find_algorithm
from redline.errors import UserError
from redline.runs.checkpoints import CheckpointStore
from redline.runs.directory import RunDirectory, read_run_json
from redline.runs.host import host_facts
from redline.runs.manifest import Checkpoint
from redline.runtime.building import Settled, build_trainer, check_disk, settle
from redline.runtime.checkpointing import restore_checkpoint
from redline.runtime.curves import HOW_TO_GET_IT, Curves
from redline.runtime.inline import InlineTrainer
from redline.runtime.job import Job
from redline.runtime.session import Session
from redline.runtime.settings import flatten, from_settings, to_settings
from redline.runtime.watching import Watcher

# what `redline resume` may change; docs/resume.md says what each change costs
MAY_CHANGE = frozenset(
    {
        "max_steps",
        "max_frames",
        "max_episodes",
        "max_minutes",
        "target_return",
        "checkpoint_minutes",
        "device",
        "threads.learner",
        "threads.envs",
        "num_envs",
        "batch_size",
        "optimizer.lr",
        "replay.capacity",
        "replay.prefetch",
    }
)
# a run is bit-exact only between hosts that agree in these
EXACT_HOST = ("cpu_model",)
EXACT_VERSIONS = ("torch", "numpy", "ale-py", "gymnasium")


@dataclass(frozen=True)
class SavedRun:
    """What a run directory says of the run."""

    path: Path
    job: Job
    algorithm: str
    facts: dict[str, Any]  # run.json


def read_run(path: Path) -> SavedRun:
    """Read what a run was asked to do."""
    facts = read_run_json(path)
    try:
        algorithm = str(facts["algorithm"])
        job = from_settings(Job(algorithm=find_algorithm(algorithm).atari), facts["config"])
    except (KeyError, TypeError) as error:
        raise UserError(f"{path}/run.json is no run of this version of Redline: {error}") from None
    return SavedRun(path, job, algorithm, facts)


def start_run(job: Job, algorithm: str, watcher: Watcher) -> Session:
    """Begin a new run in a new directory."""
    settled = settle(job)
    prepare_process(settled)
    trainer = build_trainer(settled, env_seed=job.seed)
    try:
        check_disk(trainer, job.log_dir)
        run = RunDirectory.create(job.log_dir, game=trainer.env.spec.name, algorithm=algorithm, seed=job.seed)
    except BaseException:
        trainer.env.close()
        raise
    try:
        return _first_session(run, trainer, settled, algorithm, watcher)
    except BaseException:
        trainer.env.close()
        run.close()
        shutil.rmtree(run.path, ignore_errors=True)  # no checkpoint, so nothing that could be resumed
        raise


def _first_session(
    run: RunDirectory, trainer: InlineTrainer, settled: Settled, algorithm: str, watcher: Watcher
) -> Session:
    facts = {
        **host_facts(),
        "algorithm": algorithm,
        "protocol": trainer.env.protocol,
        "config": to_settings(settled.job),
        "adjustments": [str(item) for item in settled.adjustments],
        "created_unix_s": time.time(),
        "resumes": [],
    }
    run.write_run_json(facts)
    trainer.begin()
    session = _open_session(run, CheckpointStore(run), trainer, settled, watcher)
    session.event("start", protocol=trainer.env.protocol)
    session.checkpoint(is_last=True)  # a run that can't save is refused before its first step
    return session


def resume_run(saved: SavedRun, job: Job, watcher: Watcher) -> Session:
    """Go on from the newest valid checkpoint of a run, with `job` in place of what it was started with."""
    check_changes(saved.job, job)
    settled = settle(job)
    run = RunDirectory.open(saved.path)
    try:
        store = CheckpointStore(run)
        checkpoint = store.newest_valid()
        for reason in checkpoint.skipped:
            watcher.note(f"warning: {reason}")
        prepare_process(settled)
        trainer = build_trainer(settled, env_seed=_env_seed(saved.job, job, checkpoint))
        inexact = _inexact_because(saved, settled.job)
        inexact += restore_checkpoint(trainer, checkpoint, store, progress=_report_progress(watcher))
        lost = run.cut_records(checkpoint.steps)
    except BaseException:
        run.close()
        raise
    changes = changed_settings(saved.job, settled.job)
    resumes = [*saved.facts.get("resumes", []), {"steps": checkpoint.steps, "unix_s": time.time(), "changes": changes}]
    run.write_run_json({**saved.facts, "config": to_settings(settled.job), "resumes": resumes})
    session = _open_session(run, store, trainer, settled, watcher)
    _announce_resume(session, watcher, checkpoint, inexact=inexact, lost=lost, changes=changes)
    return session


def changed_settings(before: Job, after: Job) -> dict[str, str]:
    """Return each setting that differs, as "old → new"."""
    old, new = dict(flatten(to_settings(before))), dict(flatten(to_settings(after)))
    return {key: f"{old.get(key)} → {new.get(key)}" for key in {**old, **new} if old.get(key) != new.get(key)}


def check_changes(before: Job, after: Job) -> None:
    """Refuse what can't change in the middle of a run."""
    fixed = [key for key in changed_settings(before, after) if key not in MAY_CHANGE]
    if fixed:
        may = ", ".join(sorted(key.replace("_", "-") for key in MAY_CHANGE))
        raise UserError(
            f"{', '.join(fixed)} can't change on resume: start a new run, or change only what may change ({may})"
        )


def prepare_process(settled: Settled) -> None:
    """Set what torch keeps once per process; before its first parallel operation."""
    torch.set_flush_denormal(True)
    torch.set_num_threads(settled.job.threads.learner)


def _open_session(
    run: RunDirectory, store: CheckpointStore, trainer: InlineTrainer, settled: Settled, watcher: Watcher
) -> Session:
    for adjustment in settled.adjustments:
        watcher.note(f"requested → effective: {adjustment}")
    threads = settled.job.threads
    watcher.note(f"device {settled.device}, {threads.learner} learner threads, {threads.envs} env threads")
    watcher.note(trainer.env.protocol)
    watcher.note(f"run directory {run.path}")
    if not Curves.is_available():
        watcher.note(HOW_TO_GET_IT)
    curves = Curves(run.path, from_steps=trainer.counters.steps)
    return Session(run=run, store=store, trainer=trainer, watcher=watcher, curves=curves)


def _env_seed(before: Job, after: Job, checkpoint: Checkpoint) -> int:
    """Return the seed of the envs' keys: the same again, unless the envs begin anew and must see new games."""
    if before.num_envs == after.num_envs:
        return int(checkpoint.state["env_seed"])
    return int(np.random.SeedSequence([after.seed, checkpoint.steps]).generate_state(1)[0] >> 1)


def _inexact_because(saved: SavedRun, job: Job) -> list[str]:
    now = host_facts()
    differences = [
        f"{key} was {saved.facts.get(part, {}).get(key)}, is {now[part][key]}"  # type: ignore[index]
        for part, keys in (("host", EXACT_HOST), ("versions", EXACT_VERSIONS))
        for key in keys
        if saved.facts.get(part, {}).get(key) != now[part][key]  # type: ignore[index]
    ]
    if saved.job.threads.learner != job.threads.learner:
        differences.append(f"learner threads were {saved.job.threads.learner}, are {job.threads.learner}")
    return differences


def _report_progress(watcher: Watcher) -> Any:
    next_s = time.monotonic() + 2.0

    def report(share: float) -> None:
        nonlocal next_s
        if time.monotonic() >= next_s:
            next_s = time.monotonic() + 2.0
            watcher.note(f"bringing the emulators back to where they were: {share:.0%}")

    return report


def _announce_resume(
    session: Session,
    watcher: Watcher,
    checkpoint: Checkpoint,
    *,
    inexact: list[str],
    lost: dict[str, int],
    changes: dict[str, str],
) -> None:
    watcher.note(f"resumed at step {checkpoint.steps:,}")
    for key, change in changes.items():
        watcher.note(f"changed: {key} {change}")
    if any(lost.values()):
        counts = ", ".join(f"{count} of {name}" for name, count in lost.items() if count)
        watcher.note(f"rows written after the checkpoint moved to *.lost.jsonl: {counts}")
    if inexact or changes.keys() - {"max_steps", "max_frames", "max_episodes", "max_minutes", "target_return"}:
        reasons = inexact or ["settings changed"]
        watcher.note(f"not bit-exact: {'; '.join(reasons)}")
    session.event("resume", checkpoint=checkpoint.path.name, inexact=inexact, lost=lost, changes=changes)

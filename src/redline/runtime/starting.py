"""How a new run begins: checked, written down, and with a checkpoint before its first step."""

import shutil
import time
from contextlib import ExitStack
from typing import Any

import torch

from redline.runs.checkpoints import CheckpointStore
from redline.runs.directory import RunDirectory
from redline.runs.host import host_facts
from redline.runtime.building import Settled, build_trainer, check_disk, settle
from redline.runtime.curves import HOW_TO_GET_IT, Curves
from redline.runtime.inline import InlineTrainer
from redline.runtime.job import Job
from redline.runtime.session import Session
from redline.runtime.settings import to_settings
from redline.runtime.watching import Watcher


def start_run(job: Job, algorithm: str, watcher: Watcher) -> Session:
    """Begin a new run in a new directory."""
    settled = settle(job)
    prepare_process(settled)
    with ExitStack() as on_error:
        trainer = build_trainer(settled, env_seed=job.seed)
        on_error.callback(trainer.close)
        check_disk(trainer, job.log_dir)
        run = RunDirectory.create(job.log_dir, game=trainer.env.spec.name, algorithm=algorithm, seed=job.seed)
        # without a checkpoint there is nothing that could be resumed
        on_error.callback(shutil.rmtree, run.path, ignore_errors=True)
        on_error.callback(run.close)
        facts = {"algorithm": algorithm, "protocol": trainer.env.protocol, "created_unix_s": time.time(), "resumes": []}
        run.write_run_json({**facts, **present_facts(settled)})
        trainer.begin()
        session = open_session(run, CheckpointStore(run), trainer, settled, watcher)
        session.event("start", protocol=trainer.env.protocol)
        session.checkpoint(is_last=True)  # a run that can't save is refused before its first step
        on_error.pop_all()
    return session


def prepare_process(settled: Settled) -> None:
    """Set what torch keeps once per process; before its first parallel operation."""
    torch.set_flush_denormal(True)
    torch.set_num_threads(settled.job.threads.learner)


def present_facts(settled: Settled) -> dict[str, Any]:
    """Return what `run.json` says of the invocation that is running now."""
    return {
        **host_facts(),
        "device": str(settled.device),
        "config": to_settings(settled.job),
        "adjustments": [str(item) for item in settled.adjustments],
    }


def open_session(
    run: RunDirectory, store: CheckpointStore, trainer: InlineTrainer, settled: Settled, watcher: Watcher
) -> Session:
    """Tell what will run and how, and return the session that runs it."""
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

"""How a new run begins: checked, written down, and with a checkpoint before its first step."""

import shutil
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from redline.recipes import Recipe
from redline.recordings.estimate import describe_estimate
from redline.runs.checkpoints import CheckpointStore
from redline.runs.directory import RunDirectory, read_run_json
from redline.runs.errors import free_bytes
from redline.runs.host import host_facts
from redline.runtime.building import (
    Settled,
    build_trainer,
    check_disk,
    check_memory,
    checkpoint_bytes,
    prepare_process,
    recordings_bytes,
    settle,
)
from redline.runtime.counters import Counters, Scores
from redline.runtime.job import Job
from redline.runtime.processes.session import AsyncSession
from redline.runtime.processes.shared_parts import check_rings
from redline.runtime.session import Session
from redline.runtime.settings import to_settings
from redline.runtime.sinks import RunStart, Sink, Sinks
from redline.runtime.trackers import HOW_TO_GET_IT, check_trackers, has_tensorboard, open_sinks
from redline.runtime.training import Trainer
from redline.runtime.watching import Watcher
from redline.units import size

AnySession = Session | AsyncSession


def start_run(
    job: Job,
    algorithm: str,
    watcher: Watcher,
    *,
    recipe: Recipe | None = None,
    begun_s: float | None = None,
    sinks: Sequence[Sink] = (),
    sets_process: bool = True,
) -> AnySession:
    """Begin a new run in a new directory; `recipe` is where its settings come from, if from one.

    `begun_s` is the monotonic time at which the user began to wait, now if it is not given. `sinks` are told what the
    run's files are told, beside the trackers that the job names. `sets_process` lets an inline run set what there is
    once per process.
    """
    check_trackers(job.track)
    settled = settle(job)
    begun_s = time.monotonic() if begun_s is None else begun_s
    if settled.job.topology == "async":
        return start_async(settled, algorithm, watcher, recipe=recipe, begun_s=begun_s, sinks=sinks)
    return start_inline(
        settled, algorithm, watcher, recipe=recipe, begun_s=begun_s, sinks=sinks, sets_process=sets_process
    )


def start_inline(
    settled: Settled,
    algorithm: str,
    watcher: Watcher,
    *,
    recipe: Recipe | None = None,
    begun_s: float | None = None,
    sinks: Sequence[Sink] = (),
    sets_process: bool = True,
) -> Session:
    """Begin a new run in this process."""
    if sets_process:
        prepare_process(settled)
    with ExitStack() as on_error:
        trainer = build_trainer(settled, env_seed=settled.job.seed)
        on_error.callback(trainer.close)
        check_disk(settled, settled.job.log_dir)
        run = _create_run(settled, algorithm=algorithm, recipe=recipe, on_error=on_error)
        trainer.begin()
        tell_settings(settled, run, watcher)
        outlets = open_sinks(settled.job.track, RunStart(run.path, read_run_json(run.path), 0), sinks)
        on_error.callback(outlets.close)
        session = open_session(run, CheckpointStore(run), trainer, watcher, begun_s=begun_s, sinks=outlets)
        session.event("start", protocol=settled.protocol)
        session.checkpoint(is_last=True)  # a run that can't save is refused before its first step
        on_error.pop_all()
    return session


def start_async(
    settled: Settled,
    algorithm: str,
    watcher: Watcher,
    *,
    recipe: Recipe | None = None,
    begun_s: float,
    sinks: Sequence[Sink] = (),
) -> AsyncSession:
    """Begin a new run with processes of its own."""
    check_memory(settled)
    check_rings(settled.job, settled.spec)
    with ExitStack() as on_error:
        check_disk(settled, settled.job.log_dir)
        run = _create_run(settled, algorithm=algorithm, recipe=recipe, on_error=on_error)
        tell_settings(settled, run, watcher)
        outlets = open_sinks(settled.job.track, RunStart(run.path, read_run_json(run.path), 0), sinks)
        on_error.callback(outlets.close)
        session = AsyncSession(
            run=run,
            settled=settled,
            watcher=watcher,
            counters=Counters(),
            scores=Scores(),
            begun_s=begun_s,
            sinks=outlets,
        )
        on_error.callback(session.close)
        session.event("start", protocol=settled.protocol)
        session.launch(is_resumed=False, requested_stop=lambda: None)  # saves a checkpoint before the first step
        on_error.pop_all()
    return session


def _create_run(settled: Settled, *, algorithm: str, recipe: Recipe | None, on_error: ExitStack) -> RunDirectory:
    job, protocol = settled.job, settled.protocol
    run = RunDirectory.create(job.log_dir, game=settled.spec.name, algorithm=algorithm, seed=job.seed)
    # without a checkpoint there is nothing that could be resumed
    on_error.callback(shutil.rmtree, run.path, ignore_errors=True)
    on_error.callback(run.close)
    facts: dict[str, Any] = {"algorithm": algorithm, "protocol": protocol, "created_unix_s": time.time(), "resumes": []}
    if recipe is not None:
        facts["recipe"] = {"name": recipe.name, "text": recipe.text}
    run.write_run_json({**facts, **present_facts(settled)})
    return run


def present_facts(settled: Settled) -> dict[str, Any]:
    """Return what `run.json` says of the invocation that is running now."""
    return {
        **host_facts(),
        "device": str(settled.device),
        "config": to_settings(settled.job),
        "adjustments": [str(item) for item in settled.adjustments],
    }


def open_session(
    run: RunDirectory,
    store: CheckpointStore,
    trainer: Trainer,
    watcher: Watcher,
    *,
    sinks: Sinks,
    begun_s: float | None = None,
) -> Session:
    """Return the session that runs a trainer, for a user who waits since `begun_s`, or since now."""
    begun_s = time.monotonic() if begun_s is None else begun_s
    return Session(run=run, store=store, trainer=trainer, watcher=watcher, sinks=sinks, begun_s=begun_s)


def tell_settings(settled: Settled, run: RunDirectory, watcher: Watcher) -> None:
    """Tell what was changed of what was asked for, who runs where, what the disk will hold, and where the run is."""
    job = settled.job
    for adjustment in settled.adjustments:
        watcher.note(f"requested → effective: {adjustment}")
    if job.topology == "inline":
        watcher.note(f"device {settled.device}, {job.learner.threads} learner threads, {job.actor.threads} env threads")
    else:
        actors = f"{job.actors} actors" if job.actors > 1 else "1 actor"
        every = job.evaluator.every_minutes
        evaluator = f"evaluator on {job.evaluator.device} every {every:g} min" if every else "no evaluator"
        watcher.note(
            f"{actors} × {job.actor.envs} envs on {job.actor.device} with {job.actor.threads} env threads each · "
            f"learner on {settled.device} with {job.learner.threads} threads · {evaluator} · "
            f"push {job.push}, pacing {job.pacing}, weights every {job.actor.sync_steps} steps of an actor"
        )
    watcher.note(settled.protocol)
    _tell_disk(settled, run, watcher)
    watcher.note(f"run directory {run.path}")
    if not has_tensorboard():
        watcher.note(HOW_TO_GET_IT)


def _tell_disk(settled: Settled, run: RunDirectory, watcher: Watcher) -> None:
    """Tell in one line what a run will need on the disk, and in another if its recordings may not find room."""
    config = settled.job.recording
    about, steps = recordings_bytes(settled.job, settled.spec)
    recordings = describe_estimate(about, steps=steps, record=config.record, values=config.record_values)
    needed = checkpoint_bytes(settled)
    watcher.note(f"disk: {recordings} · checkpoints at most {size(needed)}")
    if about > (room := free_bytes(run.path) - needed):
        left = size(max(0, room))
        watcher.note(f"warning: beside the checkpoints the disk has {left} free: use --record 100, best or off")

"""How an invocation begins: a new run, or a resume from the newest valid checkpoint."""

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

from redline.episodes.estimate import describe_estimate
from redline.errors import DamagedError
from redline.files import free_bytes
from redline.recipes import Recipe
from redline.runs.checkpoints import CheckpointStore
from redline.runs.directory import RunDirectory
from redline.runs.host import host_facts
from redline.runs.manifest import Checkpoint
from redline.runs.run_json import read_run_json
from redline.runtime.actor import RequestedStop
from redline.runtime.building import (
    build_trainer,
    check_disk,
    check_memory,
    checkpoint_bytes,
    prepare_process,
    recordings_bytes,
)
from redline.runtime.config import Job, flag_of, to_settings
from redline.runtime.counters import Counters, Scores, counters_from_json
from redline.runtime.gauges import Display
from redline.runtime.loop import Every
from redline.runtime.processes.process_pool import check_room
from redline.runtime.processes.shared import check_rings
from redline.runtime.processes.supervisor import AsyncSession
from redline.runtime.resolve import ResolvedJob, carry_over, resolve_job
from redline.runtime.resuming import SavedRun, changed_settings, check_changes, inexact_because
from redline.runtime.run_log import RunLog
from redline.runtime.session import Session, StoppedWhileResumingError
from redline.runtime.sinks import HOW_TO_GET_IT, RunStart, Sink, check_trackers, has_tensorboard, open_sinks
from redline.runtime.training import Trainer
from redline.units import size

AnySession = Session | AsyncSession

PROGRESS_INTERVAL_S = 2.0


def start_run(
    job: Job,
    algorithm: str,
    display: Display,
    *,
    recipe: Recipe | None = None,
    auto: Mapping[str, Any] | None = None,
    begun_s: float | None = None,
    sinks: Sequence[Sink] = (),
    sets_process: bool = True,
) -> AnySession:
    """Begin a new run in a new directory; `recipe` is where its settings come from, if from one.

    `auto` is the measurement by which settings were chosen, if one was made; run.json keeps it.

    `begun_s` is the monotonic time at which the user began to wait, by default now. `sinks` get the same rows as the
    run's files, beside the trackers of the job. `sets_process` lets an inline run change settings of the process.
    """
    check_trackers(job.track)
    resolved = resolve_job(job)
    begun_s = time.monotonic() if begun_s is None else begun_s
    with ExitStack() as on_error:
        trainer = _build(resolved, env_seed=resolved.job.seed, sets_process=sets_process, on_error=on_error)
        check_disk(resolved, resolved.job.log_dir)
        run = _create_run(resolved, algorithm=algorithm, recipe=recipe, auto=auto, on_error=on_error)
        tell_settings(resolved, run, display)
        outlets = open_sinks(resolved.job.track, RunStart(run.path, read_run_json(run.path), 0), sinks)
        counters = Counters() if trainer is None else trainer.counters
        log = RunLog(run, resolved.job, resolved.spec, counters, display=display, sinks=outlets)
        session: AnySession
        if trainer is None:
            session = AsyncSession(resolved, counters, Scores(), log, begun_s=begun_s)
        else:
            trainer.begin()
            session = Session(CheckpointStore(run), trainer, log, begun_s=begun_s)
        on_error.callback(session.close)
        session.event("start", protocol=resolved.protocol)
        session.save_first()  # a run that can't save is refused before its first step
        on_error.pop_all()
    return session


def _build(resolved: ResolvedJob, *, env_seed: int, sets_process: bool, on_error: ExitStack) -> Trainer | None:
    """Return the trainer of an inline run; for an async run, check the room that its processes need."""
    if resolved.job.topology == "async":
        check_room(actors=resolved.job.actors, learner_threads=resolved.job.learner.threads)
        check_memory(resolved)
        check_rings(resolved.job, resolved.spec)
        return None
    if sets_process:
        prepare_process(resolved)
    trainer = build_trainer(resolved, env_seed=env_seed)
    on_error.callback(trainer.close)
    return trainer


def _create_run(
    resolved: ResolvedJob,
    *,
    algorithm: str,
    recipe: Recipe | None,
    auto: Mapping[str, Any] | None,
    on_error: ExitStack,
) -> RunDirectory:
    job = resolved.job
    run = RunDirectory.create(job.log_dir, game=resolved.spec.name, algorithm=algorithm, seed=job.seed)
    # without a checkpoint nothing could be resumed
    on_error.callback(shutil.rmtree, run.path, ignore_errors=True)
    on_error.callback(run.close)
    facts: dict[str, Any] = {
        "algorithm": algorithm,
        "protocol": resolved.protocol,
        "created_unix_s": time.time(),
        "resumes": [],
    }
    if recipe is not None:
        facts["recipe"] = {"name": recipe.name, "text": recipe.text}
    if auto is not None:
        facts["auto"] = auto
    run.write_run_json({**facts, **_present_facts(resolved)})
    return run


def _present_facts(resolved: ResolvedJob) -> dict[str, Any]:
    """Return what `run.json` says of this invocation."""
    return {
        **host_facts(),
        "device": str(resolved.device),
        "config": to_settings(resolved.job),
        "adjustments": [str(item) for item in resolved.adjustments],
    }


def tell_settings(resolved: ResolvedJob, run: RunDirectory, display: Display) -> None:
    """Show the settings that were changed, devices and threads, the disk space needed, and the run directory."""
    job = resolved.job
    for adjustment in resolved.adjustments:
        display.note(f"requested → effective: {adjustment}")
    if job.topology == "inline":
        display.note(
            f"device {resolved.device}, learner threads: {job.learner.threads}, env threads: {job.actor.threads}"
        )
    else:
        actors = f"{job.actors} actors" if job.actors > 1 else "1 actor"
        every = job.evaluator.every_minutes
        evaluator = f"evaluator on {job.evaluator.device} every {every:g} min" if every else "no evaluator"
        display.note(
            f"{actors} × {job.actor.envs} envs on {job.actor.device} with {job.actor.threads} env threads each · "
            f"learner on {resolved.device} with {job.learner.threads} threads · {evaluator} · "
            f"push {job.push}, pacing {job.pacing}, weights every {job.actor.sync_steps} steps of an actor"
        )
    display.note(resolved.protocol)
    _tell_disk(resolved, run, display)
    display.note(f"run directory {run.path}")
    if not has_tensorboard():
        display.note(HOW_TO_GET_IT)


def _tell_disk(resolved: ResolvedJob, run: RunDirectory, display: Display) -> None:
    """Show how much disk space a run will need, and warn if its recordings may not fit."""
    config = resolved.job.recording
    about, steps = recordings_bytes(resolved.job, resolved.spec)
    recordings = describe_estimate(about, steps=steps, record=config.record, values=config.record_values)
    needed = checkpoint_bytes(resolved)
    display.note(f"disk: {recordings} · checkpoints at most {size(needed)}")
    if about > (room := free_bytes(run.path) - needed):
        left = size(max(0, room))
        display.note(f"warning: beside the checkpoints the disk has {left} free: use --record 100, best or off")


# Resuming


def resume_run(
    saved: SavedRun,
    job: Job,
    display: Display,
    requested_stop: RequestedStop = lambda: None,
    *,
    begun_s: float | None = None,
    sinks: Sequence[Sink] = (),
    sets_process: bool = True,
) -> AnySession:
    """Go on from the newest valid checkpoint of a run, with `job` in place of the job that it was started with.

    The other parameters are those of `start_run`. A requested stop is a StoppedWhileResumingError.
    """
    begun_s = time.monotonic() if begun_s is None else begun_s
    check_changes(saved.job, job)
    check_trackers(job.track)
    with ExitStack() as on_error:
        run = RunDirectory.open(saved.path)
        on_error.callback(run.close)
        store = CheckpointStore(run)
        on_error.callback(store.close)
        checkpoint = store.newest_valid()
        for reason in checkpoint.skipped:
            display.note(f"warning: {reason}")
        job, given_up = carry_over(saved.job, job)
        resolved = resolve_job(job, steps=checkpoint.steps, saved_replay=checkpoint.replay)
        resolved.adjustments[:0] = given_up
        check_disk(resolved, run.path, held_bytes=run.saved_bytes())
        tell_settings(resolved, run, display)
        facts = {**saved.facts, "config": to_settings(resolved.job)}
        outlets = open_sinks(resolved.job.track, RunStart(run.path, facts, checkpoint.steps), sinks)
        counters, scores = counters_from_json(checkpoint.state)
        if counters.steps != checkpoint.steps:
            raise DamagedError(f"{checkpoint.path}: state.json is of step {counters.steps}: remove that checkpoint")
        env_seed = _env_seed(resolved.job, checkpoint)
        trainer = _build(resolved, env_seed=env_seed, sets_process=sets_process, on_error=on_error)
        log_of = partial(RunLog, run, resolved.job, resolved.spec, display=display, sinks=outlets)
        session: AnySession
        if trainer is None:
            store.close()  # the learner opens its own
            session = AsyncSession(resolved, counters, scores, log_of(counters), begun_s=begun_s)
            on_error.callback(session.close)
            lost = session.launch(is_resumed=True, requested_stop=requested_stop)
        else:
            lost = trainer.restore(checkpoint, store, _tell_progress(display, requested_stop))
            session = Session(store, trainer, log_of(trainer.counters), begun_s=begun_s)
            on_error.callback(session.close)
        for reason in run.set_unreadable_recordings_aside():
            display.note(f"warning: {reason}")
        lost_rows = run.cut_records(checkpoint.steps, evaluations=counters.evaluations)
        _record_resume(session, saved, resolved, checkpoint, lost=lost, lost_rows=lost_rows, display=display)
        on_error.pop_all()
    return session


def _env_seed(job: Job, checkpoint: Checkpoint) -> int:
    """Return the seed of the envs: the same again, unless they begin anew and must see new games."""
    saved_seed = checkpoint.state.get("env_seed")  # None if the actors were processes of their own
    if saved_seed is not None and checkpoint.state.get("num_envs") == job.num_envs:
        return int(saved_seed)
    return int(np.random.SeedSequence([job.seed, checkpoint.steps]).generate_state(1)[0] >> 1)


def _tell_progress(display: Display, requested_stop: RequestedStop) -> Callable[[float], None]:
    interval = Every(PROGRESS_INTERVAL_S)

    def tell(share: float) -> None:
        if reason := requested_stop():
            raise StoppedWhileResumingError(reason)
        if interval.is_due():
            display.note(f"restoring the emulators: {share:.0%}")

    return tell


def _record_resume(
    session: AnySession,
    saved: SavedRun,
    resolved: ResolvedJob,
    checkpoint: Checkpoint,
    *,
    lost: list[str],
    lost_rows: dict[str, int],
    display: Display,
) -> None:
    """Add this resume to run.json and to the events; show what changed, and why the run is not exact from here on."""
    changes, facts = changed_settings(saved.job, resolved.job), _present_facts(resolved)
    resumes = saved.facts.get("resumes", [])
    inexact = lost + inexact_because(resumes[-1] if resumes else saved.facts, facts, changes)
    config = facts.pop("config")
    resumed = {**facts, "steps": checkpoint.steps, "unix_s": time.time(), "changes": changes, "inexact": inexact}
    session.run.write_run_json({**saved.facts, "config": config, "resumes": [*resumes, resumed]})
    display.note(f"resumed at step {checkpoint.steps:,}")
    for key, change in changes.items():
        display.note(f"changed: {flag_of(key)} {change}")
    if any(lost_rows.values()):
        counts = ", ".join(f"{count} of {name}" for name, count in lost_rows.items() if count)
        display.note(f"rows written after the checkpoint moved to *.lost.*: {counts}")
    if inexact:
        display.note(f"not bit-exact: {'; '.join(inexact)}")
    session.event("resume", checkpoint=checkpoint.path.name, inexact=inexact, lost_rows=lost_rows, changes=changes)

"""How a run goes on: from its newest valid checkpoint, saying what changed and what is not exact."""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from redline.algorithms.catalog import find_algorithm
from redline.errors import UserError
from redline.runs.checkpoints import CheckpointStore
from redline.runs.directory import RunDirectory, read_run_json
from redline.runs.manifest import Checkpoint
from redline.runtime.building import Settled, build_trainer, check_disk, check_memory, prepare_process, settle
from redline.runtime.checkpointing import restore_checkpoint
from redline.runtime.counters import counters_from_json
from redline.runtime.job import Job
from redline.runtime.processes.session import AsyncSession, StoppedWhileStartingError
from redline.runtime.processes.shared_parts import check_rings
from redline.runtime.session import Session
from redline.runtime.settings import flatten, from_settings, to_settings
from redline.runtime.sinks import RunStart, Sink, Sinks
from redline.runtime.starting import AnySession, open_session, present_facts, tell_settings
from redline.runtime.topology import carry_over
from redline.runtime.trackers import check_trackers, open_sinks
from redline.runtime.watching import Watcher

# what a resume may change without changing what is computed
CHANGES_NOTHING = frozenset(
    {
        "max_steps",
        "max_frames",
        "max_episodes",
        "max_minutes",
        "target_return",
        "target_eval_return",
        "checkpoint_minutes",
        "actor.threads",
        "evaluate_every_steps",
        "evaluator.every_minutes",
        "evaluator.episodes",
        "evaluator.envs",
        "evaluator.device",
        "evaluator.threads",
        "monitor.hz",
        "record",
        "record_values",
        "track",
    }
)
# all that a resume may change; docs/resume.md says what each change costs
MAY_CHANGE = CHANGES_NOTHING | {
    "topology",
    "actors",
    "actor.envs",
    "actor.device",
    "actor.sync_steps",
    "push",
    "pacing",
    "device",
    "learner.device",
    "learner.threads",
    "num_envs",
    "batch_size",
    "optimizer.lr",
    "optimizer.anneal_steps",
    "optimizer.anneal_after_steps",
    "optimizer.final_share",
    "anneal_at_return",
    "replay.capacity",
    "replay.codec",
    "replay.bytes",
    "replay.path",
    "replay.prefetch",
}
# follow from others, or are told otherwise
TOLD_ALREADY = frozenset({"device", "learner.device", "actor.envs"})
# bit for bit needs the same of these
EXACT_FACTS = (
    ("host", "cpu_model"),
    ("versions", "torch"),
    ("versions", "numpy"),
    ("versions", "ale-py"),
    ("versions", "gymnasium"),
)


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
        job = from_settings(Job(algorithm=find_algorithm(algorithm).atari.algorithm), facts["config"])
    except (KeyError, TypeError, UserError) as error:
        brought = (
            "; if a package or a script brings it, install or register that first" if "unknown" in str(error) else ""
        )
        raise UserError(f"{path}/run.json is no run of this version of Redline: {error}{brought}") from None
    return SavedRun(path, job, algorithm, facts)


def check_env(saved: SavedRun, typed: str | None) -> None:
    """Refuse an env that is not the run's: it is typed to allow a module, not to choose another."""
    if typed not in (None, saved.job.env.id):
        own = saved.job.env.id
        remedy = f"type --env {own}" if ":" in own else "leave --env out"
        raise UserError(f"{saved.path} was trained on {own}, not on {typed}: {remedy}")


class StoppedWhileResumingError(Exception):
    """A stop was requested before the run had come back; its checkpoint is as it was."""


def resume_run(
    saved: SavedRun,
    job: Job,
    watcher: Watcher,
    requested_stop: Callable[[], str | None] = lambda: None,
    *,
    begun_s: float | None = None,
    sinks: Sequence[Sink] = (),
    sets_process: bool = True,
) -> AnySession:
    """Go on from the newest valid checkpoint of a run, with `job` in place of what it was started with.

    `begun_s` is the monotonic time at which the user began to wait, now if it is not given. `sinks` are told what the
    run's files are told, beside the trackers that the job names. `sets_process` lets an inline run set what there is
    once per process.
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
            watcher.note(f"warning: {reason}")
        settled = settle_again(saved.job, job, steps=checkpoint.steps, saved_replay=checkpoint.replay)
        check_disk(settled, run.path)
        tell_settings(settled, run, watcher)
        facts = {**saved.facts, "config": to_settings(settled.job)}
        outlets = open_sinks(settled.job.track, RunStart(run.path, facts, checkpoint.steps), sinks)
        on_error.callback(outlets.close)
        if settled.job.topology == "inline" and sets_process:
            prepare_process(settled)
        bring_back = _bring_back_inline if settled.job.topology == "inline" else _bring_back_async
        session, lost_state = bring_back(
            settled,
            run=run,
            store=store,
            checkpoint=checkpoint,
            watcher=watcher,
            requested_stop=requested_stop,
            begun_s=begun_s,
            sinks=outlets,
        )
        on_error.callback(session.close)
        counters, _ = counters_from_json(checkpoint.state)
        for reason in run.set_unreadable_recordings_aside():
            watcher.note(f"warning: {reason}")
        lost_rows = run.cut_records(checkpoint.steps, evaluations=counters.evaluations)
        changes, inexact = _write_down(run, saved, settled, steps=checkpoint.steps, lost_state=lost_state)
        on_error.pop_all()
    _announce(session, watcher, checkpoint, inexact=inexact, lost_rows=lost_rows, changes=changes)
    return session


def _write_down(
    run: RunDirectory, saved: SavedRun, settled: Settled, *, steps: int, lost_state: list[str]
) -> tuple[dict[str, str], list[str]]:
    """Add this resume to run.json; return which settings changed, and why what follows is not exact."""
    changes, facts = changed_settings(saved.job, settled.job), present_facts(settled)
    resumes = saved.facts.get("resumes", [])
    inexact = lost_state + inexact_because(resumes[-1] if resumes else saved.facts, facts, changes)
    config = facts.pop("config")
    resumed = {**facts, "steps": steps, "unix_s": time.time(), "changes": changes, "inexact": inexact}
    run.write_run_json({**saved.facts, "config": config, "resumes": [*resumes, resumed]})
    return changes, inexact


def _bring_back_inline(
    settled: Settled,
    *,
    run: RunDirectory,
    store: CheckpointStore,
    checkpoint: Checkpoint,
    watcher: Watcher,
    requested_stop: Callable[[], str | None],
    begun_s: float,
    sinks: Sinks,
) -> tuple[Session, list[str]]:
    """Return a session that stands where the checkpoint was taken, and what could not be brought back."""
    trainer = build_trainer(settled, env_seed=_env_seed(settled.job, checkpoint))
    with ExitStack() as on_error:
        on_error.callback(trainer.close)
        lost = restore_checkpoint(trainer, checkpoint, store, progress=_report_progress(watcher, requested_stop))
        session = open_session(run, store, trainer, watcher, begun_s=begun_s, sinks=sinks)
        on_error.pop_all()
    return session, lost


def _bring_back_async(
    settled: Settled,
    *,
    run: RunDirectory,
    store: CheckpointStore,
    checkpoint: Checkpoint,
    watcher: Watcher,
    requested_stop: Callable[[], str | None],
    begun_s: float,
    sinks: Sinks,
) -> tuple[AsyncSession, list[str]]:
    """Return a session whose learner stands where the checkpoint was taken, and what could not be brought back."""
    check_memory(settled)
    store.close()  # the learner opens its own
    check_rings(settled.job, settled.spec)
    counters, scores = counters_from_json(checkpoint.state)
    session = AsyncSession(
        run=run,
        settled=settled,
        watcher=watcher,
        counters=counters,
        scores=scores,
        begun_s=begun_s,
        sinks=sinks,
    )
    with ExitStack() as on_error:
        on_error.callback(session.close)
        try:
            lost = session.launch(is_resumed=True, requested_stop=requested_stop)
        except StoppedWhileStartingError as stopped:
            raise StoppedWhileResumingError(str(stopped)) from None
        on_error.pop_all()
    return session, lost


def settle_again(before: Job, after: Job, *, steps: int = 0, saved_replay: Mapping[str, Any] | None = None) -> Settled:
    """Settle what a run goes on with; what only its former topology had is given up, and said."""
    job, given_up = carry_over(before, after)
    settled = settle(job, steps=steps, saved_replay=saved_replay)
    return replace(settled, adjustments=given_up + settled.adjustments)


def changed_settings(before: Job, after: Job) -> dict[str, str]:
    """Return each setting that differs, as "old → new"."""
    old, new = dict(flatten(to_settings(before))), dict(flatten(to_settings(after)))
    return {key: f"{old.get(key)} → {new.get(key)}" for key in {**old, **new} if old.get(key) != new.get(key)}


def check_changes(before: Job, after: Job) -> None:
    """Refuse what can't change in the middle of a run."""
    fixed = [key for key in changed_settings(before, after) if key not in MAY_CHANGE]
    if fixed:
        may = ", ".join(sorted(_flag(key) for key in MAY_CHANGE))
        raise UserError(f"{', '.join(map(_flag, fixed))} can't change on resume, only {may}: start a new run instead")


def inexact_because(before: dict[str, Any], now: dict[str, Any], changes: dict[str, str]) -> list[str]:
    """Say why what follows will not be bit for bit what an uninterrupted run would have done."""
    reasons = [
        f"{key} was {before.get(part, {}).get(key)}, is {now[part][key]}"
        for part, key in EXACT_FACTS
        if before.get(part, {}).get(key) != now[part][key]
    ]
    if before.get("device") != now["device"]:
        reasons.append(f"device was {before.get('device')}, is {now['device']}")
    elif now["device"] != "cpu":
        reasons.append(f"sums on {now['device']} have no fixed order")
    reasons += [f"{_flag(key)} changed" for key in changes if key not in CHANGES_NOTHING | TOLD_ALREADY]
    config = now["config"]
    if config["topology"] == "async" and config["pacing"] != "lockstep":
        reasons.append("processes of --topology async have no fixed order")
    return reasons


def _flag(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _env_seed(job: Job, checkpoint: Checkpoint) -> int:
    """Return the seed of the envs' keys: the same again, unless the envs begin anew and must see new games."""
    saved_seed = checkpoint.state["env_seed"]  # none if the actors were processes of their own
    if saved_seed is not None and checkpoint.state["num_envs"] == job.num_envs:
        return int(saved_seed)
    return int(np.random.SeedSequence([job.seed, checkpoint.steps]).generate_state(1)[0] >> 1)


def _report_progress(watcher: Watcher, requested_stop: Callable[[], str | None]) -> Callable[[float], None]:
    next_s = time.monotonic() + 2.0

    def report(share: float) -> None:
        nonlocal next_s
        if reason := requested_stop():
            raise StoppedWhileResumingError(reason)
        if time.monotonic() >= next_s:
            next_s = time.monotonic() + 2.0
            watcher.note(f"bringing the emulators back to where they were: {share:.0%}")

    return report


def _announce(
    session: AnySession,
    watcher: Watcher,
    checkpoint: Checkpoint,
    *,
    inexact: list[str],
    lost_rows: dict[str, int],
    changes: dict[str, str],
) -> None:
    watcher.note(f"resumed at step {checkpoint.steps:,}")
    for key, change in changes.items():
        watcher.note(f"changed: {_flag(key)} {change}")
    if any(lost_rows.values()):
        counts = ", ".join(f"{count} of {name}" for name, count in lost_rows.items() if count)
        watcher.note(f"rows written after the checkpoint moved to *.lost.*: {counts}")
    if inexact:
        watcher.note(f"not bit-exact: {'; '.join(inexact)}")
    session.event("resume", checkpoint=checkpoint.path.name, inexact=inexact, lost_rows=lost_rows, changes=changes)

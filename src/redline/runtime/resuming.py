"""How a run goes on: from its newest valid checkpoint, saying what changed and what is not exact."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from redline.algorithms.catalog import find_algorithm
from redline.errors import UserError
from redline.runs.checkpoints import CheckpointStore
from redline.runs.directory import RunDirectory, read_run_json
from redline.runs.manifest import Checkpoint
from redline.runtime.building import build_trainer, check_disk, settle
from redline.runtime.checkpointing import restore_checkpoint
from redline.runtime.job import Job
from redline.runtime.session import Session
from redline.runtime.settings import flatten, from_settings, to_settings
from redline.runtime.starting import open_session, prepare_process, present_facts
from redline.runtime.watching import Watcher

# what a resume may change without changing what is computed
CHANGES_NOTHING = frozenset(
    {
        "max_steps",
        "max_frames",
        "max_episodes",
        "max_minutes",
        "target_return",
        "checkpoint_minutes",
        "threads.envs",
    }
)
# all that a resume may change; docs/resume.md says what each change costs
MAY_CHANGE = CHANGES_NOTHING | {
    "device",
    "threads.learner",
    "num_envs",
    "batch_size",
    "optimizer.lr",
    "optimizer.anneal_steps",
    "replay.capacity",
    "replay.codec",
    "replay.bytes",
    "replay.path",
    "replay.prefetch",
}
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
    except (KeyError, TypeError) as error:
        raise UserError(f"{path}/run.json is no run of this version of Redline: {error}") from None
    return SavedRun(path, job, algorithm, facts)


class StoppedWhileResumingError(Exception):
    """A stop was requested before the run had come back; its checkpoint is as it was."""


def resume_run(
    saved: SavedRun, job: Job, watcher: Watcher, requested_stop: Callable[[], str | None] = lambda: None
) -> Session:
    """Go on from the newest valid checkpoint of a run, with `job` in place of what it was started with."""
    check_changes(saved.job, job)
    with ExitStack() as on_error:
        run = RunDirectory.open(saved.path)
        on_error.callback(run.close)
        store = CheckpointStore(run)
        on_error.callback(store.close)
        checkpoint = store.newest_valid()
        for reason in checkpoint.skipped:
            watcher.note(f"warning: {reason}")
        settled = settle(job, steps=checkpoint.steps, saved_replay=checkpoint.replay)
        prepare_process(settled)
        trainer = build_trainer(settled, env_seed=_env_seed(job, checkpoint))
        on_error.callback(trainer.close)
        check_disk(trainer, run.path)
        lost_state = restore_checkpoint(trainer, checkpoint, store, progress=_report_progress(watcher, requested_stop))
        lost_rows = run.cut_records(checkpoint.steps)
        changes = changed_settings(saved.job, settled.job)
        facts = present_facts(settled)
        resumes = saved.facts.get("resumes", [])
        inexact = lost_state + inexact_because(resumes[-1] if resumes else saved.facts, facts, changes)
        config = facts.pop("config")
        resumed = {**facts, "steps": checkpoint.steps, "unix_s": time.time(), "changes": changes, "inexact": inexact}
        run.write_run_json({**saved.facts, "config": config, "resumes": [*resumes, resumed]})
        session = open_session(run, store, trainer, settled, watcher)
        on_error.pop_all()
    _announce(session, watcher, checkpoint, inexact=inexact, lost_rows=lost_rows, changes=changes)
    return session


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
    reasons += [f"{_flag(key)} changed" for key in changes if key not in CHANGES_NOTHING | {"device"}]
    return reasons


def _flag(key: str) -> str:
    return f"--{key.replace('_', '-')}"


def _env_seed(job: Job, checkpoint: Checkpoint) -> int:
    """Return the seed of the envs' keys: the same again, unless the envs begin anew and must see new games."""
    if checkpoint.state["num_envs"] == job.num_envs:
        return int(checkpoint.state["env_seed"])
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
    session: Session,
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
        watcher.note(f"rows written after the checkpoint moved to *.lost.jsonl: {counts}")
    if inexact:
        watcher.note(f"not bit-exact: {'; '.join(inexact)}")
    session.event("resume", checkpoint=checkpoint.path.name, inexact=inexact, lost_rows=lost_rows, changes=changes)

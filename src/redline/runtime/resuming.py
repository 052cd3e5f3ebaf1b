"""The job of a saved run, and the settings that a resume may change."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redline.algorithms.catalog import find_algorithm
from redline.errors import UserError
from redline.runs.run_json import read_run_json, read_unaltered_run_json
from redline.runtime.config import Job, flag_of, flatten, from_settings, to_settings

# settings that a resume may change without changing the result
CHANGES_NOTHING = {
    *("max_steps", "max_frames", "max_episodes", "max_minutes", "target_return", "target_eval_return"),
    *("checkpoint_minutes", "actor.threads", "evaluate_every_steps", "evaluator.every_minutes", "evaluator.episodes"),
    *("evaluator.envs", "evaluator.device", "evaluator.threads", "monitor.hz", "record", "record_values", "track"),
    "price_per_hour",
}
# all settings that a resume may change; docs/resume.md says what each change costs
MAY_CHANGE = CHANGES_NOTHING | {
    *("topology", "actors", "actor.envs", "actor.device", "actor.sync_steps", "push", "pacing", "device"),
    *("learner.device", "learner.threads", "learner.precision", "learner.tf32", "learner.cuda_graph"),
    *(
        "num_envs",
        "batch_size",
        "anneal_at_return",
        "optimizer.lr",
        "optimizer.anneal_steps",
        "optimizer.anneal_after_steps",
    ),
    "optimizer.final_share",
    *("replay.capacity", "replay.codec", "replay.bytes", "replay.path", "replay.prefetch"),
}
# changes that follow from others, or are reported elsewhere
TOLD_ALREADY = {"device", "learner.device", "actor.envs"}
# facts that must be the same for a bit-exact resume
EXACT_FACTS = (
    ("host", "cpu_model"),
    ("versions", "torch"),
    ("versions", "numpy"),
    ("versions", "ale-py"),
    ("versions", "gymnasium"),
)


@dataclass(frozen=True)
class SavedRun:
    """A run as its directory describes it."""

    path: Path
    job: Job
    algorithm: str
    facts: dict[str, Any]  # run.json


def read_run(path: Path, *, accepts_changes: bool = False) -> SavedRun:
    """Read the job of a run; a run.json that somebody changed is refused unless told otherwise."""
    facts = read_run_json(path) if accepts_changes else read_unaltered_run_json(path)
    try:
        algorithm = str(facts["algorithm"])
        job = from_settings(Job(algorithm=find_algorithm(algorithm).atari.algorithm), facts["config"])
    except (KeyError, TypeError, UserError) as error:
        is_unknown = "unknown" in str(error)
        brought = "; if a package or a script brings it, install or register that first" if is_unknown else ""
        raise UserError(f"{path}/run.json is not a run of this version of Redline: {error}{brought}") from None
    return SavedRun(path, job, algorithm, facts)


def check_env(saved: SavedRun, typed: str | None) -> None:
    """Refuse another env than the run's: --env allows a module to be imported, it does not choose."""
    if typed not in (None, saved.job.env.id):
        own = saved.job.env.id
        remedy = f"type --env {own}" if ":" in own else "leave --env out"
        raise UserError(f"{saved.path} was trained on {own}, not on {typed}: {remedy}")


def changed_settings(before: Job, after: Job) -> dict[str, str]:
    """Return each setting that differs, as "old → new"."""
    old, new = dict(flatten(to_settings(before))), dict(flatten(to_settings(after)))
    return {key: f"{old.get(key)} → {new.get(key)}" for key in {**old, **new} if old.get(key) != new.get(key)}


def check_changes(before: Job, after: Job) -> None:
    """Refuse changes of settings that must stay the same for a whole run."""
    fixed = [key for key in changed_settings(before, after) if key not in MAY_CHANGE]
    if fixed:
        may = ", ".join(sorted(flag_of(key) for key in MAY_CHANGE))
        raise UserError(f"{', '.join(map(flag_of, fixed))} can't change on resume, only {may}: start a new run instead")


def inexact_because(before: dict[str, Any], now: dict[str, Any], changes: dict[str, str]) -> list[str]:
    """Return the reasons why the run will not be bit for bit the same as without the interruption."""
    reasons = [
        f"{key} was {before.get(part, {}).get(key)}, is {now[part][key]}"
        for part, key in EXACT_FACTS
        if before.get(part, {}).get(key) != now[part][key]
    ]
    if before.get("device") != now["device"]:
        reasons.append(f"device was {before.get('device')}, is {now['device']}")
    elif now["device"] != "cpu":
        reasons.append(f"sums on {now['device']} have no fixed order")
    reasons += [f"{flag_of(key)} changed" for key in changes if key not in CHANGES_NOTHING | TOLD_ALREADY]
    config = now["config"]
    if config["topology"] == "async" and config["pacing"] != "lockstep":
        reasons.append("processes of --topology async have no fixed order")
    return reasons

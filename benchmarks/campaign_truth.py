"""What an undisturbed run comes to, and whether a disturbed one came to the same or said that it did not."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from campaign_oracles import DONE, Fault
from campaign_process import Outcome
from kill_resume import audit_rows

Row = dict[str, Any]
ADDRESS = ("lane", "seed", "seed_offset_steps")
SAID_INEXACT = "not bit-exact"


def newest_checkpoint(run: Path) -> int:
    """Return the steps of the newest checkpoint, -1 if there is none."""
    with suppress(OSError):
        return max((int(path.name) for path in (run / "checkpoints").iterdir() if path.name.isdigit()), default=-1)
    return -1


def weights_digest(run: Path, steps: int) -> str | None:
    """Return the digest of the weights after so many steps; None if there is no such checkpoint."""
    try:
        return hashlib.sha256((run / "checkpoints" / str(steps) / "weights.safetensors").read_bytes()).hexdigest()
    except OSError:
        return None


def object_of(outcome: Outcome) -> Row:
    """Return what a command printed with --json; empty if that is no object."""
    with suppress(ValueError, RecursionError):
        found = json.loads(outcome.out)
        return found if isinstance(found, dict) else {}
    return {}


def judge_weights(outcome: Outcome, run: Path, *, steps: int, expected: str) -> list[Fault]:
    """A run that was resumed to `steps` has the weights of an undisturbed one, or said that it would not."""
    if outcome.code != DONE or SAID_INEXACT in outcome.err or _said_in_events(run):
        return []
    found = weights_digest(run, steps)
    if found is None:
        return [Fault("lost run", f"resume ended with 0, but there is no checkpoint of step {steps}")]
    return [] if found == expected else [Fault("weights", "resume ended with other weights and did not say so")]


def judge_evaluation(outcome: Outcome, expected: Mapping[str, Sequence[float]]) -> list[Fault]:
    """An evaluation gives the returns of an undisturbed run at the checkpoint that it names."""
    said = object_of(outcome)
    if outcome.code != DONE or "returns" not in said:
        return []
    steps = str(said.get("checkpoint_steps"))
    if steps in expected and list(said["returns"]) == list(expected[steps]):
        return []
    return [Fault("evaluation", f"other returns at step {steps} than those of the undisturbed run")]


def judge_episodes(run: Path, *, num_envs: int | None) -> list[Fault]:
    """Every episode is counted once; with `num_envs`, the lanes of an inline run have no gap either."""
    rows = [row for row in read_rows(run / "episodes.jsonl") if row.get("role") == "actor"]
    try:
        state = json.loads((run / "checkpoints" / str(newest_checkpoint(run)) / "state.json").read_bytes())
        counters = state["counters"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [Fault("lost run", f"the newest checkpoint can't be read: {type(error).__name__}")]
    rows = [row for row in rows if row["steps"] <= counters["steps"]]
    faults = audit_rows(rows, num_envs=num_envs) if num_envs is not None else _audit_addresses(rows)
    if len(rows) != counters["episodes"]:
        faults.append(f"{len(rows)} rows, {counters['episodes']} episodes counted")
    return [Fault("episodes", fault) for fault in faults[:1]]


def read_rows(path: Path) -> list[Row]:
    """Return the rows of a file that can be read."""
    rows = []
    with suppress(OSError):
        for line in path.read_bytes().splitlines():
            with suppress(ValueError, RecursionError):
                row = json.loads(line)
                rows += [row] if isinstance(row, dict) else []
    return rows


def _audit_addresses(rows: Sequence[Row]) -> list[str]:
    addresses = [tuple(row.get(key) for key in ADDRESS) for row in rows]
    twice = len(addresses) - len(set(addresses))
    return [f"{twice} episodes are there twice"] if twice else []


def _said_in_events(run: Path) -> bool:
    resumes = [row for row in read_rows(run / "events.jsonl") if row.get("event") == "resume"]
    return bool(resumes and resumes[-1].get("inexact"))

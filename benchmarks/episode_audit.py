"""Checks that a run counted every episode once: its rows against each other and against its newest checkpoint."""

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from episode_means import of_training
from redline.records import Row, scan_records
from redline.runs.directory import read_run_json
from redline.runs.manifest import newest_valid


def audit(run: Path) -> list[str]:
    """Return what is wrong with the episodes of a run that has ended; nothing if all is well."""
    path = run / "episodes.jsonl"
    if not path.exists():
        return ["no episode ended, so nothing could be checked: play more steps"]
    scan = scan_records(path)
    rows = of_training(scan.rows)
    checkpoint = newest_valid(run)
    num_envs = int(read_run_json(run)["config"]["num_envs"])
    faults = audit_rows(rows, num_envs=num_envs)
    if scan.unreadable_lines or scan.is_torn:
        faults.append(f"{scan.unreadable_lines} unreadable lines, torn last line: {scan.is_torn}")
    faults += [f"newer checkpoint is damaged: {reason}" for reason in checkpoint.skipped]
    return faults + audit_counters(rows, checkpoint.state)


def audit_rows(rows: Sequence[Row], *, num_envs: int) -> list[str]:
    """Check rows against each other.

    An episode is known by its address, (lane, seed, seed_offset_steps), and by its end, (lane, steps). A lane plays
    without a pause, so the lengths of its episodes up to a row add up to the lane's steps at that row: an episode
    that is missing, double or of another length breaks the sum.
    """
    faults: list[str] = []
    for what, keys in (("address", ("lane", "seed", "seed_offset_steps")), ("end", ("lane", "steps"))):
        counts = Counter(tuple(row[key] for key in keys) for row in rows)
        faults += [f"{count} episodes with {what} {key}" for key, count in counts.items() if count > 1]
    faults += [
        f"steps fall from {before['steps']} to {after['steps']}"
        for before, after in pairwise(rows)
        if after["steps"] < before["steps"]
    ]
    played: Counter[int] = Counter()
    for row in rows:
        played[row["lane"]] += row["length_steps"]
        if played[row["lane"]] * num_envs != row["steps"]:
            faults.append(
                f"lane {row['lane']} at step {row['steps']}: its episodes add up to {played[row['lane']]} steps, "
                f"not {row['steps'] / num_envs:g}"
            )
            break  # every later row of the lane would repeat it
    return faults


def audit_counters(rows: Sequence[Row], state: dict[str, Any]) -> list[str]:
    """Check rows against the counters of the last checkpoint."""
    faults: list[str] = []
    counters, recent = state["counters"], state["recent_returns"]
    if len(rows) != counters["episodes"]:
        faults.append(f"{len(rows)} rows, but the checkpoint counts {counters['episodes']} episodes")
    played_steps = sum(row["length_steps"] for row in rows)
    if played_steps > counters["steps"]:
        faults.append(f"the episodes have {played_steps} steps, more than the {counters['steps']} of the run")
    if [row["return"] for row in rows[-len(recent) :] if recent] != recent:
        faults.append("the last returns are not those that the checkpoint holds")
    return faults

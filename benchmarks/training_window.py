"""What a run of `redline train` did in a window of steady training, from the readings in its metrics.jsonl.

The window opens and closes at readings, which come every 5 s, each a moment at which steps, updates and time were
counted together. Start-up and warm-up lie before it.
"""

import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from redline.bench.training.settings import SETTLE_STEPS
from redline.cli.main import RESUMABLE
from redline.records import Row
from redline.runs.directory import read_run_json
from watched_run import WatchedRun, find_run, read_metrics

START_AND_WARMUP_S = 900.0  # a generous limit
SHARES_OVER_S = 10.0  # before a reading: what its shares of waiting are over

Waiting = dict[str, dict[str, float]]  # role → what for → share of the time


def find_window(rows: Sequence[Row], *, opens_at_steps: int, seconds: float) -> list[Row] | None:
    """Return the readings from the first after `opens_at_steps` to the first `seconds` later, None if it is to come."""
    learning = [row for row in rows if row["steps"] >= opens_at_steps and row["updates"] > 0]
    for position, row in enumerate(learning):
        if row["time_s"] - learning[0]["time_s"] >= seconds and position:
            return learning[: position + 1]
    return None


def read_window(rows: Sequence[Row]) -> Row:
    """Return what happened between the first and the last reading of a window."""
    first, last = rows[0], rows[-1]
    window_s, steps = last["time_s"] - first["time_s"], last["steps"] - first["steps"]
    updates, samples = last["updates"] - first["updates"], last["samples"] - first["samples"]
    return {
        "steps_per_s": steps / window_s,
        "updates_per_s": updates / window_s,
        "samples_per_step": samples / steps,
        "window_s": window_s,
        "steps": steps,
        "updates": updates,
        "first_step": first["steps"],
        "waiting": waiting_shares(rows),
        "weights_age_updates": statistics.median(row["actor_weights_age_updates"] for row in _inside(rows)),
        "cpu_percent": statistics.median(row["cpu_percent"] for row in _inside(rows)),
    }


def waiting_shares(rows: Sequence[Row]) -> Waiting:
    """Return the median share of the window that each role waited, by what for; actors are one role."""
    seen: dict[str, list[Mapping[str, float]]] = {}
    for row in _inside(rows):
        for role in row["roles"]:
            seen.setdefault(role["role"].partition("-")[0], []).append(role["waiting"])
    return {role: median_shares(shares) for role, shares in seen.items() if any(shares)}


def median_shares(shares: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the median of each share; one that is not named is 0."""
    names = sorted({name for item in shares for name in item})
    return {name: statistics.median(item.get(name, 0.0) for item in shares) for name in names}


def median_waiting(windows: Sequence[Waiting]) -> Waiting:
    """Return the medians over several windows."""
    roles = sorted({role for window in windows for role in window})
    return {role: median_shares([window.get(role, {}) for window in windows]) for role in roles}


def who_waits(waiting: Waiting) -> str:
    """Return who waits for whom in words, what rounds to nothing left out."""
    said = []
    for role, shares in waiting.items():
        told = [f"{what} {share:.0%}" for what, share in shares.items() if share >= 0.005]
        said += [f"{role} waits for {', '.join(told)}"] if told else []
    return "; ".join(said) or "nobody waits"


def train_for_window(flags: Sequence[str], *, seconds: float, source: Path | None = None) -> Row:
    """Train in a process of its own until its window has closed, and return what the window saw.

    `source` is the folder of another version of the package, if that is to train.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with WatchedRun(["train", *flags, "--log-dir", name], folder / "said.log", source=source) as process:
            run = process.wait_for(lambda: find_run(folder), timeout_s=START_AND_WARMUP_S)
            opens_at_steps = read_run_json(run)["config"].get("warmup_steps", 0) + SETTLE_STEPS
            rows = process.wait_for(
                lambda: find_window(read_metrics(run), opens_at_steps=opens_at_steps, seconds=seconds),
                timeout_s=START_AND_WARMUP_S + seconds,
            )
            ending = process.stop()
    if ending.exit_code != RESUMABLE:
        raise RuntimeError(f"redline train ended with {ending.exit_code}, not with {RESUMABLE} after SIGTERM")
    return read_window(rows)


def _inside(rows: Sequence[Row]) -> Sequence[Row]:
    """Return the readings whose shares are of the window alone, or all but the first of a short window."""
    inside = [row for row in rows if row["time_s"] - rows[0]["time_s"] >= SHARES_OVER_S]
    return inside or rows[1:]

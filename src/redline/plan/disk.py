"""How many bytes a run leaves on the disk: recordings, checkpoints, replay memory and rows of records.

Pure arithmetic; what was measured is passed in.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Any

from redline.recordings.estimate import MeasuredRecordings, estimate_bytes
from redline.runtime.loop import METRICS_INTERVAL_S

SCHEMA = 1
# rows as runs on a machine with two cores and no GPU wrote them; the hardware's has a few bytes for every core
EPISODE_ROW_BYTES = 190
METRICS_ROW_BYTES = 1_300
HARDWARE_ROW_BYTES = 1_000
CORE_BYTES = 30


@dataclass(frozen=True)
class DiskPlan:
    """What a run of so many steps will take, in bytes."""

    env: str
    algorithm: str
    steps: int
    record: str
    has_values: bool
    steps_per_s: float  # assumed: what is written by the clock depends on it
    measured: MeasuredRecordings
    recordings_bytes: int
    checkpoints_bytes: int
    replay_bytes: int
    rows_bytes: int
    free_bytes: int
    path: str

    @property
    def total_bytes(self) -> int:
        """Everything together."""
        return self.recordings_bytes + self.checkpoints_bytes + self.replay_bytes + self.rows_bytes

    @property
    def fits(self) -> bool:
        """Whether the disk has room for all of it."""
        return self.total_bytes <= self.free_bytes

    def to_json(self) -> dict[str, Any]:
        """Return the plan as one plain object; bytes are integers."""
        measured = self.measured
        return {
            "schema": SCHEMA,
            "env": self.env,
            "algorithm": self.algorithm,
            "steps": self.steps,
            "steps_per_s": self.steps_per_s,
            "record": self.record,
            "record_values": self.has_values,
            "basis": "measured" if measured.is_measured else "computed",
            "played_episodes": measured.num_episodes if measured.is_measured else 0,
            "played_steps": measured.num_steps,
            "mean_length_steps": measured.mean_length_steps,
            "recordings_bytes_per_episode": ceil(measured.bytes_per_episode),
            "recordings_bytes_per_step": measured.bytes_per_step,
            "recordings_bytes": self.recordings_bytes,
            "checkpoints_bytes": self.checkpoints_bytes,
            "replay_bytes": self.replay_bytes,
            "rows_bytes": self.rows_bytes,
            "total_bytes": self.total_bytes,
            "free_bytes": self.free_bytes,
            "disk_path": self.path,
            "fits": self.fits,
        }


def plan_disk(
    measured: MeasuredRecordings,
    *,
    env: str,
    algorithm: str,
    steps: int,
    steps_per_s: float,
    num_actions: int,
    record: str,
    has_values: bool,
    checkpoints_bytes: int,
    replay_bytes: int,
    cores: int,
    free_bytes: int,
    path: str,
) -> DiskPlan:
    """Project what was measured to a run of so many steps; checkpoints do not grow with them."""
    return DiskPlan(
        env=env,
        algorithm=algorithm,
        steps=steps,
        record=record,
        has_values=has_values,
        steps_per_s=steps_per_s,
        measured=measured,
        recordings_bytes=project_recordings(
            measured, steps=steps, num_actions=num_actions, record=record, has_values=has_values
        ),
        checkpoints_bytes=checkpoints_bytes,
        replay_bytes=replay_bytes,
        rows_bytes=project_rows(measured.mean_length_steps, steps=steps, steps_per_s=steps_per_s, cores=cores),
        free_bytes=free_bytes,
        path=path,
    )


def project_recordings(
    measured: MeasuredRecordings, *, steps: int, num_actions: int, record: str, has_values: bool
) -> int:
    """Return what the recordings of so many steps take; of those that are kept if that is not all."""

    def estimate(record: str) -> int:
        return estimate_bytes(
            steps=steps,
            num_actions=num_actions,
            mean_length_steps=measured.mean_length_steps,
            values=has_values,
            record=record,
        )

    share = 1.0 if record == "all" else estimate(record) / estimate("all")
    return ceil(measured.bytes_per_step * steps * share)


def project_rows(mean_length_steps: float, *, steps: int, steps_per_s: float, cores: int) -> int:
    """Return what the rows of episodes, metrics and hardware take; those of events are few."""
    seconds = steps / steps_per_s
    metrics = seconds / METRICS_INTERVAL_S * METRICS_ROW_BYTES
    hardware = seconds * (HARDWARE_ROW_BYTES + CORE_BYTES * cores)  # one a second
    return ceil(steps / mean_length_steps * EPISODE_ROW_BYTES + metrics + hardware)

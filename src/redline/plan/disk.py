"""What a run leaves on disk: recordings, checkpoints, a saved replay memory and logs.

Pure arithmetic; measurements are passed in.
"""

from dataclasses import dataclass
from math import ceil
from typing import Any

from redline.episodes.estimate import MeasuredRecordings, estimate_bytes
from redline.runtime.loop import METRICS_INTERVAL_S

# rows as runs wrote them on a machine with two cores and no GPU; a hardware row has a few bytes for every core
EPISODE_ROW_BYTES = 190
METRICS_ROW_BYTES = 1_300
HARDWARE_ROW_BYTES = 1_000
CORE_BYTES = 30


@dataclass(frozen=True)
class DiskPlan:
    """What a run of `steps` steps will leave on disk."""

    env: str
    algorithm: str
    steps: int
    steps_per_s: float  # assumed: some files grow with time
    record: str
    has_values: bool
    num_actions: int
    cores: int
    measured: MeasuredRecordings
    checkpoints_bytes: int  # does not grow with the steps
    replay_bytes: int
    free_bytes: int
    path: str

    @property
    def recordings_bytes(self) -> int:
        """Recordings of all kept episodes."""
        of_all, of_kept = (
            estimate_bytes(
                steps=self.steps,
                num_actions=self.num_actions,
                mean_length_steps=self.measured.mean_length_steps,
                values=self.has_values,
                record=record,
            )
            for record in ("all", self.record)
        )
        return ceil(self.measured.bytes_per_step * self.steps * of_kept / of_all)

    @property
    def rows_bytes(self) -> int:
        """Rows of episodes, metrics and hardware; events are few."""
        seconds = self.steps / self.steps_per_s
        metrics = seconds / METRICS_INTERVAL_S * METRICS_ROW_BYTES
        hardware = seconds * (HARDWARE_ROW_BYTES + CORE_BYTES * self.cores)  # one a second
        return ceil(self.steps / self.measured.mean_length_steps * EPISODE_ROW_BYTES + metrics + hardware)

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

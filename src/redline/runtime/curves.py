"""TensorBoard curves of a run, if TensorBoard is there."""

import time
from collections.abc import Mapping
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from redline.runtime.gauges import Gauges

HOW_TO_GET_IT = "no TensorBoard curves: pip install 'redline[tensorboard]' adds them"

TAGS = {
    "learning/mean_return_100": "mean_return_100",
    "learning/best_return": "best_return",
    "learning/loss": "loss",
    "learning/epsilon": "epsilon",
    "learning/policy_entropy_nats": "policy_entropy_nats",
    "speed/steps_per_s": "steps_per_s",
    "speed/updates_per_s": "updates_per_s",
    "speed/samples_per_step": "samples_per_step",
    "machine/cpu_percent": "cpu_percent",
    "machine/rss_bytes": "rss_bytes",
    "replay/transitions": "replay_transitions",
}
GREEDY_TAG = "learning/greedy_return"


class Curves:
    """Writes event files into the run directory, against steps; without TensorBoard it writes nothing."""

    def __init__(self, run: Path, *, from_steps: int) -> None:
        self._writer: Any = None
        if self.is_available():
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  an extra, and slow to import

            # whatever an earlier invocation wrote beyond its checkpoint is hidden, not shown twice
            purge = from_steps + 1 if from_steps > 0 else None
            self._writer = SummaryWriter(str(run / "tensorboard"), purge_step=purge)

    @staticmethod
    def is_available() -> bool:
        """Return whether TensorBoard is installed."""
        return find_spec("tensorboard") is not None

    def add(self, gauges: Gauges) -> None:
        """Add one point to every curve of what is read every few seconds."""
        row = gauges.row()
        points = {tag: row[key] for tag, key in TAGS.items() if row[key] is not None}
        self._add(points, steps=gauges.steps, unix_s=gauges.unix_s)

    def add_evaluation(self, mean_return: float, *, steps: int) -> None:
        """Add the mean return of an evaluation with the weights of that step."""
        self._add({GREEDY_TAG: mean_return}, steps=steps, unix_s=time.time())

    def _add(self, points: Mapping[str, float], *, steps: int, unix_s: float) -> None:
        if self._writer is None:
            return
        try:
            for tag, value in points.items():
                self._writer.add_scalar(tag, value, steps, walltime=unix_s)
        except OSError:  # a full disk: curves are the part of a run that it can do without
            self._writer = None

    def close(self) -> None:
        """Flush and close."""
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()

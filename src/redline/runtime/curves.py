"""TensorBoard curves of a run, if TensorBoard is there."""

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


class Curves:
    """Writes event files into the run directory, against steps; without TensorBoard it writes nothing."""

    def __init__(self, run: Path, *, from_steps: int) -> None:
        self._writer: Any = None
        if self.is_available():
            from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  an extra, and slow to import

            # whatever an earlier invocation wrote beyond its checkpoint is hidden, not shown twice
            purge = from_steps if from_steps > 0 else None
            self._writer = SummaryWriter(str(run / "tensorboard"), purge_step=purge)

    @staticmethod
    def is_available() -> bool:
        """Return whether TensorBoard is installed."""
        return find_spec("tensorboard") is not None

    def add(self, gauges: Gauges) -> None:
        """Add one point to every curve."""
        if self._writer is None:
            return
        row = gauges.row()
        try:
            for tag, key in TAGS.items():
                if row[key] is not None:
                    self._writer.add_scalar(tag, row[key], gauges.steps, walltime=gauges.unix_s)
        except OSError:  # a full disk: curves are the part of a run that it can do without
            self._writer = None

    def close(self) -> None:
        """Flush and close."""
        if self._writer is not None:
            with suppress(OSError):
                self._writer.close()

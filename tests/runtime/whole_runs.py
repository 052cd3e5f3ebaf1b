"""Training to its end or to a stop, with what a test need not wait for switched off."""

from pathlib import Path
from typing import Any

from redline.runtime.config import ActorConfig, LearnerConfig, MonitorConfig
from redline.runtime.session import Session

UNWATCHED = MonitorConfig(hz=0)  # a process per test would take its time
ONE_THREAD: dict[str, Any] = {"learner": LearnerConfig(threads=1), "actor": ActorConfig(threads=1)}


def play(session: Session, until_steps: int | None = None) -> Path:
    """Train to the end, or until a request to stop comes after some steps; return the run's folder."""

    def requested_stop() -> str | None:
        return "SIGTERM" if until_steps is not None and session.trainer.counters.steps >= until_steps else None

    with session:
        session.train(requested_stop)
    return session.run.path


def final_bytes(run: Path) -> dict[str, bytes]:
    """Return all arrays of the newest checkpoint."""
    folder = max((run / "checkpoints").iterdir(), key=lambda path: int(path.name))
    return {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}

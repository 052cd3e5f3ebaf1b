"""Who trains: a module run in a process of its own, which is gone with all its children when its turn is over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from redline.bench.other_work import OtherWork
from redline.bench.peer_install import why_missing
from redline.bench.training.settings import Setting, to_json
from redline.bench.training.worker_files import SAID, last_line, read_row

ENDING_S = 10.0  # that a worker gets to end by itself
OURS = "redline.bench.training.redline_worker"


class WorkerError(Exception):
    """A training ended before its window did."""


@dataclass(frozen=True)
class TrainingPeer:
    """A peer by name: what must be installed, and the module that trains with it."""

    module: str
    package: str
    worker: str
    vec_envs: tuple[str, ...] = ()  # that it can run on; the fastest here is taken

    @property
    def missing(self) -> str | None:
        """Why it can't be measured here, or None if it can."""
        return why_missing(self.module, self.package)


TRAINING_PEERS: Mapping[str, TrainingPeer] = {
    "sb3": TrainingPeer(
        "stable_baselines3", "stable_baselines3", "redline.bench.training.sb3_worker", ("dummy", "subproc")
    )
}


def run_worker(worker: str, setting: Setting, *, environ: Mapping[str, str]) -> dict[str, Any]:
    """Train once and return what the window saw, and how much of the machine others used meanwhile."""
    others = OtherWork()
    with tempfile.TemporaryDirectory(prefix="redline-bench-") as name:
        folder = Path(name)
        with (folder / SAID).open("wb") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", worker, to_json(setting), name],
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                start_new_session=True,  # one group with its children, to be ended as one
            )
            try:
                code = process.wait()
            finally:
                end_group(process)
        if code != 0:
            raise WorkerError(f"{worker} ended with {code}: {last_line(folder)}")
        return read_row(folder) | {"others_percent": others.percent()}


def end_group(process: subprocess.Popen[bytes]) -> None:
    """End a worker and whatever it started, at once if it does not end by itself or if we are interrupted again."""
    try:
        _signal_group(process, signal.SIGTERM)
        process.wait(ENDING_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        _signal_group(process, signal.SIGKILL)
        process.wait()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def environ_with(settings: Mapping[str, str], *, known: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with the `known` variables as `settings` has them, or not at all."""
    return {name: value for name, value in os.environ.items() if name not in known} | dict(settings)

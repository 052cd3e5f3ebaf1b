"""Who trains: a module run in a process of its own, which is gone with all its children when its turn is over."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from redline.bench.other_work import OtherWork
from redline.bench.peer_install import why_missing
from redline.bench.training.settings import Setting, to_json

ENDING_S = 10.0  # that a worker gets to end by itself
SAID = "said.log"
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


class Worker(AbstractContextManager["Worker"]):
    """A training in a process of its own: warmed up when it is entered, at work only when it is its turn."""

    def __init__(self, module: str, setting: Setting, *, environ: Mapping[str, str]) -> None:
        self._module = module
        self._setting = setting
        self._environ = dict(environ)
        self._ending = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="redline-bench-")))
            said = stack.enter_context((folder / SAID).open("wb"))
            self._folder = folder
            self._process = subprocess.Popen(
                [sys.executable, "-m", self._module, to_json(self._setting), str(folder)],
                env=self._environ,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                start_new_session=True,  # one group with its children, to be ended as one
            )
            stack.callback(_close_pipes, self._process)
            stack.callback(end_group, self._process)
            self._read_answer()
            self._ending = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def take_turn(self, seconds: float) -> dict[str, Any]:
        """Let it train for about so long; return what it did, and how much of the machine others used meanwhile."""
        others = OtherWork()
        if self._process.stdin is None:
            raise RuntimeError("a worker is asked on its stdin")
        with suppress(BrokenPipeError):  # what it said last tells more
            self._process.stdin.write(f"{seconds}\n".encode())
            self._process.stdin.flush()
        return self._read_answer() | {"others_percent": others.percent()}

    def _read_answer(self) -> dict[str, Any]:
        if self._process.stdout is None:
            raise RuntimeError("a worker answers on its stdout")
        line = self._process.stdout.readline()
        if not line:
            raise WorkerError(f"{self._module} ended with {self._process.wait()}: {last_line(self._folder)}")
        row: dict[str, Any] = json.loads(line)
        return row


def run_worker(module: str, setting: Setting, *, environ: Mapping[str, str]) -> dict[str, Any]:
    """Train for one window and return what it saw."""
    with Worker(module, setting, environ=environ) as worker:
        return worker.take_turn(setting.seconds)


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


def last_line(folder: Path) -> str:
    """Return the end of what a worker said."""
    lines = (folder / SAID).read_text(encoding="utf-8", errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):
                pipe.close()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def environ_with(settings: Mapping[str, str], *, known: Mapping[str, str]) -> dict[str, str]:
    """Return this process's environment with the `known` variables as `settings` has them, or not at all."""
    return {name: value for name, value in os.environ.items() if name not in known} | dict(settings)

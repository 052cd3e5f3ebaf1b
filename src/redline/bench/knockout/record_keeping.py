"""What a run keeps beside its training, as a session does: rows of episodes and readings, and the monitor's process."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch

from redline.monitor.attaching import MonitorProcess
from redline.runs.directory import RunDirectory
from redline.runtime.gauges import Gauges
from redline.runtime.loop import METRICS_INTERVAL_S, Every, Loop
from redline.runtime.recording import Recorder, recording_setting
from redline.runtime.sinks import RunStart
from redline.runtime.trackers import open_sinks
from redline.runtime.training import Trainer


class Unwatched:
    """Nobody looks at a run that is only measured."""

    def note(self, text: str) -> None:
        """Take in a fact."""

    def show(self, gauges: Gauges) -> None:
        """Take in a reading."""


class RecordKeeping:
    """Writes the records of a trainer into a run directory."""

    def __init__(self, trainer: Trainer, run: RunDirectory, monitor: MonitorProcess | None) -> None:
        self._trainer = trainer
        self._loop = Loop(trainer, folder=run.path)
        self._recorder = Recorder(
            run,
            trainer.counters,
            Unwatched(),
            setting=recording_setting(trainer.job, trainer.spec),
            sinks=open_sinks((), RunStart(run.path, {}, 0)),
        )
        self._monitor = monitor
        self._metrics = Every(METRICS_INTERVAL_S, at_once=True)
        self._is_left_out = False
        self._recorder.event("process", role="inline", pid=os.getpid(), threads=torch.get_num_threads())

    def step(self) -> None:
        """Take a vector step as a session does; write the episodes that ended, and a reading if one is due."""
        if self._is_left_out:
            self._trainer.vector_step()
            return
        for episode in self._loop.step():
            self._recorder.episode(episode)
        if not self._loop.reading_is_due():
            return
        gauges = self._loop.read()
        if self._monitor is not None:
            self._monitor.take_events()
        if self._metrics.is_due():
            self._recorder.metrics(gauges)

    @contextmanager
    def left_out(self) -> Iterator[None]:
        """Write nothing for a while; the monitor stands still, for to start it anew would cost more than it does."""
        self._signal_monitor(signal.SIGSTOP)
        self._is_left_out = True
        try:
            yield
        finally:
            self._is_left_out = False
            self._loop.begin()
            self._signal_monitor(signal.SIGCONT)

    def _signal_monitor(self, number: signal.Signals) -> None:
        if self._monitor is not None and self._monitor.pid is not None and not self._monitor.is_over:
            os.kill(self._monitor.pid, number)

    def close(self) -> None:
        """Let the sinks finish."""
        self._recorder.close()


@contextmanager
def keeping_records(
    trainer: Trainer, folder: Path, *, algorithm: str, note: Callable[[str], None]
) -> Iterator[RecordKeeping]:
    """Keep the records of a trainer in a new run directory under `folder`; `note` takes what can't be."""
    job = trainer.job
    with ExitStack() as stack:
        run = stack.enter_context(
            RunDirectory.create(folder, game=trainer.spec.name, algorithm=algorithm, seed=job.seed)
        )
        run.open_records()
        monitor = None
        if job.monitor.hz:
            try:
                monitor = stack.enter_context(_watching(run.path, hz=job.monitor.hz))
            except OSError as error:
                note(f"the monitor can't be started: {error.strerror}; it is in no cost")
        records = RecordKeeping(trainer, run, monitor)
        stack.callback(records.close)
        yield records


@contextmanager
def _watching(folder: Path, *, hz: float) -> Iterator[MonitorProcess]:
    with ExitStack() as stack:
        monitor = MonitorProcess(folder, hz=hz, pid=os.getpid(), is_run=True)
        stack.callback(monitor.close)
        monitor.wait_until_recording()
        if monitor.pid is not None:
            stack.enter_context(waker(monitor.pid))
        yield monitor


def waker(pid: int) -> subprocess.Popen[bytes]:
    """Start what lets a stopped process go on as soon as we are gone: our pipe closes even if we are killed."""
    return subprocess.Popen(
        ["sh", "-c", 'read -r _; kill -CONT "$0"', str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is not meant for it
    )

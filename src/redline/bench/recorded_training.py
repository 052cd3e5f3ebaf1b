"""A training in this process with everything that a run records: episodes, metrics, and the hardware monitor."""

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
from redline.runtime.gauges import NoDisplay
from redline.runtime.loop import METRICS_INTERVAL_S, Every, Loop
from redline.runtime.run_log import RunLog
from redline.runtime.sinks import RunStart, open_sinks
from redline.runtime.training import Trainer


class RecordedTraining:
    """A trainer, whose vector steps are taken and recorded as a session does; no checkpoints, no evaluations."""

    def __init__(self, trainer: Trainer, run: RunDirectory, monitor: MonitorProcess | None) -> None:
        self.trainer = trainer
        self._loop = Loop(trainer, folder=run.path)
        self._recorder = RunLog(
            run,
            trainer.job,
            trainer.spec,
            trainer.counters,
            display=NoDisplay(),
            sinks=open_sinks((), RunStart(run.path, {}, 0)),
        )
        self._monitor = monitor
        self._metrics = Every(METRICS_INTERVAL_S, at_once=True)
        self._is_recording = True
        self._recorder.event("process", role="inline", pid=os.getpid(), threads=torch.get_num_threads())

    def step(self) -> None:
        """Take one vector step; write the episodes that ended, and a reading if one is due."""
        if not self._is_recording:
            self.trainer.vector_step()
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
    def without_records(self) -> Iterator[None]:
        """Record nothing within; the monitor is only stopped, because to start it anew would cost more."""
        self._signal_monitor(signal.SIGSTOP)
        self._is_recording = False
        try:
            yield
        finally:
            self._is_recording = True
            self._loop.begin()
            self._signal_monitor(signal.SIGCONT)

    def _signal_monitor(self, number: signal.Signals) -> None:
        if self._monitor is not None and self._monitor.pid is not None and not self._monitor.is_over:
            os.kill(self._monitor.pid, number)

    def close(self) -> None:
        """Let the sinks finish."""
        self._recorder.close()


@contextmanager
def recorded(
    trainer: Trainer, folder: Path, *, algorithm: str, note: Callable[[str], None]
) -> Iterator[RecordedTraining]:
    """Record a trainer into a new run directory under `folder`; `note` is told if the monitor can't be started."""
    job = trainer.job
    with ExitStack() as stack:
        run = stack.enter_context(
            RunDirectory.create(folder, game=trainer.spec.name, algorithm=algorithm, seed=job.seed)
        )
        run.open_records()
        monitor = None
        if job.monitor.hz:
            try:
                monitor = MonitorProcess(run.path, hz=job.monitor.hz, pid=os.getpid(), is_run=True)
            except OSError as error:
                note(f"the monitor can't be started: {error.strerror}; measured without it")
        if monitor is not None:
            stack.callback(monitor.close)
            monitor.wait_until_recording()
            if monitor.pid is not None:
                stack.enter_context(waker(monitor.pid))
        training = RecordedTraining(trainer, run, monitor)
        stack.callback(training.close)
        yield training


def waker(pid: int) -> subprocess.Popen[bytes]:
    """Start a process that continues a stopped one as soon as we are gone: our pipe closes even if we are killed."""
    return subprocess.Popen(
        ["sh", "-c", 'read -r _; kill -CONT "$0"', str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is not for it
    )

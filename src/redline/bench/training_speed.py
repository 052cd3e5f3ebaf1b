"""`redline bench train`: steps per second of a whole training, beside the machine's limit.

The training records what a run records: episodes, metrics and the hardware monitor; only checkpoints are left out. Each
round measures the matrix products, the bare emulators and the training, one after another.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from redline.algorithms.catalog import find_algorithm
from redline.algorithms.q_learning import QLearning
from redline.bench.env_speed import EnvBench
from redline.bench.learner_speed import Limit, Sgemm, count_work
from redline.bench.measuring import (
    Measuring,
    Progress,
    busy_words,
    goal,
    own_cpu_s,
    rate_of,
    silent,
    told_rounds,
    why_not_judged,
)
from redline.envs.catalog import env_spec
from redline.envs.config import EnvConfig
from redline.exploration import EpsilonGreedy
from redline.monitor.attaching import MonitorProcess
from redline.runs.directory import RunDirectory
from redline.runtime.building import build_trainer, prepare_process
from redline.runtime.config import Job, LearnerConfig, to_settings
from redline.runtime.gauges import NoDisplay
from redline.runtime.loop import METRICS_INTERVAL_S, Every, Loop
from redline.runtime.resolve import resolve_job
from redline.runtime.run_log import RunLog
from redline.runtime.sinks import RunStart, open_sinks
from redline.runtime.training import Trainer
from redline.schedules import Linear
from redline.types import Precision


class RecordedTraining:
    """A trainer that steps and records as in a session, without checkpoints and evaluations."""

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
        """Take one vector step; write the ended episodes, and a reading if one is due."""
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
        """Record nothing within; the monitor is stopped by a signal, because restarting it would cost more."""
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
        """Close the recorder and its sinks."""
        self._recorder.close()


@contextmanager
def recorded(
    trainer: Trainer, folder: Path, *, algorithm: str, note: Callable[[str], None]
) -> Iterator[RecordedTraining]:
    """Record a trainer into a new run directory under `folder`; `note` gets a message if the monitor can't start."""
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
    """Start a process that continues a stopped one when our pipe closes, even because we were killed."""
    return subprocess.Popen(
        ["sh", "-c", 'read -r _; kill -CONT "$0"', str(pid)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # not stopped by Ctrl-C
    )


ALGORITHMS = ("dqn", "ppo", "a2c")
PONG = "PongNoFrameskip-v4"  # frame skip 4, 84×84 grey, stack 4, no sticky actions, no-op starts
FIRST_GAME_STEPS = 800  # of each env: about one game of Pong, so that games end within the windows
DQN_WARMUP_STEPS = 6_000
DQN_CAPACITY = 20_000
SETTLE_STEPS = 400  # a hundred updates of DQN: allocator and caches are warm
ENV_SECONDS = 1.0  # of the bare emulators in each round
UPDATES_TOLERANCE = 0.02  # of updates per step: a window may end between two updates
GOAL_FRACTIONS = {"dqn": 0.55}  # of the limit
LEAST_SECONDS = 5.0  # of a window, for a verdict

Row = dict[str, Any]


@dataclass(frozen=True)
class TrainBench:
    """The options of the bench."""

    algorithm: str = "dqn"
    env: str = PONG
    rounds: int = 9
    seconds: float = 6.0  # of each window, which ends with a whole rollout
    warmup_steps: int | None = None  # before the first window; None: about one game of each env
    precision: Precision = "float32"  # of the learner

    def run(self, progress: Progress = silent) -> Row:
        """Measure and return all figures."""
        measuring = Measuring()
        asked = make_job(self.algorithm, env=self.env, warmup_steps=self.warmup_steps)
        resolved = resolve_job(replace(asked, learner=LearnerConfig(precision=self.precision)))
        prepare_process(resolved)
        job = resolved.job
        opens_at_steps = first_window_steps(job, self.warmup_steps)
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="redline-bench-")))
            trainer = build_trainer(resolved, env_seed=job.seed)
            stack.callback(trainer.close)
            training = stack.enter_context(recorded(trainer, folder, algorithm=self.algorithm, note=progress))
            progress("warming up")
            trainer.begin()
            while trainer.counters.steps < opens_at_steps or not is_between_rollouts(training):
                training.step()
            rows, limit = self._run_rounds(training, progress)
        found = self.read_rounds(rows, job, limit)
        found["rounds"] = rows
        found["config"] = {
            "algorithm": self.algorithm,
            **to_settings(job),
            "rounds": self.rounds,
            "seconds": self.seconds,
            "opens_at_steps": opens_at_steps,
            "low_high": "90 % of the rounds",
        }
        return measuring.result(found, others_percent=worst_others_percent(rows))

    def _run_rounds(self, training: RecordedTraining, progress: Progress) -> tuple[list[Row], Limit]:
        """Return each round's figures, and the limit by the best matrix products and emulators of all rounds."""
        job, sgemm, rows = training.trainer.job, Sgemm(), []
        best_env_steps_per_s = 0.0
        with EnvBench(env=job.env, num_envs=job.num_envs).bare() as bare:
            for _ in told_rounds(self.rounds, progress, guess_s=self.seconds + ENV_SECONDS):
                gflops, env_steps_per_s = sgemm.measure(), bare.steps_per_s(ENV_SECONDS)
                best_env_steps_per_s = max(best_env_steps_per_s, env_steps_per_s)
                window = train_window(training, self.seconds)
                progress(f"  {window['steps_per_s']:.1f} steps/s{busy_words(window['others_percent'])}")
                rows.append({"sgemm_gflops": gflops, "bare_env_steps_per_s": env_steps_per_s, "redline": window})
        work = count_work(job.algorithm, env_spec(job.env))
        return rows, Limit(sgemm.best_gflops, work, 1.0 / best_env_steps_per_s)

    def read_rounds(self, rows: Sequence[Row], job: Job, limit: Limit) -> Row:
        """Summarise all rounds."""
        windows = [row["redline"] for row in rows]
        rates = {name: rate_of([window[name] for window in windows]) for name in ("steps_per_s", "updates_per_s")}
        fraction = rate_of([window["steps_per_s"] / limit.steps_per_s for window in windows])
        wanted = job.algorithm.updates_per_vector_step(job.num_envs) / job.num_envs
        is_fair = all(abs(window["updates_per_step"] / wanted - 1) <= UPDATES_TOLERANCE for window in windows)
        why_not = self._why_not_comparable(job, is_fair=is_fair)
        why_not = why_not or why_not_judged(rounds=len(rows), others_percent=worst_others_percent(rows))
        goals = {}
        if self.algorithm in GOAL_FRACTIONS:
            goals["limit_fraction"] = goal(fraction, GOAL_FRACTIONS[self.algorithm], why_not=why_not)
        return {
            **rates,
            "limit_fraction": fraction,
            "limit": limit.figures() | {"env_s_per_step": limit.env_s_per_step, "steps_per_s": limit.steps_per_s},
            "learning": {"redline": read_learning(windows, batch_size=job.algorithm.batch_size)},
            "same_updates_per_step": is_fair,
            "goals": goals,
        }

    def _why_not_comparable(self, job: Job, *, is_fair: bool) -> str | None:
        """Return how the run differs from the one that the goal is for; None if it does not."""
        if not is_fair:
            return "the training did not do the updates per step that its settings ask for"
        if self.env != PONG:
            return f"the goal is for {job.num_envs} envs of {PONG}"
        if self.precision != "float32":
            return "the limit is that of float32"
        if self.seconds < LEAST_SECONDS:
            return f"a verdict needs windows of {LEAST_SECONDS:.0f} s"
        return None


def make_job(algorithm: str, *, env: str = PONG, warmup_steps: int | None = None) -> Job:
    """Return an algorithm with its settings for Atari; DQN with a short warm-up and a small replay memory."""
    preset = find_algorithm(algorithm).atari
    parts = preset.algorithm
    if isinstance(parts, QLearning):
        steps = warmup_steps or DQN_WARMUP_STEPS
        parts = replace(
            parts,
            # ε is low when the first window opens, so that the network acts as in nearly all of a training
            explore=EpsilonGreedy(Linear(1.0, 0.01, over_steps=steps)),
            replay=replace(parts.replay, capacity=DQN_CAPACITY, codec="zstd", prefetch=0),
            warmup_steps=steps,
        )
    return Job(env=EnvConfig(id=env), algorithm=parts, num_envs=preset.num_envs, seed=1, device="cpu")


def first_window_steps(job: Job, warmup_steps: int | None) -> int:
    """Return the step at which the first window may open."""
    if isinstance(job.algorithm, QLearning):
        return job.algorithm.warmup_steps + SETTLE_STEPS
    return warmup_steps or job.num_envs * FIRST_GAME_STEPS


def is_between_rollouts(training: RecordedTraining) -> bool:
    """Tell whether a window may open or close: it must hold whole rollouts."""
    job, counters = training.trainer.job, training.trainer.counters
    rollout_steps = int(job.algorithm.paces().get("rollout_steps", 1)) * job.num_envs
    return counters.updates > 0 and counters.steps % rollout_steps == 0


def train_window(training: RecordedTraining, seconds: float) -> Row:
    """Train for about `seconds` and return the figures."""
    counters = training.trainer.counters
    first_steps, first_updates, first_episodes = counters.steps, counters.updates, counters.episodes
    measuring, begun_s, begun_cpu_s = Measuring(), time.perf_counter(), own_cpu_s()
    while time.perf_counter() - begun_s < seconds or not is_between_rollouts(training):
        training.step()
    window_s, cpu_s = time.perf_counter() - begun_s, own_cpu_s() - begun_cpu_s
    steps, updates = counters.steps - first_steps, counters.updates - first_updates
    recent = training.trainer.scores.recent_returns
    returns = recent[max(len(recent) - (counters.episodes - first_episodes), 0) :]
    return {
        "steps_per_s": steps / window_s,
        "updates_per_s": updates / window_s,
        "updates_per_step": updates / steps,
        "cores_used": cpu_s / window_s,
        "window_s": window_s,
        "steps": steps,
        "updates": updates,
        "first_step": first_steps,
        "episodes": len(returns),
        "mean_return": sum(returns) / len(returns) if returns else None,
        "threads": torch.get_num_threads(),
        "others_percent": measuring.others_percent(),
    }


def worst_others_percent(rows: Sequence[Row]) -> float:
    """Return the largest share of all cores that others used in a window."""
    return max(float(row["redline"]["others_percent"]) for row in rows)


def read_learning(windows: Sequence[Row], *, batch_size: int) -> Row:
    """Return the returns and cores of the windows."""
    episodes = sum(window["episodes"] for window in windows)
    total = sum(window["mean_return"] * window["episodes"] for window in windows if window["episodes"])
    return {
        "samples_per_step": rate_of([window["updates_per_step"] * batch_size for window in windows]),
        "mean_return_in_windows": total / episodes if episodes else None,
        "episodes_in_windows": episodes,
        "cores_used": rate_of([window["cores_used"] for window in windows]),
    }

"""One way to run a training, in its own process: it trains for the windows that it is asked for, and sleeps in between.

`python -m redline.plan.candidate` has a socket as its stdin: there come a job and an order for each window, and there
it answers.
"""

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import psutil
import torch

from redline.algorithms.catalog import find_algorithm
from redline.bench.knockouts import period_steps
from redline.envs.catalog import allow_module
from redline.envs.vector import EnvError
from redline.errors import UserError
from redline.learner import NonFiniteError
from redline.monitor.processes import read_pss_bytes, read_stat
from redline.plan.speed import RoleUse, Window
from redline.replay import ReplayError
from redline.runtime.config import Job, from_settings
from redline.runtime.gauges import NoDisplay
from redline.runtime.launch import AnySession, start_run
from redline.runtime.processes.process_pool import end_with_parent
from redline.runtime.processes.supervisor import LearnerLostError
from redline.runtime.session import Session

SETTLE_S = 0.5  # of learning before the first window: allocator and caches see every shape
WAKE_S = 0.3  # not measured after the sleep of a run in processes: the sleep would count as waiting
ROLE_PREFIX = "redline-"  # of the names of a run's processes


@dataclass(frozen=True)
class _Mark:
    time_s: float
    done: tuple[int, int]  # steps and updates
    cpu_s: Mapping[str, float]
    phases_s: Mapping[str, float]
    waited_s: Mapping[str, Mapping[str, float]]


class Windows:
    """Answers orders between vector steps: `requested_stop` of a session that trains only in windows."""

    def __init__(self, session: AnySession, job: Job, *, orders: TextIO, answers: TextIO) -> None:
        self._session = session
        self._orders = orders
        self._answers = answers
        # as much learning as playing in each window: whole rollouts, or as many vector steps as make whole updates
        self._unit_steps = period_steps(job) * job.num_envs if job.topology == "inline" else 1
        self._wake_s = 0.0 if job.topology == "inline" else WAKE_S
        self._learns_since_s: float | None = None
        self._window_s: float | None = None  # None before the first
        self._woke_s = 0.0
        self._first: _Mark | None = None  # where the window begins; None until it does
        self.weights_age_updates = 0.0

    def __call__(self) -> str | None:
        """Return why the session is to stop; None while it trains."""
        steps, updates = self._session.done
        if not updates or steps % self._unit_steps:
            return None
        now_s = time.perf_counter()
        if self._window_s is None:
            self._learns_since_s = self._learns_since_s or now_s
            return self._answer({"is_ready": True}) if now_s - self._learns_since_s >= SETTLE_S else None
        if self._first is None:
            self._first = self._mark() if now_s - self._woke_s >= self._wake_s else None
            return None
        if now_s - self._first.time_s < self._window_s or steps == self._first.done[0]:
            return None
        return self._answer(asdict(self._window(self._first, self._mark())))

    def _answer(self, answer: Mapping[str, Any]) -> str | None:
        """Answer, sleep until the next order, and return why there is none."""
        with self._session.pause():  # before the answer: whoever reads it wakes the next candidate
            print(json.dumps(answer), file=self._answers, flush=True)
            order = self._orders.readline()
        if not order:
            return "no more windows"
        self._window_s, self._first, self._woke_s = float(json.loads(order)["seconds"]), None, time.perf_counter()
        return None

    def _mark(self) -> _Mark:
        phases_s = dict(self._session.trainer.phases.seconds) if isinstance(self._session, Session) else {}
        cpu_s = {role: _cpu_s(pid) for role, pid in self._roles().items()}
        return _Mark(time.perf_counter(), self._session.done, cpu_s, phases_s, self._session.waited_s)

    def _window(self, first: _Mark, last: _Mark) -> Window:
        seconds = last.time_s - first.time_s
        return Window(
            steps=last.done[0] - first.done[0],
            updates=last.done[1] - first.done[1],
            seconds=seconds,
            weights_age_updates=self.weights_age_updates,
            gpu_memory_bytes=torch.cuda.max_memory_allocated() if torch.cuda.is_available() else None,
            phases={name: (spent_s - first.phases_s[name]) / seconds for name, spent_s in last.phases_s.items()},
            waits={
                role: {why: (all_s - first.waited_s.get(role, {}).get(why, 0.0)) / seconds for why, all_s in by.items()}
                for role, by in last.waited_s.items()
            },
            roles={
                role: RoleUse((last.cpu_s[role] - first.cpu_s.get(role, 0.0)) / seconds, read_pss_bytes(pid) or 0)
                for role, pid in self._roles().items()
                if role in last.cpu_s
            },
        )

    def _roles(self) -> dict[str, int]:
        """Return the process of each role."""
        if isinstance(self._session, Session):
            return {"inline": os.getpid()}
        children = psutil.Process().children(recursive=True)
        named = {child.name(): child.pid for child in children if child.is_running()}
        roles = {name.removeprefix(ROLE_PREFIX): pid for name, pid in named.items() if name.startswith(ROLE_PREFIX)}
        return {"supervisor": os.getpid(), **roles}


def _cpu_s(pid: int) -> float:
    stat = read_stat(pid)
    return 0.0 if stat is None else stat.cpu_s


def main() -> int:
    """Train in windows until there are no more orders."""
    end_with_parent()
    orders, answers = sys.stdin, os.fdopen(os.dup(sys.stdin.fileno()), "w")
    if not (order := orders.readline()):
        return 1
    asked = json.loads(order)
    try:
        if ":" in asked["settings"]["env"]["id"]:
            allow_module(asked["settings"]["env"]["id"])
        usual = Job(algorithm=find_algorithm(asked["algorithm"]).atari.algorithm)
        job = from_settings(usual, {**asked["settings"], "log_dir": str(Path(asked["folder"]))})
        with start_run(job, asked["algorithm"], NoDisplay()) as session:
            windows = Windows(session, job, orders=orders, answers=answers)
            for gauges in session.readings(windows):
                windows.weights_age_updates = gauges.actor_weights_age_updates
    except (UserError, NonFiniteError, EnvError, ReplayError, LearnerLostError) as error:
        print(json.dumps({"error": str(error)}), file=answers, flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

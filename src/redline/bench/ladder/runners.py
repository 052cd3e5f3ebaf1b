"""Who runs the parts of a rung: the plain loop, Redline's engine in this process, or one with processes of its own.

What is set once per process, such as threads, the ladder has set before: it is the same for all in this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from redline.bench.ladder.contenders import Contender, InThisProcess, learn
from redline.bench.ladder.engine import make_trainer, settled_job, train_flags
from redline.bench.ladder.own_processes import OwnProcesses
from redline.bench.ladder.plain_loop import LoopParts, PlainLoop
from redline.bench.ladder.task import STEPS_PER_UPDATE, Task


class Runner(Protocol):
    """Makes contenders and pupils of the parts."""

    def contender(self, parts: LoopParts, task: Task, *, seed: int) -> Contender:
        """Return one that takes turns."""
        ...

    def mean_return(self, parts: LoopParts, task: Task, *, seed: int, steps: int) -> float | None:
        """Train from nothing and return the mean return of the last 100 episodes."""
        ...


@dataclass(frozen=True)
class InPlainLoop:
    """The textbook's loop."""

    def contender(self, parts: LoopParts, task: Task, *, seed: int) -> Contender:
        """Return the loop."""
        return InThisProcess(
            PlainLoop(parts, task, seed=seed),
            warmup_steps=task.warmup_steps,
            steps_per_update=_cycle_steps(parts),
        )

    def mean_return(self, parts: LoopParts, task: Task, *, seed: int, steps: int) -> float | None:
        """Train the loop."""
        return learn(PlainLoop(parts, task, seed=seed), steps=steps)


@dataclass(frozen=True)
class InEngine:
    """Redline's trainer with its own network, learner and source; without records and checkpoints."""

    def contender(self, parts: LoopParts, task: Task, *, seed: int) -> Contender:
        """Return the trainer."""
        return InThisProcess(
            make_trainer(settled_job(parts, task, seed=seed)),
            warmup_steps=task.warmup_steps,
            steps_per_update=_cycle_steps(parts),
        )

    def mean_return(self, parts: LoopParts, task: Task, *, seed: int, steps: int) -> float | None:
        """Train the trainer."""
        return learn(make_trainer(settled_job(parts, task, seed=seed)), steps=steps)


@dataclass(frozen=True)
class InProcesses:
    """`redline train --topology async`: actor and learner in processes of their own, records included."""

    sync_steps: int  # of the actor between two looks for newer weights
    flags: Mapping[str, str] = field(default_factory=dict)  # more of them

    def contender(self, parts: LoopParts, task: Task, *, seed: int) -> Contender:
        """Return the run."""
        return OwnProcesses(lambda folder: self._flags(parts, task, seed, folder))

    def mean_return(self, parts: LoopParts, task: Task, *, seed: int, steps: int) -> float | None:
        """Train to the end."""
        run = OwnProcesses(lambda folder: [*self._flags(parts, task, seed, folder), "--max-steps", str(steps)])
        try:
            return run.mean_return()
        finally:
            run.close()

    def _flags(self, parts: LoopParts, task: Task, seed: int, folder: Path) -> list[str]:
        own = {"topology": "async", "actor.sync-steps": str(self.sync_steps), "evaluator.every-minutes": "0"}
        more = [text for name, value in {**own, **self.flags}.items() for text in (f"--{name}", value)]
        return [*train_flags(parts, task, seed=seed, log_dir=folder), *more]


def _cycle_steps(parts: LoopParts) -> int:
    return STEPS_PER_UPDATE * parts.joined_updates

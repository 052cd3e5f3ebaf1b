"""Whoever takes part in the rounds: warmed up once, then at work for a turn at a time."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Protocol

import torch

from redline.envs.vector import EnvError
from redline.experience import ReplayError
from redline.runs.host import usable_cores
from redline.runtime.counters import Counters, Scores

SETTLE_STEPS = 100  # of learning: allocator and caches have seen every shape


class ContenderError(Exception):
    """A contender in a process of its own failed; the message holds what it said last."""


FAILURES = (ContenderError, EnvError, ReplayError)  # of one contender; the others can go on


@dataclass(frozen=True)
class Turn:
    """What was done in one turn."""

    seconds: float
    steps: int
    updates: int
    samples: int
    cpu_share: float  # of all usable cores, 0 … 1
    gpu_share: float | None = None  # 0 … 1; None where there is no GPU

    @property
    def steps_per_s(self) -> float:
        """Steps played per second."""
        return self.steps / self.seconds


class Contender(Protocol):
    """Trains whenever it is its turn, and rests meanwhile."""

    def warm_up(self) -> None:
        """Fill the replay and make the first updates."""
        ...

    def take_turn(self, seconds: float) -> Turn:
        """Train for about so long."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


class Training(Protocol):
    """A training in this process that can be advanced."""

    counters: Counters
    scores: Scores

    def vector_step(self) -> object:
        """Take one step in every lane, and learn what is due."""
        ...

    def close(self) -> None:
        """Give back what the parts hold."""
        ...


@dataclass
class InThisProcess:
    """A training that is advanced while it is its turn."""

    training: Training
    warmup_steps: int
    steps_per_update: int  # a turn holds whole cycles of playing and learning

    def warm_up(self) -> None:
        """Play until the first updates are made."""
        counters = self.training.counters
        while counters.steps < self.warmup_steps or counters.updates * self.steps_per_update < SETTLE_STEPS:
            self.training.vector_step()

    def take_turn(self, seconds: float) -> Turn:
        """Advance until the time is over and a cycle is complete."""
        counters = self.training.counters
        steps, updates, samples = counters.steps, counters.updates, counters.samples
        begin_s, begin_cpu_s = time.perf_counter(), time.process_time()
        while time.perf_counter() - begin_s < seconds or (counters.steps - steps) % self.steps_per_update:
            self.training.vector_step()
        gpu = gpu_share()  # waits for the device
        seconds, cpu_s = time.perf_counter() - begin_s, time.process_time() - begin_cpu_s
        return Turn(
            seconds=seconds,
            steps=counters.steps - steps,
            updates=counters.updates - updates,
            samples=counters.samples - samples,
            cpu_share=cpu_s / seconds / usable_cores(),
            gpu_share=gpu,
        )

    def close(self) -> None:
        """Close the training."""
        self.training.close()


def gpu_share() -> float | None:
    """Return how busy the GPU was in the last moments, once it has done all that was ordered."""
    if not torch.cuda.is_available():
        return None
    torch.cuda.synchronize()
    return torch.cuda.utilization() / 100.0


def in_one_line(error: Exception) -> str:
    """Return what an error says, for a table or a line of progress."""
    return " ".join(str(error).split())


def learn(training: Training, *, steps: int) -> float | None:
    """Train for so many steps and return the mean return of the last 100 episodes."""
    try:
        while training.counters.steps < steps:
            training.vector_step()
        return training.scores.mean
    finally:
        training.close()

"""A job: everything that decides what a run does."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from redline.algorithms.named.dqn import DQN
from redline.algorithms.on_policy import OnPolicy
from redline.algorithms.q_learning import QLearning
from redline.envs.config import EnvConfig
from redline.errors import UserError
from redline.recordings.tracing import RecordingConfig
from redline.runtime.limits import Limits
from redline.runtime.roles import ActorConfig, EvaluatorConfig, LearnerConfig
from redline.runtime.run_monitor import MonitorConfig

MOST_ACTORS = 128  # the learner has a descriptor of each, and a process is given 256 at most when it starts


@dataclass(frozen=True)
class Job:
    """What to train, on what, and until when."""

    env: EnvConfig = field(default_factory=EnvConfig)
    """The environment."""
    algorithm: Annotated[QLearning | OnPolicy, tyro.conf.arg(name="")] = DQN
    """The algorithm and its parts."""
    limits: Annotated[Limits, tyro.conf.arg(name="")] = field(default_factory=Limits)
    """When to stop."""
    topology: Literal["inline", "async"] = "inline"
    """Who runs where: inline, all by turns in one process, or async, actors, learner and evaluator in their own."""
    actors: int = 1
    """Processes that play (--topology async)."""
    actor: ActorConfig = field(default_factory=ActorConfig)
    """Each of those that play."""
    learner: LearnerConfig = field(default_factory=LearnerConfig)
    """The one that learns."""
    evaluator: EvaluatorConfig = field(default_factory=EvaluatorConfig)
    """The one that plays without exploration."""
    monitor: MonitorConfig = field(default_factory=MonitorConfig)
    """The one that watches the hardware."""
    recording: Annotated[RecordingConfig, tyro.conf.arg(name="")] = field(default_factory=RecordingConfig)
    """What is kept of every episode."""
    push: Literal["step", "chunk", "episode"] = "step"
    """What an actor hands over at once: each step, a chunk of steps or a whole episode (--topology async)."""
    pacing: Literal["held", "lockstep", "free"] = "held"
    """How actors and learner wait for each other: held keeps samples-per-step, lockstep takes turns, free never."""
    num_envs: int = 8
    """Environments played side by side, those of all actors together."""
    evaluate_every_steps: int = 0
    """Steps between two evaluations by the training process itself (0: none; --topology inline)."""
    anneal_at_return: float | None = None
    """Mean return of ten episodes at which learning rate and entropy weight begin to fall, before their after-steps."""
    seed: int = 1
    """Seed of the run: the same seed on the same host gives the same weights, bit for bit."""
    device: str = "auto"
    """Where every role computes that has no device of its own: auto, cpu, cuda or cuda:i."""
    log_dir: Path = Path("runs")
    """Folder that holds the run directories."""
    track: tuple[str, ...] = ()
    """Trackers that are told what the run's files are told: wandb, trackio, or those of installed packages."""
    checkpoint_minutes: float = 5.0
    """Minutes between checkpoints; one is also written at the start and at the end."""

    def __post_init__(self) -> None:
        if not 1 <= self.num_envs <= 1024:
            raise UserError(f"num-envs is {self.num_envs}: use 1 to 1024")
        if not 1 <= self.actors <= MOST_ACTORS:
            raise UserError(f"actors is {self.actors}: use 1 to {MOST_ACTORS}, and more --actor.envs")
        if self.evaluate_every_steps < 0:
            raise UserError(f"evaluate-every-steps is {self.evaluate_every_steps}: use 0 for none, or 1 or more")
        if self.anneal_at_return is not None and not math.isfinite(self.anneal_at_return):
            raise UserError(f"anneal-at-return is {self.anneal_at_return}: use a finite number")
        if not 0 <= self.seed < 2**31:
            raise UserError(f"seed is {self.seed}: use 0 to {2**31 - 1:_}")
        if not self.checkpoint_minutes > 0.0:
            raise UserError(f"checkpoint-minutes is {self.checkpoint_minutes}: use a number above 0")

"""A job: everything that decides what a run does."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from redline.algorithms.named.dqn import DQN
from redline.algorithms.on_policy import OnPolicy
from redline.algorithms.q_learning import QLearning
from redline.envs.config import EnvConfig
from redline.errors import UserError
from redline.runtime.limits import Limits
from redline.runtime.threads import Threads


@dataclass(frozen=True)
class Job:
    """What to train, on what, and until when."""

    env: EnvConfig = field(default_factory=EnvConfig)
    """The environment."""
    algorithm: Annotated[QLearning | OnPolicy, tyro.conf.arg(name="")] = DQN
    """The algorithm and its parts."""
    limits: Annotated[Limits, tyro.conf.arg(name="")] = field(default_factory=Limits)
    """When to stop."""
    threads: Threads = field(default_factory=Threads)
    """Threads for each kind of work."""
    num_envs: int = 8
    """Environments played side by side."""
    seed: int = 1
    """Seed of the run: the same seed on the same host gives the same weights, bit for bit."""
    device: str = "auto"
    """Where the learner computes: auto, cpu, cuda or cuda:i."""
    log_dir: Path = Path("runs")
    """Folder that holds the run directories."""
    checkpoint_minutes: float = 5.0
    """Minutes between checkpoints; one is also written at the start and at the end."""

    def __post_init__(self) -> None:
        if not 1 <= self.num_envs <= 1024:
            raise UserError(f"num-envs is {self.num_envs}: use 1 to 1024")
        if not 0 <= self.seed < 2**31:
            raise UserError(f"seed is {self.seed}: use 0 to {2**31 - 1:_}")
        if not self.checkpoint_minutes > 0.0:
            raise UserError(f"checkpoint-minutes is {self.checkpoint_minutes}: use a number above 0")

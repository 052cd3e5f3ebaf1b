"""The textbook's DQN loop, with parts that can be exchanged one at a time; a rung of the ladder is a process of it.

As in textbooks: act ε-greedily, step, store, and every four steps learn from 32 transitions with the Huber loss, a
target network and Adam. `plain_loop.py RUNG TASK SEED FOLDER` trains until it is stopped and writes readings into
metrics.jsonl; with a number of steps, and perhaps a return, it trains for so many, or until that is reached, and prints
the mean return of the last 100 episodes.
"""

from __future__ import annotations

import copy
import json
import math
import sys
import time
from collections import deque
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  the name every PyTorch reader knows

from plain_parts import (
    BATCH_SIZE,
    CLIPPING,
    LIFE_LOSS,
    STEPS_PER_UPDATE,
    FrameReplay,
    NativeEnv,
    Replay,
    StackReplay,
    WrappedEnv,
)
from redline.bench.measuring import own_cpu_s
from redline.exploration import epsilon_greedy
from redline.jsonl import RecordWriter
from redline.runs.host import usable_cores
from redline.runtime.building import keep_freed_memory
from redline.schedules import Linear
from redline.types import Array, IntArray

ADAM_EPS = 1.5e-4
EPSILON_END = 0.01
READING_INTERVAL_S = 1.0


@dataclass(frozen=True)
class Task:
    """A game, and the numbers with which a DQN learns it."""

    env: str
    network: str  # its name in Redline
    convolutions: tuple[tuple[int, int, int], ...]  # of the same network: channels, kernel, stride
    width: int  # of its dense layer
    lr: float
    warmup_steps: int
    capacity: int  # transitions
    target_sync_steps: int
    epsilon_over_steps: int


TASKS = {
    # ε is low as soon as the warm-up is over, so that the network acts as in nearly all of a training
    "pong": Task(
        env="PongNoFrameskip-v4",
        network="nature",
        convolutions=((32, 8, 4), (64, 4, 2), (64, 3, 1)),
        width=512,
        lr=1e-4,
        warmup_steps=1_000,
        capacity=4_000,
        target_sync_steps=4_000,
        epsilon_over_steps=1_000,
    ),
    # a game of Catch takes 11 steps, so its numbers are smaller
    "catch": Task(
        env="redline/Catch-v0",
        network="small",
        convolutions=((16, 8, 4), (32, 4, 2)),
        width=256,
        lr=5e-4,
        warmup_steps=500,
        capacity=10_000,
        target_sync_steps=400,
        epsilon_over_steps=2_500,
    ),
}


@dataclass(frozen=True)
class LoopParts:
    """What a rung can exchange; the defaults are the textbook's."""

    num_envs: int = 0  # of Redline's vector env; 0: one env behind Gymnasium's wrappers
    wrappers: tuple[str, ...] = (LIFE_LOSS, CLIPPING)  # beside those without which nothing can be learnt
    is_overlapped: bool = False  # learns while the envs step
    memory_format: torch.memory_format = torch.contiguous_format
    optimizer: dict[str, Any] = field(default_factory=dict)  # options of Adam
    codec: str | None = None  # of Redline's replay memory; None: whole stacks are copied
    prefetch: int = 0


TEXTBOOK = LoopParts()
NATIVE_8 = LoopParts(num_envs=8)
FAST = replace(NATIVE_8, is_overlapped=True, memory_format=torch.channels_last)
FUSED = replace(FAST, optimizer={"fused": True})
LOOPS = {
    "textbook": TEXTBOOK,
    "native-env": LoopParts(num_envs=1),
    "envs-8": NATIVE_8,
    "overlapped": replace(NATIVE_8, is_overlapped=True),
    "channels-last": FAST,
    "fused-adam": FUSED,
    "frames-once": replace(FUSED, codec="raw"),
    "zstd": replace(FUSED, codec="zstd"),
    "prefetch": replace(FUSED, codec="zstd", prefetch=1),
    "no-life-loss": replace(TEXTBOOK, wrappers=(CLIPPING,)),
    "no-clipping": replace(TEXTBOOK, wrappers=()),
}


class PlainNetwork(nn.Module):
    """Convolutions, a dense layer and a value for each action, as PyTorch initialises them."""

    def __init__(self, task: Task, obs: Array, num_actions: int, memory_format: torch.memory_format) -> None:
        super().__init__()
        channels, layers = obs.shape[1], list[nn.Module]()
        for channels_out, kernel, stride in task.convolutions:
            layers += [nn.Conv2d(channels, channels_out, kernel, stride), nn.ReLU()]
            channels = channels_out
        self.features = nn.Sequential(*layers, nn.Flatten())
        with torch.no_grad():
            num_features = self.features(torch.zeros(1, *obs.shape[1:])).shape[1]
        self.values = nn.Sequential(nn.Linear(num_features, task.width), nn.ReLU(), nn.Linear(task.width, num_actions))
        self._memory_format = memory_format
        self.to(memory_format=memory_format)  # type: ignore[call-overload]

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        pixels = obs.to(torch.float32, memory_format=self._memory_format) / 255.0
        values: torch.Tensor = self.values(self.features(pixels))
        return values  # [B, A]


class PlainLoop:
    """The parts at work, and what they have done so far."""

    def __init__(self, parts: LoopParts, task: Task, *, seed: int) -> None:
        self._task, self._is_overlapped = task, parts.is_overlapped
        self._rng = np.random.default_rng(seed)
        self._env = (
            NativeEnv(task.env, num_envs=parts.num_envs, seed=seed)
            if parts.num_envs
            else WrappedEnv(task.env, parts.wrappers, seed=seed)
        )
        self._obs = self._env.reset()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self._online = PlainNetwork(task, self._obs, self._env.num_actions, parts.memory_format)
        self._target = copy.deepcopy(self._online).requires_grad_(False)
        self._optimizer = torch.optim.Adam(self._online.parameters(), lr=task.lr, eps=ADAM_EPS, **parts.optimizer)
        self._replay: Replay = (
            StackReplay(self._obs, task.capacity)
            if parts.codec is None
            else FrameReplay(self._obs, task.capacity, codec=parts.codec, prefetch=parts.prefetch)
        )
        self._epsilon = Linear(1.0, EPSILON_END, over_steps=task.epsilon_over_steps)
        self._owed_steps = 0  # played and not yet learnt from
        self.steps = self.updates = 0
        self.returns: deque[float] = deque(maxlen=100)

    @property
    def mean_return(self) -> float:
        """Return the mean of the last 100 episodes, −1 before any."""
        return sum(self.returns) / len(self.returns) if self.returns else -1.0

    @property
    def is_full(self) -> bool:
        """Whether 100 episodes have ended."""
        return len(self.returns) == self.returns.maxlen

    def vector_step(self) -> None:
        """Take one step in every lane, and learn what is due."""
        actions = self._choose()
        self._env.send(actions)
        if self._is_overlapped:
            self._learn_due()
        step = self._env.recv()
        self._replay.add(self._obs, actions, step)
        self._obs = step.next_obs
        self.returns.extend(step.returns)
        self.steps += len(actions)
        if self.steps > self._task.warmup_steps:
            self._owed_steps += len(actions)
        if not self._is_overlapped:
            self._learn_due()

    def _choose(self) -> IntArray:
        num_actions = self._env.num_actions
        if self.steps < self._task.warmup_steps:
            return self._rng.integers(num_actions, size=len(self._obs))
        with torch.no_grad():
            greedy = self._online(torch.from_numpy(self._obs)).argmax(dim=1).numpy()
        return epsilon_greedy(greedy, epsilon=self._epsilon.at(self.steps), num_actions=num_actions, rng=self._rng)

    def _learn_due(self) -> None:
        while self._owed_steps >= STEPS_PER_UPDATE:
            self._owed_steps -= STEPS_PER_UPDATE
            self._update()

    def _update(self) -> None:
        batch = self._replay.next_batch(self._rng)
        with torch.no_grad():
            following = self._target(batch.next_state).amax(dim=1)  # [B]
        predicted = self._online(batch.state).gather(1, batch.action[:, None]).squeeze(1)  # [B]
        loss = F.smooth_l1_loss(predicted, batch.reward + batch.discount * following)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self.updates += 1
        if self.updates % (self._task.target_sync_steps // STEPS_PER_UPDATE) == 0:
            self._target.load_state_dict(self._online.state_dict())


def write_readings(loop: PlainLoop, folder: Path) -> None:
    """Train until the process is ended, and write a reading every second."""
    begun_s, read_s, cpu_s = time.monotonic(), 0.0, own_cpu_s()
    with RecordWriter(folder / "metrics.jsonl") as metrics:
        while True:
            loop.vector_step()
            now_s = time.monotonic() - begun_s
            if now_s < read_s + READING_INTERVAL_S:
                continue
            spent_s, cpu_s = own_cpu_s() - cpu_s, own_cpu_s()
            reading = {"time_s": now_s, "steps": loop.steps, "updates": loop.updates}
            reading |= {"samples": loop.updates * BATCH_SIZE, "cpu_percent": 100 * spent_s / (now_s - read_s)}
            metrics.write(reading)
            read_s = now_s


def main() -> None:
    """Train a rung, endlessly, for so many steps, or until it has learnt."""
    rung, task, seed, folder, *limits = sys.argv[1:]
    # what Redline sets once per process, so that a rung differs in nothing else
    keep_freed_memory()
    torch.set_flush_denormal(True)
    torch.set_num_threads(usable_cores())
    loop = PlainLoop(LOOPS[rung], TASKS[task], seed=int(seed))
    if not limits:
        write_readings(loop, Path(folder))
    target = float(limits[1]) if len(limits) > 1 else math.inf
    while loop.steps < int(limits[0]) and not (loop.is_full and loop.mean_return >= target):
        loop.vector_step()
    print(json.dumps({"mean_return_100": loop.mean_return, "steps": loop.steps}, allow_nan=False), flush=True)


if __name__ == "__main__":
    main()

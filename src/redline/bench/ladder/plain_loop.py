"""The textbook's DQN loop, with parts that can be exchanged one at a time.

As textbooks have it: act ε-greedily, step, keep, and every four steps learn from 32 transitions with the Huber loss, a
target network and Adam.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  the name every PyTorch reader knows

from redline.bench.ladder.devices import DevicePart, OnHost
from redline.bench.ladder.env_parts import EnvPart, Wrapped
from redline.bench.ladder.replay_parts import ReplayPart, Room, Stacks
from redline.bench.ladder.task import ADAM_EPS, BATCH_SIZE, EPSILON_END, STEPS_PER_UPDATE, Task
from redline.exploration import epsilon_greedy
from redline.runtime.counters import Counters, Scores
from redline.schedules import Linear
from redline.types import Array, IntArray

OptimizerPart = Callable[[Iterable[nn.Parameter], float], torch.optim.Optimizer]  # from parameters and learning rate


class Stepping(Enum):
    """When the loop learns."""

    BY_TURNS = "once the envs have stepped"
    OVERLAPPED = "while the envs step"


def default_adam(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    """Return Adam as PyTorch makes it if nothing else is asked for."""
    return torch.optim.Adam(parameters, lr=lr, eps=ADAM_EPS)


def fused_adam(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    """Return Adam in one pass over the parameters."""
    return torch.optim.Adam(parameters, lr=lr, eps=ADAM_EPS, fused=True)


@dataclass(frozen=True)
class LoopParts:
    """What a rung can exchange in the plain loop; as it is, the textbook's."""

    env: EnvPart = field(default_factory=Wrapped)
    stepping: Stepping = Stepping.BY_TURNS
    memory_format: torch.memory_format = torch.contiguous_format
    optimizer: OptimizerPart = default_adam
    replay: ReplayPart = field(default_factory=Stacks)
    device: DevicePart = field(default_factory=OnHost)
    joined_updates: int = 1  # that many updates are one, of as many times the rows


class PlainNetwork(nn.Module):
    """Convolutions, a dense layer and a value for each action, as PyTorch initialises them."""

    def __init__(
        self,
        convolutions: Sequence[tuple[int, int, int]],
        *,
        obs_shape: Sequence[int],  # [N, K, *frame]
        width: int,
        num_actions: int,
        memory_format: torch.memory_format,
    ) -> None:
        super().__init__()
        channels, layers = obs_shape[1], list[nn.Module]()
        for channels_out, kernel, stride in convolutions:
            layers += [nn.Conv2d(channels, channels_out, kernel, stride), nn.ReLU()]
            channels = channels_out
        self.features = nn.Sequential(*layers, nn.Flatten())
        with torch.no_grad():
            num_features = self.features(torch.zeros(1, *obs_shape[1:])).shape[1]
        self.values = nn.Sequential(nn.Linear(num_features, width), nn.ReLU(), nn.Linear(width, num_actions))
        self._memory_format = memory_format
        self.to(memory_format=memory_format)  # type: ignore[call-overload]

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        pixels = obs.to(torch.float32, memory_format=self._memory_format) / 255.0
        values: torch.Tensor = self.values(self.features(pixels))
        return values  # [B, A]


class PlainLoop:
    """The parts at work, and what they have done so far."""

    def __init__(self, parts: LoopParts, task: Task, *, seed: int) -> None:
        self._parts, self._task = parts, task
        self._rng = np.random.default_rng(seed)
        self._env = parts.env.make(task.env, seed=seed)
        self._obs = self._env.reset()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = PlainNetwork(
                task.convolutions,
                obs_shape=self._obs.shape,
                width=task.width,
                num_actions=self._env.num_actions,
                memory_format=parts.memory_format,
            )
        self._online = network.to(parts.device.device)
        self._target = copy.deepcopy(self._online).requires_grad_(False)
        self._optimizer = parts.optimizer(self._online.parameters(), task.lr)
        self._batch_size = BATCH_SIZE * parts.joined_updates
        self._replay = parts.replay.make(
            Room(
                obs_shape=self._obs.shape,
                capacity=task.capacity,
                batch_size=self._batch_size,
                pin_memory=parts.device.pins_memory,
            )
        )
        self._replay.begin(self._obs)
        self._carry = parts.device.carrier()
        self._epsilon = Linear(1.0, EPSILON_END, over_steps=task.epsilon_over_steps)
        self._owed_steps = 0  # played and not yet learnt from
        self.counters = Counters()
        self.scores = Scores()

    def vector_step(self) -> None:
        """Take one step in every lane, and learn what is due."""
        actions = self._choose(self._obs)
        self._env.send(actions)
        if self._parts.stepping is Stepping.OVERLAPPED:
            self._learn_due()
        step = self._env.recv()
        self._replay.add(self._obs, actions, step)
        self._obs = step.next_obs
        for total in step.returns:
            self.scores.add(total, time_s=self.counters.time_s)
        self.counters.steps += len(actions)
        self.counters.vector_steps += 1
        if self.counters.steps > self._task.warmup_steps:
            self._owed_steps += len(actions)
        if self._parts.stepping is Stepping.BY_TURNS:
            self._learn_due()

    def close(self) -> None:
        """Give back what the parts hold."""
        self._replay.close()
        self._env.close()

    def _choose(self, obs: Array) -> IntArray:
        num_actions = self._env.num_actions
        if self.counters.steps < self._task.warmup_steps:
            return self._rng.integers(num_actions, size=len(obs))
        with torch.no_grad():
            values = self._online(torch.from_numpy(obs).to(self._parts.device.device))
        greedy = values.argmax(dim=1).cpu().numpy()
        epsilon = self._epsilon.at(self.counters.steps)
        return epsilon_greedy(greedy, epsilon=epsilon, num_actions=num_actions, rng=self._rng)

    def _learn_due(self) -> None:
        steps_per_update = STEPS_PER_UPDATE * self._parts.joined_updates
        while self._owed_steps >= steps_per_update:
            self._owed_steps -= steps_per_update
            self._update()

    def _update(self) -> None:
        batch = self._carry(self._replay.next_batch(self._rng)).cut()
        with torch.no_grad():
            following = self._target(batch.next_state).amax(dim=1)  # [B]
        predicted = self._online(batch.state).gather(1, batch.action[:, None]).squeeze(1)  # [B]
        loss = F.smooth_l1_loss(predicted, batch.reward + batch.discount * following)
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self.counters.updates += 1
        self.counters.samples += self._batch_size
        if self.counters.updates % self._task.target_sync_updates(self._parts.joined_updates) == 0:
            self._target.load_state_dict(self._online.state_dict())

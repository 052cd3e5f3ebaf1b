"""The family of value learners with a replay memory: what is computed, whatever the parts are."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch

from redline.algorithms.parts import (
    Adam,
    Bootstrap,
    Expected,
    Prediction,
    Sampling,
    TargetChooses,
    Uniform,
    take_actions,
)
from redline.errors import UserError
from redline.experience import ReplayConfig
from redline.exploration import EpsilonGreedy, epsilon_greedy
from redline.networks import Nature, Torso, ValueNetwork
from redline.returns import NStep
from redline.types import Array, Batch, FloatArray, IntArray


@dataclass(frozen=True)
class QLearning:
    """A value learner: independent parts, and the numbers that pace them."""

    network: Torso = field(default_factory=Nature)
    """The part of the network that sees the observation."""
    predict: Prediction = field(default_factory=Expected)
    """What is predicted for each action."""
    bootstrap: Bootstrap = field(default_factory=TargetChooses)
    """How the next state is valued."""
    returns: NStep = field(default_factory=NStep)
    """What a transition is worth."""
    explore: EpsilonGreedy = field(default_factory=EpsilonGreedy)
    """How the actor explores."""
    optimizer: Adam = field(default_factory=Adam)
    """What moves the weights."""
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    """The replay memory."""
    sample: Sampling = field(default_factory=Uniform)
    """Which transitions an update learns from."""
    batch_size: int = 32
    """Transitions in one update."""
    samples_per_step: float = 8.0
    """Transitions learnt from per step played: 8 with batches of 32 is one update per 4 steps."""
    warmup_steps: int = 10_000
    """Steps played at random before the first update."""
    target_sync_updates: int = 1_000
    """Updates between two copies of the online network into the target network."""

    def __post_init__(self) -> None:
        if not 1 <= self.batch_size <= 65_536:
            raise UserError(f"batch-size is {self.batch_size}: use 1 to 65_536 transitions")
        if not 0.0 < self.samples_per_step <= 4096.0:
            raise UserError(f"samples-per-step is {self.samples_per_step}: use a number above 0, up to 4096")
        if self.warmup_steps < 1:
            raise UserError(f"warmup-steps is {self.warmup_steps}, but learning needs at least 1 step to draw from")
        if self.target_sync_updates < 1:
            raise UserError(f"target-sync-updates is {self.target_sync_updates}: use 1 or more")


class ActorParams(NamedTuple):
    """What acting depends on: a network's weights, and how random it is at this step."""

    network: ValueNetwork
    predict: Prediction
    epsilon: float
    device: torch.device


class ActorExtras(NamedTuple):
    """What acting computed besides the action."""

    values: FloatArray | None  # [N, A]; None where no network was asked


def act(params: ActorParams, obs: Array, state: None, rng: np.random.Generator) -> tuple[IntArray, None, ActorExtras]:
    """Choose an action for each observation [N, K, *frame]; `state` is the recurrent state, if any."""
    num_actions = params.network.shape[0]
    if params.epsilon >= 1.0:  # the warm-up: nothing that the network says would be used
        return rng.integers(num_actions, size=len(obs)), state, ActorExtras(None)
    with torch.no_grad():
        values = params.predict.values(params.network(torch.from_numpy(obs).to(params.device)))  # [N, A]
    host = values.cpu().numpy()
    action = epsilon_greedy(host.argmax(axis=1), epsilon=params.epsilon, num_actions=num_actions, rng=rng)
    return action, state, ActorExtras(host)


def td_losses(
    algorithm: QLearning, batch: Batch, *, stack: int, online: ValueNetwork, target: ValueNetwork
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return one loss and one priority per row; the one place where bootstrap and prediction meet."""
    with torch.no_grad():
        next_frames = following_frames(batch, stack)
        following = algorithm.bootstrap.following(next_frames, online, target, algorithm.predict)
    predicted = take_actions(online(batch.frames[:, :stack]), batch.action)  # [B, outputs]
    return algorithm.predict.losses(predicted, following, batch.reward, batch.discount)


def following_frames(batch: Batch, stack: int) -> torch.Tensor:
    """Cut the observation that follows: frames[b, offset[b] : offset[b] + K], [B, K, *frame]."""
    longest = batch.frames.shape[1] - stack
    if longest == 1:  # one-step returns: every offset is 1, and a view costs nothing
        return batch.frames[:, 1:]
    index = batch.offset[:, None] + torch.arange(stack, device=batch.offset.device)  # [B, K]
    rows = torch.arange(len(index), device=index.device)[:, None]
    return batch.frames[rows, index]

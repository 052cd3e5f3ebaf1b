"""The family of value learners with a replay memory, for any parts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import torch

from redline.algorithms.optimizers import Adam, Optimizer
from redline.algorithms.predictions import Bootstrap, Expected, Prediction, TargetChooses, best_values, take_actions
from redline.errors import UserError, check_range
from redline.exploration import EpsilonGreedy, Exploration, Greedy, Sampled
from redline.networks import (
    Core,
    Layers,
    Memoryless,
    Nature,
    Network,
    Plain,
    Single,
    Streams,
    Torso,
    build_value_network,
)
from redline.replay import ReplayConfig
from redline.replay.sampler import Sampling, Uniform
from redline.returns import NStep
from redline.types import Adjustment, AnyBatch, Batch, EnvSpec, SequenceBatch

MAX_SHARE = 0.9  # of the largest error in a sequence's priority, the rest is the mean (R2D2's η)


@dataclass(frozen=True)
class QLearning:
    """A value learner: independent parts, and the settings that pace them."""

    family: ClassVar[str] = "q-learning"

    network: Torso = field(default_factory=Nature)
    """The part of the network that reads the observation."""
    layers: Layers = field(default_factory=Plain)
    """How the network's layers are made."""
    core: Core = field(default_factory=Memoryless)
    """What the network remembers."""
    streams: Streams = field(default_factory=Single)
    """The head of the network."""
    predict: Prediction = field(default_factory=Expected)
    """What is predicted for each action."""
    bootstrap: Bootstrap = field(default_factory=TargetChooses)
    """How the next state is valued."""
    explore: Exploration = field(default_factory=EpsilonGreedy)
    """How the actor explores."""
    optimizer: Optimizer = field(default_factory=Adam)
    """The optimiser."""
    sample: Sampling = field(default_factory=Uniform)
    """Which transitions an update learns from."""
    returns: NStep = field(default_factory=NStep)
    """The return of a transition: n steps, discount, clipping."""
    replay: ReplayConfig = field(default_factory=ReplayConfig)
    """The replay memory."""
    batch_size: int = 32
    """Transitions in one update."""
    samples_per_step: float = 8.0
    """Replay ratio: transitions trained per step. 8 with batches of 32 is one update per 4 steps."""
    warmup_steps: int = 10_000
    """Steps with random actions before the first update."""
    target_sync_updates: int = 1_000
    """Updates between two copies of the online network into the target network."""

    def __post_init__(self) -> None:
        check_range("batch-size", self.batch_size, 1, 65_536)
        if not 0.0 < self.samples_per_step <= 4096.0:
            raise UserError(f"samples-per-step is {self.samples_per_step}: use a number above 0, up to 4096")
        if self.warmup_steps < 1:
            raise UserError(f"warmup-steps is {self.warmup_steps}, but learning needs at least 1 step to draw from")
        check_range("target-sync-updates", self.target_sync_updates, 1)
        if isinstance(self.explore, Sampled):
            raise UserError("values are not a policy to sample from: use --explore epsilon-greedy or greedy")
        if isinstance(self.explore, Greedy) and not self.layers.explore():
            raise UserError("nothing would explore: use --explore epsilon-greedy, or --layers noisy with greedy")

    def whole_batches(self, num_envs: int) -> tuple[Self, list[Adjustment]]:
        """Choose a batch size of whole sequences, if the network learns from sequences."""
        sequence, asked = self.core.sequence(), self.batch_size
        if sequence is None or asked % sequence.length_steps == 0:
            return self, []
        size = max(1, asked // sequence.length_steps) * sequence.length_steps
        why = f"whole sequences of {sequence.length_steps} steps"
        return replace(self, batch_size=size), [Adjustment("batch-size", str(asked), str(size), why)]

    def updates_per_vector_step(self, num_envs: int) -> float:
        """Return the updates per vector step that give the replay ratio."""
        return num_envs * self.samples_per_step / self.batch_size

    def search_space(self) -> str:
        """Return the name of the family's search space in `redline tune`."""
        return "replay"

    def paces(self) -> Mapping[str, float]:
        """Return the settings that pace learning."""
        return {
            "samples_per_step": self.samples_per_step,
            "warmup_steps": self.warmup_steps,
            "target_sync_updates": self.target_sync_updates,
            "replay_capacity": self.replay.capacity,
            "n": self.returns.n,
        }

    def annealed_from(self) -> int:
        """Return the step at which the learning rate begins to fall."""
        return self.optimizer.annealed_from()

    def build_network(self, spec: EnvSpec, generator: torch.Generator) -> Network:
        """Return the network with its initial weights."""
        return build_value_network(
            self.network,
            spec,
            outputs=self.predict.num_outputs(),
            generator=generator,
            core=self.core,
            streams=self.streams,
            layers=self.layers,
        )

    def preferences(self, out: torch.Tensor) -> torch.Tensor:
        """Return expected values [N, A]."""
        return self.predict.values(out)

    def precompute_targets(
        self, batches: Sequence[AnyBatch], *, stack: int, target: Network
    ) -> Sequence[torch.Tensor | None]:
        """Return the target network's predictions [B, A, outputs] of the next states in each batch, in one pass.

        None for sequences, which need one pass per step, and for a noisy target, whose noise is new at each update.
        """
        single = [batch for batch in batches if isinstance(batch, Batch)]
        if len(single) < len(batches) or len(batches) < 2 or target.is_noisy:
            return [None] * len(batches)
        with torch.no_grad():
            out: torch.Tensor = target(torch.cat([following_frames(batch, stack) for batch in single]))
        return out.split_with_sizes([len(batch.action) for batch in single])

    def losses(
        self,
        batch: AnyBatch,
        *,
        stack: int,
        online: Network,
        target: Network,
        precomputed: torch.Tensor | None = None,
        steps: int = 0,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return losses and weights [B] or [length, B], and a priority for each row drawn [B]."""
        if isinstance(batch, SequenceBatch):
            return sequence_losses(self, batch, stack=stack, online=online, target=target)
        if not isinstance(batch, Batch):
            raise TypeError(f"value learners learn from replay, not from a {type(batch).__name__}")
        losses, priorities = td_losses(self, batch, stack=stack, online=online, target=target, precomputed=precomputed)
        return losses, batch.weight, priorities

    def diagnose(
        self, batch: AnyBatch, *, stack: int, online: Network, priorities: torch.Tensor
    ) -> Mapping[str, torch.Tensor]:
        """Return the TD error (the loss, if a distribution is predicted), and the values of the best actions."""
        found = {"td_error": priorities.mean()}
        if isinstance(batch, Batch):  # sequences would need another pass
            found |= best_values(self.preferences(online(batch.frames[:, :stack])))
        return found


def td_losses(
    algorithm: QLearning,
    batch: Batch,
    *,
    stack: int,
    online: Network,
    target: Network,
    precomputed: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return one loss and one priority per row; the one place where bootstrap and prediction meet."""
    with torch.no_grad():
        next_frames = following_frames(batch, stack)
        following = algorithm.bootstrap.following(
            online=lambda: online(next_frames),
            target=lambda: target(next_frames) if precomputed is None else precomputed,
            predict=algorithm.predict,
        )
    predicted = take_actions(online(batch.frames[:, :stack]), batch.action)  # [B, outputs]
    return algorithm.predict.losses(predicted, following, batch.reward, batch.discount)


def following_frames(batch: Batch, stack: int) -> torch.Tensor:
    """Cut out the next observation: frames[b, offset[b] : offset[b] + K], [B, K, *frame]."""
    longest = batch.frames.shape[1] - stack
    if longest == 1:  # one-step returns: every offset is 1, and a view costs nothing
        return batch.frames[:, 1:]
    index = batch.offset[:, None] + torch.arange(stack, device=batch.offset.device)  # [B, K]
    rows = torch.arange(len(index), device=index.device)[:, None]
    return batch.frames[rows, index]


def sequence_losses(
    algorithm: QLearning, batch: SequenceBatch, *, stack: int, online: Network, target: Network
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return losses and weights [length, B] of the steps after the burn-in, and a priority per sequence [B]."""
    sequence = algorithm.core.sequence()
    if sequence is None:
        raise ValueError("learning from sequences needs a core that remembers: use --core gru")
    burn_in, (steps, rows) = sequence.burn_in_steps, batch.action.shape
    obs = observations(batch.frames, stack)  # [T + n, B, K, *frame]
    starts = torch.cat([batch.starts, batch.starts.new_zeros(len(obs) - steps, rows)])
    learnt = steps - burn_in

    def warm(network: Network) -> torch.Tensor | None:
        with torch.no_grad():
            return network.unroll(obs[:burn_in], starts[:burn_in])[1] if burn_in else None

    def predict_following(network: Network) -> torch.Tensor:
        out, _ = network.unroll(obs[burn_in:], starts[burn_in:], warm(network))
        out = out.view(-1, rows, *out.shape[1:])  # [length + n, B, A, outputs]
        at = torch.arange(learnt, device=out.device)[:, None] + batch.offset[burn_in:]  # [length, B]
        return out[at, torch.arange(rows, device=out.device)].flatten(0, 1)  # [length · B, A, outputs]

    with torch.no_grad():
        following = algorithm.bootstrap.following(
            online=lambda: predict_following(online),
            target=lambda: predict_following(target),
            predict=algorithm.predict,
        )
    out, _ = online.unroll(obs[burn_in:steps], starts[burn_in:steps], warm(online))
    reward, discount, action = (part[burn_in:].flatten() for part in (batch.reward, batch.discount, batch.action))
    losses, priorities = algorithm.predict.losses(take_actions(out, action), following, reward, discount)
    weight = batch.weight[burn_in:]
    return losses.view(learnt, rows), weight, sequence_priorities(priorities.view(learnt, rows), weight > 0.0)


def observations(frames: torch.Tensor, stack: int) -> torch.Tensor:
    """Cut frames [B, K − 1 + T, *frame] into observations [T, B, K, *frame]."""
    return frames.unfold(1, stack, 1).movedim(-1, 2).transpose(0, 1)


def sequence_priorities(priorities: torch.Tensor, is_learnt: torch.Tensor) -> torch.Tensor:
    """Return one priority per sequence [B] from those of its steps [T, B]: between the largest and the mean."""
    sizes = priorities * is_learnt
    mean = sizes.sum(0) / is_learnt.sum(0).clamp(min=1)
    return MAX_SHARE * sizes.amax(0) + (1.0 - MAX_SHARE) * mean

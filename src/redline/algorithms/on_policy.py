"""The family of learners from rollouts: each rollout is played with the newest weights, learnt from, then dropped.

Its objectives say what is learnt from a rollout: a policy and a value, or action values.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal, Protocol, Self, runtime_checkable

import torch

from redline.algorithms.optimizers import Optimizer, Rmsprop
from redline.algorithms.predictions import Expected, best_values, take_actions
from redline.errors import UserError, check_positive, check_range, kind_name
from redline.exploration import EpsilonGreedy, Exploration, Sampled
from redline.losses import clipped_surrogate, entropy, normalised
from redline.networks import Layers, Nature, Network, Plain, Torso, build_policy_network, build_value_network
from redline.replay import ReplayConfig
from redline.returns import Traces, generalised_advantages, lambda_returns
from redline.schedules import Linear
from redline.types import Adjustment, AnyBatch, EnvSpec, FloatArray, Rollout, RolloutBatch


@runtime_checkable
class Objective(Protocol):
    """The targets computed from a rollout, and the loss."""

    def explorations(self) -> tuple[type[Exploration], ...]:
        """The ways to explore that suit the network's outputs."""

    def build_network(self, torso: Torso, layers: Layers, spec: EnvSpec, generator: torch.Generator) -> Network:
        """Return the network with its initial weights."""

    def preferences(self, out: torch.Tensor) -> torch.Tensor:
        """Turn the network's outputs into preferences [N, A]."""

    def state_values(self, out: torch.Tensor) -> torch.Tensor:
        """Turn the network's outputs into the value of each state [N]."""

    def targets(self, rollout: Rollout) -> tuple[FloatArray, FloatArray]:
        """Return the advantages and the values to fit, each [T, N]."""

    def annealed_from(self) -> int:
        """Return the step at which a weight of the loss begins to fall; 0 if none does."""
        return 0

    def search_space(self) -> str:
        """Return the name of its search space in `redline tune`."""
        return "policy"

    def losses(self, out: torch.Tensor, batch: RolloutBatch, *, steps: int = 0) -> torch.Tensor:
        """Return a loss [B] for each row, after `steps` steps."""

    def diagnose(self, out: torch.Tensor, batch: RolloutBatch) -> dict[str, torch.Tensor]:
        """Return diagnostics of learning: here, the share of the returns' variance that the values explain."""
        error = (self.state_values(out) - batch.target).var(correction=0)
        return {"explained_variance": 1.0 - error / batch.target.var(correction=0)}  # left out where nothing varies


@dataclass(frozen=True, kw_only=True)
class ActorCritic(Objective):
    """An objective with a policy and a value."""

    entropy_weight: float = 0.01
    """Weight of the policy's entropy: more keeps it exploring longer."""
    entropy_anneal_steps: int = 0
    """Steps over which that weight falls to 0; 0: it stays."""
    entropy_anneal_after_steps: int = 0
    """Steps before it begins to fall."""
    value_weight: float = 0.5
    """Weight of the squared error of the value."""

    def entropy_weight_at(self, steps: int) -> float:
        """Return the weight of the policy's entropy after `steps` steps."""
        if not self.entropy_anneal_steps:
            return self.entropy_weight
        return Linear(self.entropy_weight, 0.0, self.entropy_anneal_steps, self.entropy_anneal_after_steps).at(steps)

    def annealed_from(self) -> int:
        return self.entropy_anneal_after_steps if self.entropy_anneal_steps else 0

    def __post_init__(self) -> None:
        for name, weight in (("entropy-weight", self.entropy_weight), ("value-weight", self.value_weight)):
            if not 0.0 <= weight < math.inf:
                raise UserError(f"objective.{name} is {weight}: use a finite number, 0 or more")
        never = "1 or more, or 0 for never"
        check_range("objective.entropy-anneal-steps", self.entropy_anneal_steps, 0, use=never)
        check_range("objective.entropy-anneal-after-steps", self.entropy_anneal_after_steps, 0)

    def explorations(self) -> tuple[type[Exploration], ...]:
        return (Sampled,)

    def build_network(self, torso: Torso, layers: Layers, spec: EnvSpec, generator: torch.Generator) -> Network:
        return build_policy_network(torso, spec, layers=layers, generator=generator)

    def preferences(self, out: torch.Tensor) -> torch.Tensor:
        return out[:, :-1]  # [N, A] logits

    def state_values(self, out: torch.Tensor) -> torch.Tensor:
        return out[:, -1]  # [N]

    def targets(self, rollout: Rollout) -> tuple[FloatArray, FloatArray]:
        advantage = generalised_advantages(
            rollout.reward, rollout.value, rollout.following, rollout.discount, rollout.trace
        )
        return advantage, advantage + rollout.value


@dataclass(frozen=True)
class PolicyGradient(ActorCritic):
    """Advantage actor-critic: log π · advantage, with an entropy bonus and a squared value error (1602.01783)."""

    normalise: Literal["never", "update"] = "never"
    """Normalise advantages over the rows of each update: the policy's step no longer grows with the rewards."""

    def losses(self, out: torch.Tensor, batch: RolloutBatch, *, steps: int = 0) -> torch.Tensor:
        log_policy = self.preferences(out).log_softmax(1)  # [B, A]
        advantage = normalised(batch.advantage) if self.normalise == "update" else batch.advantage
        gain = log_policy.gather(1, batch.action[:, None]).squeeze(1) * advantage
        value_error = (self.state_values(out) - batch.target).square()
        return self.value_weight * value_error - gain - self.entropy_weight_at(steps) * entropy(log_policy)


@dataclass(frozen=True)
class Clipped(ActorCritic):
    """PPO: a clipped ratio instead of log π, so that a rollout can be learnt from several times (1707.06347)."""

    clip: float = 0.1
    """Clip range: how far from 1 the ratio of new to old probability is rewarded."""
    normalise: Literal["update", "rollout"] = "update"
    """Normalise advantages over the rows of each update or of the whole rollout, which small batches need."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive("objective.clip", self.clip)

    def search_space(self) -> str:
        return "ppo"

    def targets(self, rollout: Rollout) -> tuple[FloatArray, FloatArray]:
        advantage, target = super().targets(rollout)
        if self.normalise == "rollout":
            advantage = normalised(torch.from_numpy(advantage)).numpy()
        return advantage, target

    def losses(self, out: torch.Tensor, batch: RolloutBatch, *, steps: int = 0) -> torch.Tensor:
        log_policy = self.preferences(out).log_softmax(1)  # [B, A]
        ratio = (log_policy.gather(1, batch.action[:, None]).squeeze(1) - batch.log_probability).exp()
        # over the rows of this update, as the first implementation has it, unless over the whole rollout already
        advantage = normalised(batch.advantage) if self.normalise == "update" else batch.advantage
        surrogate = clipped_surrogate(ratio, advantage, self.clip)
        value_error = (self.state_values(out) - batch.target).square()
        return surrogate + self.value_weight * value_error - self.entropy_weight_at(steps) * entropy(log_policy)

    def diagnose(self, out: torch.Tensor, batch: RolloutBatch) -> dict[str, torch.Tensor]:
        log_policy = self.preferences(out).log_softmax(1)  # [B, A]
        log_ratio = log_policy.gather(1, batch.action[:, None]).squeeze(1) - batch.log_probability
        ratio = log_ratio.exp()
        return {
            **super().diagnose(out, batch),
            "approximate_kl_nats": (ratio - 1.0 - log_ratio).mean(),  # never negative, with less variance than −log
            "clip_fraction": ((ratio - 1.0).abs() > self.clip).float().mean(),
        }


@dataclass(frozen=True)
class QLambda(Objective):
    """Action values fitted to λ-returns of greedy play, without replay or target network (2407.04811)."""

    def search_space(self) -> str:
        return "pqn"

    def explorations(self) -> tuple[type[Exploration], ...]:
        return (EpsilonGreedy,)

    def build_network(self, torso: Torso, layers: Layers, spec: EnvSpec, generator: torch.Generator) -> Network:
        outputs = Expected().num_outputs()
        return build_value_network(torso, spec, outputs=outputs, generator=generator, layers=layers)

    def preferences(self, out: torch.Tensor) -> torch.Tensor:
        return Expected().values(out)  # [N, A]

    def state_values(self, out: torch.Tensor) -> torch.Tensor:
        return self.preferences(out).amax(1)  # [N]

    def targets(self, rollout: Rollout) -> tuple[FloatArray, FloatArray]:
        target = lambda_returns(rollout.reward, rollout.following, rollout.discount, rollout.trace)
        return target - rollout.value, target

    def losses(self, out: torch.Tensor, batch: RolloutBatch, *, steps: int = 0) -> torch.Tensor:
        value = take_actions(out, batch.action).squeeze(1)
        return 0.5 * (value - batch.target).square()

    def diagnose(self, out: torch.Tensor, batch: RolloutBatch) -> dict[str, torch.Tensor]:
        error = (take_actions(out, batch.action).squeeze(1) - batch.target).abs()
        return {"td_error": error.mean(), **best_values(self.preferences(out))}


@dataclass(frozen=True)
class OnPolicy:
    """A learner from rollouts: independent parts, and the settings that pace them."""

    family: ClassVar[str] = "on-policy"
    warmup_steps: ClassVar[int] = 0  # the first rollout is learnt from
    target_sync_updates: ClassVar[int | None] = None  # there is no target network
    replay: ClassVar[ReplayConfig | None] = None  # a rollout is dropped after it was learnt from

    network: Torso = field(default_factory=Nature)
    """The part of the network that reads the observation."""
    layers: Layers = field(default_factory=Plain)
    """How the network's layers are made."""
    objective: Objective = field(default_factory=PolicyGradient)
    """What is learnt from a rollout."""
    explore: Exploration = field(default_factory=Sampled)
    """How the actor explores."""
    optimizer: Optimizer = field(default_factory=Rmsprop)
    """The optimiser."""
    returns: Traces = field(default_factory=Traces)
    """The return of a step: λ, discount, clipping."""
    rollout_steps: int = 5
    """Steps of each env in a rollout."""
    epochs: int = 1
    """Passes over each rollout."""
    batch_size: int = 80
    """Transitions in one update; a rollout is cut into as many batches as needed."""

    def __post_init__(self) -> None:
        check_range("rollout-steps", self.rollout_steps, 1, 65_536)
        check_range("epochs", self.epochs, 1, 1_000)
        check_range("batch-size", self.batch_size, 1, 65_536)
        if not isinstance(self.explore, self.objective.explorations()):
            names = " or ".join(kind_name(kind) for kind in self.objective.explorations())
            raise UserError(f"{kind_name(type(self.objective))} acts by {names}: add --explore {names}")
        if self.layers.explore():
            raise UserError(
                "noise would change the policy between acting and learning: use --layers plain or normed with rollouts"
            )

    @property
    def samples_per_step(self) -> float:
        """Transitions trained per step."""
        return float(self.epochs)

    def whole_batches(self, num_envs: int) -> tuple[Self, list[Adjustment]]:
        """Choose a batch size that cuts a rollout into equal parts, or nearly so."""
        rows, asked = self.rollout_steps * num_envs, self.batch_size
        size = -(-rows // -(-rows // asked))
        if size == asked:
            return self, []
        why = f"a rollout of {num_envs} envs × {self.rollout_steps} steps is cut into equal batches"
        return replace(self, batch_size=size), [Adjustment("batch-size", str(asked), str(size), why)]

    def updates_per_vector_step(self, num_envs: int) -> float:
        """Return the updates of a rollout divided by its steps."""
        return self.epochs * -(-self.rollout_steps * num_envs // self.batch_size) / self.rollout_steps

    def search_space(self) -> str:
        """Return the name of the objective's search space in `redline tune`."""
        return self.objective.search_space()

    def paces(self) -> Mapping[str, float]:
        """Return the settings that pace learning."""
        return {"rollout_steps": self.rollout_steps, "epochs": self.epochs, "lambda": self.returns.trace}

    def annealed_from(self) -> int:
        """Return the step at which both learning rate and entropy weight have begun to fall."""
        return max(self.optimizer.annealed_from(), self.objective.annealed_from())

    def build_network(self, spec: EnvSpec, generator: torch.Generator) -> Network:
        """Return the network with its initial weights."""
        return self.objective.build_network(self.network, self.layers, spec, generator)

    def preferences(self, out: torch.Tensor) -> torch.Tensor:
        """Return logits or values [N, A]."""
        return self.objective.preferences(out)

    def precompute_targets(
        self, batches: Sequence[AnyBatch], *, stack: int, target: Network
    ) -> Sequence[torch.Tensor | None]:
        """Return nothing: what followed is in the rollout."""
        return [None] * len(batches)

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
        """Return losses and weights [B]; nothing is drawn by priority."""
        if not isinstance(batch, RolloutBatch):
            raise TypeError(f"on-policy learners learn from rollouts, not from a {type(batch).__name__}")
        out = online.predict(torch.cat(batch.features)) if batch.features else online(batch.obs)
        losses = self.objective.losses(out, batch, steps=steps)
        return losses, torch.ones_like(losses), losses.detach()

    def diagnose(
        self, batch: AnyBatch, *, stack: int, online: Network, priorities: torch.Tensor
    ) -> Mapping[str, torch.Tensor]:
        """Return the objective's diagnostics."""
        if not isinstance(batch, RolloutBatch):
            return {}
        out = online.predict(torch.cat(batch.features)) if batch.features else online(batch.obs)
        return self.objective.diagnose(out, batch)

"""The family of learners from rollouts: each rollout is played with the newest weights, learnt from, then dropped."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

import torch

from redline.algorithms.objectives import Objective, PolicyGradient
from redline.algorithms.optimizers import Optimizer, Rmsprop
from redline.errors import UserError, check_range, kind_name
from redline.exploration import Exploration, Sampled
from redline.networks import Layers, Nature, Network, Plain, Torso
from redline.returns import Traces
from redline.types import Adjustment, AnyBatch, EnvSpec, RolloutBatch


@dataclass(frozen=True)
class OnPolicy:
    """A learner from rollouts: independent parts, and the settings that pace them."""

    family: ClassVar[str] = "on-policy"

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
    def warmup_steps(self) -> int:
        """None: the first rollout is learnt from."""
        return 0

    @property
    def samples_per_step(self) -> float:
        """Transitions trained per step."""
        return float(self.epochs)

    @property
    def target_sync_updates(self) -> int | None:
        """None: there is no target network."""
        return None

    @property
    def replay(self) -> None:
        """None: a rollout is dropped after it was learnt from."""
        return None

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
        out = online.head(torch.cat(batch.features)) if batch.features else online(batch.obs)
        losses = self.objective.losses(out, batch, steps=steps)
        return losses, torch.ones_like(losses), losses.detach()

    def diagnose(
        self, batch: AnyBatch, *, stack: int, online: Network, priorities: torch.Tensor
    ) -> Mapping[str, torch.Tensor]:
        """Return the objective's diagnostics."""
        if not isinstance(batch, RolloutBatch):
            return {}
        out = online.head(torch.cat(batch.features)) if batch.features else online(batch.obs)
        return self.objective.diagnose(out, batch)

"""A network is a torso, possibly a core that remembers earlier observations, and a head that predicts.

Networks are built on the CPU, in the memory format that suits their observations.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  the name every PyTorch reader knows

from redline.errors import DamagedError, UserError, check_range
from redline.networks.layers import (
    Layers,
    NoisyLinear,
    Outputs,
    Plain,
    draw_noise,
    in_float32,
    initialise,
    initialise_orthogonal,
    is_in_bf16,
)
from redline.networks.torsos import Torso
from redline.types import EnvSpec, Precision


@runtime_checkable
class Core(Protocol):
    """A recipe for a recurrent core, and for the sequences from which it learns."""

    def sequence(self) -> "Sequence | None":
        """Return the sequences that an update learns from; None: single steps."""
        return None

    def build(self, features: int) -> "GruCell | None":
        """Return a cell from (features [B, F], state [B, S]) to the next state; None: no core."""
        return None


@dataclass(frozen=True)
class Sequence:
    """A part of an episode: steps that only warm up the state, and steps that are learnt from."""

    burn_in_steps: int
    length_steps: int


@dataclass(frozen=True)
class Memoryless(Core):
    """No core: only the stacked frames are seen."""


@dataclass(frozen=True)
class Gru(Core):
    """A gated recurrent unit instead of the last hidden layer; learns from sequences with burn-in."""

    width: int = 512
    """Units of the state."""
    length_steps: int = 8
    """Steps of a sequence that are learnt from."""
    burn_in_steps: int = 4
    """Steps before them that only warm up the state."""

    def __post_init__(self) -> None:
        check_range("core.width", self.width, 1, 65_536)
        check_range("core.length-steps", self.length_steps, 1, 1_024)
        check_range("core.burn-in-steps", self.burn_in_steps, 0, 1_024)

    def sequence(self) -> Sequence | None:
        return Sequence(self.burn_in_steps, self.length_steps)

    def build(self, features: int) -> "GruCell | None":
        return GruCell(features, self.width)


class GruCell(nn.GRUCell):
    """A gated recurrent unit that can also go through a sequence at once."""

    def unroll(self, features: torch.Tensor, starts: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        """Return the states [T, B, S] after each step of features [T, B, F]; they start from 0 where `starts` [T, B].

        The features' part is computed for all steps at once: step by step, its large matrix would be read from memory
        each time.
        """
        from_features = F.linear(features, self.weight_ih, self.bias_ih).float()  # [T, B, 3 S]
        states = []
        with in_float32(features.device.type):
            for t in range(len(features)):
                state = mask_state(state, starts[t])
                reset_in, update_in, new_in = from_features[t].chunk(3, dim=1)
                reset_state, update_state, new_state = F.linear(state, self.weight_hh, self.bias_hh).chunk(3, dim=1)
                candidate = torch.tanh(new_in + torch.sigmoid(reset_in + reset_state) * new_state)
                state = torch.lerp(candidate, state, torch.sigmoid(update_in + update_state))
                states.append(state)
        return torch.stack(states)

    def forward(self, features: torch.Tensor, state: torch.Tensor | None = None) -> torch.Tensor:
        """Return the state [B, S] after features [B, F]."""
        if state is None or not is_in_bf16(features.device.type):
            return super().forward(features, state)
        starts = torch.zeros(1, len(features), dtype=torch.bool, device=features.device)
        return self.unroll(features[None], starts, state)[0]  # the same products as in learning


def mask_state(state: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """Return the state [B, S] with zeros where an episode starts; `starts` is [B] bool."""
    return state.masked_fill(starts[:, None], 0.0)


class Network(nn.Module):
    """Observation → prediction, [B, A, outputs] for values; with a core it has a recurrent state.

    With `precision` bf16 the products of hidden layers are bf16. Weights, gradients, the recurrent state and the
    output layer stay float32.
    """

    def __init__(self, torso: nn.Module, core: GruCell | None, head: nn.Module, *, num_actions: int) -> None:
        super().__init__()
        self.torso = torso
        self.core = core
        self.head = head
        self.num_actions = num_actions
        self.precision: Precision = "float32"
        self._noise: torch.Tensor | None = None  # of all noisy layers
        self._noisy = [layer for layer in self.modules() if isinstance(layer, NoisyLinear)]

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        """Predict from observations [B, K, *frame] alone."""
        with self._products(obs):
            out: torch.Tensor = self.head(self.torso(obs))
        return out

    def features(self, obs: torch.Tensor) -> torch.Tensor:
        """Return the features [B, F] of observations [B, K, *frame]."""
        with self._products(obs):
            out: torch.Tensor = self.torso(obs)
        return out

    def predict(self, features: torch.Tensor) -> torch.Tensor:
        """Predict from what `features` returned."""
        with self._products(features):
            out: torch.Tensor = self.head(features)
        return out

    def _products(self, given: torch.Tensor) -> AbstractContextManager[object]:
        if self.precision == "float32":
            return nullcontext()
        return torch.autocast(given.device.type, torch.bfloat16)

    @property
    def state_width(self) -> int:
        """Units of the recurrent state; 0 without a core."""
        return 0 if self.core is None else self.core.hidden_size

    def step(self, obs: torch.Tensor, state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Predict from observations [B, K, *frame] and the state [B, S]; return the next state too."""
        if self.core is None:
            return self(obs), state
        with self._products(obs):
            state = self.core(self.torso(obs), state)
            return self.head(state), state

    def unroll(
        self, obs: torch.Tensor, starts: torch.Tensor, state: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Predict [T · B, A, outputs] for sequences [T, B, K, *frame]; the state begins anew where `starts` [T, B]."""
        steps, rows = obs.shape[:2]
        if self.core is None:
            raise ValueError("a network without a core has nothing to unroll")
        with self._products(obs):
            features = self.torso(obs.flatten(0, 1)).unflatten(0, (steps, rows))  # [T, B, F]
            if state is None:
                state = features.new_zeros(rows, self.state_width, dtype=torch.float32)
            states = self.core.unroll(features, starts, state)  # [T, B, S]
            return self.head(states.flatten(0, 1)), states[-1]

    def take_weights(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Load the weights of another network of the same shape."""
        own = {name: value.shape for name, value in self.state_dict().items()}
        if own != {name: value.shape for name, value in weights.items()}:
            raise UserError("the saved weights are of another network than this version of Redline builds: train anew")
        if bad := [name for name, value in weights.items() if not value.isfinite().all()]:
            raise DamagedError(f"saved weights are not finite ({', '.join(bad)}): use an older checkpoint")
        self.load_state_dict(weights)

    @property
    def is_noisy(self) -> bool:
        """Whether it has noisy layers."""
        return bool(self._noisy)

    def resample(self, rng: np.random.Generator) -> None:
        """Draw new noise for every noisy layer; it goes to the device as one."""
        sizes = [layer.in_features + layer.out_features for layer in self._noisy]
        noise = draw_noise(rng, sum(sizes))
        if self._noise is None:
            self._noise = torch.empty_like(noise, device=next(self.parameters()).device)
        if self._noise.device.type == "cuda":
            noise = noise.pin_memory()  # a copy from elsewhere would wait for what the GPU computes
        self._noise.copy_(noise, non_blocking=True)  # in the same place: a CUDA graph reads it there
        for layer, part in zip(self._noisy, self._noise.split_with_sizes(sizes), strict=True):
            layer.take_noise(part)

    def silence(self) -> None:
        """Act without noise from now on."""
        for layer in self._noisy:
            layer.silence()


@runtime_checkable
class Streams(Protocol):
    """A recipe for the head of a value network."""

    def build(self, features: int, *, hidden: int | None, num_actions: int, outputs: int, layers: Layers) -> nn.Module:
        """Return a module from features [B, F] to [B, A, outputs]; `hidden` units in a layer between, if not None."""


@dataclass(frozen=True)
class Single(Streams):
    """One stream: a prediction for each action."""

    def build(self, features: int, *, hidden: int | None, num_actions: int, outputs: int, layers: Layers) -> nn.Module:
        stream = make_stream(features, num_actions * outputs, hidden=hidden, layers=layers)
        return nn.Sequential(stream, nn.Unflatten(1, (num_actions, outputs)))


@dataclass(frozen=True)
class Dueling(Streams):
    """Two streams: the state's value, and each action's advantage over the mean (arXiv:1511.06581)."""

    def build(self, features: int, *, hidden: int | None, num_actions: int, outputs: int, layers: Layers) -> nn.Module:
        return DuelingHead(
            value=make_stream(features, outputs, hidden=hidden, layers=layers),
            advantage=make_stream(features, num_actions * outputs, hidden=hidden, layers=layers),
            shape=(num_actions, outputs),
        )


class DuelingHead(nn.Module):
    """value + advantage − its mean over the actions of the same row."""

    def __init__(self, *, value: nn.Module, advantage: nn.Module, shape: tuple[int, int]) -> None:
        super().__init__()
        self.value = value
        self.advantage = advantage
        self.shape = shape

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        value = self.value(features)[:, None]  # [B, 1, outputs]
        advantage = self.advantage(features).unflatten(1, self.shape)  # [B, A, outputs]
        out: torch.Tensor = value + advantage - advantage.mean(dim=1, keepdim=True)
        return out


class PolicyHead(nn.Module):
    """Features → [B, A + 1]: a logit for each action, then the state's value.

    Both share a hidden layer; with two towers, each has a hidden layer of its own.
    """

    def __init__(self, features: int, width: int, *, towers: int, num_actions: int, layers: Layers) -> None:
        super().__init__()
        hidden = [nn.Sequential(*make_hidden(features, width, layers)) for _ in range(towers)]
        self.hidden = hidden[0] if towers == 1 else Apart(hidden)
        self.width = width
        # a nearly uniform policy explores at the start
        self.policy = Outputs(layers.dense(width, num_actions), gain=0.01)
        self.value = Outputs(layers.dense(width, 1))

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        hidden = self.hidden(features)  # [B, towers · W]
        return torch.cat([self.policy(hidden[:, : self.width]), self.value(hidden[:, -self.width :])], dim=1)


class Apart(nn.Module):
    """A module for each part of the features."""

    def __init__(self, parts: list[nn.Sequential]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        given = features.chunk(len(self.parts), dim=1)
        return torch.cat([part(one) for part, one in zip(self.parts, given, strict=True)], dim=1)


def make_stream(features: int, outputs: int, *, hidden: int | None, layers: Layers) -> nn.Module:
    """Return features → outputs, with a hidden layer of `hidden` units if given."""
    if hidden is None:
        return Outputs(layers.dense(features, outputs))
    return nn.Sequential(*make_hidden(features, hidden, layers), Outputs(layers.dense(hidden, outputs)))


def make_hidden(features: int, width: int, layers: Layers) -> list[nn.Module]:
    """Return a hidden layer with its activation."""
    return [layers.dense(features, width), *layers.activation([width])]


def build_value_network(
    torso: Torso,
    spec: EnvSpec,
    *,
    outputs: int,
    generator: torch.Generator,
    core: Core | None = None,
    streams: Streams | None = None,
    layers: Layers | None = None,
) -> Network:
    """Return a network that predicts `outputs` numbers for each action."""
    if torso.towers() != 1:
        raise UserError("network twin is for a policy and a value, but only values are learnt here: use --network mlp")
    core, streams, layers = core or Memoryless(), streams or Single(), layers or Plain()
    with torch.random.fork_rng(devices=[]):  # torch's layers draw from the global generator when they are made
        module, features = torso.build(spec, layers)
        cell = core.build(features)
        head = streams.build(
            features if cell is None else cell.hidden_size,
            hidden=torso.last_width() if cell is None else None,
            num_actions=spec.num_actions,
            outputs=outputs,
            layers=layers,
        )
        network = Network(module, cell, head, num_actions=spec.num_actions)
    initialise(network, generator, keep_variance=spec.is_image)
    return _in_its_format(network, spec)


def build_policy_network(torso: Torso, spec: EnvSpec, *, layers: Layers, generator: torch.Generator) -> Network:
    """Return a network that predicts a policy and a value, from shared features or from two towers."""
    with torch.random.fork_rng(devices=[]):
        module, features = torso.build(spec, layers)
        head = PolicyHead(
            features, torso.last_width(), towers=torso.towers(), num_actions=spec.num_actions, layers=layers
        )
        network = Network(module, None, head, num_actions=spec.num_actions)
    initialise_orthogonal(network, generator)
    return _in_its_format(network, spec)


def _in_its_format(network: Network, spec: EnvSpec) -> Network:
    if not spec.is_image:
        return network
    return network.to(memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]

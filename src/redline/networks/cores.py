"""Cores stand between torso and head: none, or a recurrent one that remembers earlier observations."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812  the name every PyTorch reader knows

from redline.errors import UserError, check_range


@runtime_checkable
class Core(Protocol):
    """A recipe for a recurrent core, and for the sequences from which it learns."""

    def sequence(self) -> "Sequence | None":
        """Return the sequences that an update learns from; None: single steps."""

    def build(self, features: int) -> "GruCell | None":
        """Return a cell from (features [B, F], state [B, S]) to the next state; None: no core."""


@dataclass(frozen=True)
class Sequence:
    """A part of an episode: steps that only warm up the state, and steps that are learnt from."""

    burn_in_steps: int
    length_steps: int


@dataclass(frozen=True)
class Memoryless(Core):
    """No core: only the stacked frames are seen."""

    def sequence(self) -> Sequence | None:
        return None

    def build(self, features: int) -> "GruCell | None":
        return None


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
        if not 1 <= self.length_steps <= 1_024 or not 0 <= self.burn_in_steps <= 1_024:
            raise UserError(
                f"core has sequences of {self.burn_in_steps} + {self.length_steps} steps: "
                f"use 0 to 1024 of burn-in and 1 to 1024 to learn from"
            )

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
        from_features = F.linear(features, self.weight_ih, self.bias_ih)  # [T, B, 3 S]
        states = []
        for t in range(len(features)):
            state = mask_state(state, starts[t])
            reset_in, update_in, new_in = from_features[t].chunk(3, dim=1)
            reset_state, update_state, new_state = F.linear(state, self.weight_hh, self.bias_hh).chunk(3, dim=1)
            candidate = torch.tanh(new_in + torch.sigmoid(reset_in + reset_state) * new_state)
            state = torch.lerp(candidate, state, torch.sigmoid(update_in + update_state))
            states.append(state)
        return torch.stack(states)


def mask_state(state: torch.Tensor, starts: torch.Tensor) -> torch.Tensor:
    """Return the state [B, S] with zeros where an episode starts; `starts` is [B] bool."""
    return state.masked_fill(starts[:, None], 0.0)

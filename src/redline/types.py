"""The values that pass between the rooms: frozen dataclasses, shapes in comments, no torch at run time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    import torch

Array = npt.NDArray[Any]
BoolArray = npt.NDArray[np.bool_]
IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]
Progress = Callable[[float], None]  # takes the share done, 0 … 1
Precision = Literal["float32", "bf16"]  # of the products in a network


@dataclass(frozen=True)
class EnvSpec:
    """What a network and a replay memory must know of an environment."""

    name: str  # short and safe as a folder's name: "pong", "cartpole-v1"
    frame_shape: tuple[int, ...]  # one picture or vector: (84, 84), (3, 96, 96) or (4,)
    frame_dtype: str  # "uint8" for pictures, "float32" for vectors
    stack: int  # frames that make one observation
    num_actions: int
    frames_per_step: int  # emulator frames in one step

    @property
    def is_image(self) -> bool:
        """Whether a frame is a picture (height and width) and not a vector."""
        return len(self.frame_shape) >= 2


@dataclass(frozen=True)
class VectorStep:
    """The results of one step of all N lanes."""

    frames: Array  # [N, *frame] after the action; the episode's final frame where it ended
    reward: FloatArray  # [N] unclipped
    terminated: BoolArray  # [N] the episode is over by its own rules
    truncated: BoolArray  # [N] the episode was cut by a limit: its value goes on
    life_lost: BoolArray  # [N] a life lost, and others left: the episode goes on
    first_frames: Array  # [N, *frame] first frame of the next episode where one ended, else `frames`

    @property
    def ended(self) -> BoolArray:
        """Where the episode is over, for whatever reason."""
        return self.terminated | self.truncated

    @property
    def return_ends(self) -> BoolArray:
        """Where the return ends: the episode terminated, or a life was lost."""
        return self.terminated | self.life_lost


@dataclass(frozen=True)
class Handles:
    """Addresses of transitions that stay true forever: lane and sequence number, never an index."""

    lane: IntArray  # [B]
    number: IntArray  # [B]


@dataclass(frozen=True)
class Draw:
    """The transitions that an update will read, and their importance weights."""

    handles: Handles
    weight: FloatArray  # [B]
    burn_in: IntArray | None = None  # [B] steps before each row that a sequence may begin with
    ahead: IntArray | None = None  # [B] complete steps from each row on that a sequence may go on with
    bounds: object | None = None  # the memory's at the time of the draw: while they are the same, all rows are held


@dataclass(frozen=True)
class Batch:
    """The data of one update; K stacked frames, n-step returns, B rows.

    The state is `frames[b, :K]`, the state that follows is `frames[b, offset[b] : offset[b] + K]`.
    """

    frames: torch.Tensor  # [B, K + n, *frame] uint8 or float32; beyond offset + K undefined
    offset: torch.Tensor  # [B] int64: steps really spanned, 1 … n
    action: torch.Tensor  # [B] int64
    reward: torch.Tensor  # [B] float32: discounted sum over the steps spanned, clipped if so configured
    discount: torch.Tensor  # [B] float32: γ^offset, or 0 where the return ends
    weight: torch.Tensor  # [B] float32: importance weight


@dataclass(frozen=True)
class SequenceBatch:
    """Stretches of episodes for networks that remember; K stacked frames, T steps, n-step returns, B sequences.

    Step t of sequence b observes `frames[b, t : t + K]` and leads to `frames[b, t + offset[t, b] : … + K]`. The state
    of the network starts anew wherever `starts` says so; earlier steps are padding.
    """

    frames: torch.Tensor  # [B, K − 1 + T + n, *frame] uint8 or float32; zeros where nothing was seen
    starts: torch.Tensor  # [T, B] bool: the first step of what was seen
    offset: torch.Tensor  # [T, B] int64: steps really spanned, 1 … n
    action: torch.Tensor  # [T, B] int64
    reward: torch.Tensor  # [T, B] float32: as in a batch of single steps
    discount: torch.Tensor  # [T, B] float32
    weight: torch.Tensor  # [T, B] float32: importance weight; 0 on burn-in and padding


@dataclass(frozen=True)
class Rollout:
    """The steps of all lanes since the weights last changed; T steps, N lanes."""

    reward: FloatArray  # [T, N] clipped if so configured
    value: FloatArray  # [T, N] of the state, by the weights that acted
    following: FloatArray  # [T, N] value of what really followed: of an episode's final observation where it was cut
    discount: FloatArray  # [T, N] γ, or 0 where the return ended
    trace: FloatArray  # [T, N] λ, or 0 where the next row is not what followed


@dataclass(frozen=True)
class RolloutBatch:
    """Rows of a rollout, in any order; K stacked frames, B rows."""

    obs: torch.Tensor  # [B, K, *frame] uint8 or float32
    action: torch.Tensor  # [B] int64
    log_probability: torch.Tensor  # [B] float32: of the action, by the weights that acted
    advantage: torch.Tensor  # [B] float32
    target: torch.Tensor  # [B] float32: value to fit
    features: tuple[torch.Tensor, ...] = ()  # [N, F] each, B rows in all: what the torso gave when the rows were played


AnyBatch: TypeAlias = "Batch | SequenceBatch | RolloutBatch"


@dataclass(frozen=True)
class Adjustment:
    """A setting that the program changed; nothing is changed without one."""

    setting: str  # as typed: "env.size"
    requested: str
    effective: str
    why: str

    def __str__(self) -> str:
        return f"{self.setting}: {self.requested} → {self.effective} ({self.why})"

"""What a vector of environments promises: N lanes stepped together, each at its own place in its own episode."""

from collections.abc import Callable
from typing import Protocol

import numpy as np

from redline.types import Array, EnvSpec, IntArray, VectorStep

State = dict[str, Array]
Progress = Callable[[float], None]


class EnvError(RuntimeError):
    """An environment failed or fell silent; the message names it, the lane and the seed."""


class VectorEnv(Protocol):
    """N lanes in lockstep; a lane that ends begins its next episode within the same step.

    An episode's address is (lane, key seed, actions since the key): the lane, reset with its key seed and given
    the same actions, goes the same way bit for bit.
    """

    @property
    def spec(self) -> EnvSpec:
        """What a network and a replay memory must know."""
        ...

    @property
    def protocol(self) -> str:
        """One sentence that says by which rules the game is played."""
        ...

    @property
    def num_envs(self) -> int:
        """Lanes."""
        ...

    @property
    def frames(self) -> Array:
        """The newest frame of every lane [N, *frame]: an episode's first where one has just begun."""
        ...

    @property
    def key_seed(self) -> IntArray:
        """The key seed [N] in force for the episode now running; read it before `recv` to name one that ends."""
        ...

    @property
    def steps_since_key(self) -> IntArray:
        """Actions [N] taken since that key seed."""
        ...

    def actions_since_key(self, lane: int) -> Array:
        """Return those actions of one lane, oldest first."""
        ...

    def reset(self) -> Array:
        """Begin an episode in every lane from its next key seed and return the first frames [N, *frame]."""
        ...

    def send(self, actions: IntArray) -> None:
        """Take one step in every lane; the results are asked for with `recv`, and only then comes the next `send`."""
        ...

    def recv(self) -> VectorStep:
        """Return what the step gave, with ended lanes already in their next episode."""
        ...

    def state(self) -> State:
        """Return what `restore` needs, as plain arrays; only between `recv` and `send`."""
        ...

    def restore(self, state: State, progress: Progress | None = None) -> bool:
        """Bring every lane to the state, telling `progress` the share done (0 … 1).

        False if the world did not come back exactly: then every lane has begun a new episode.
        """
        ...

    def close(self) -> None:
        """Give back threads and memory."""
        ...


def checked_actions(actions: Array, *, num_envs: int, num_actions: int) -> IntArray:
    """Return a private copy as int64 [N], or raise ValueError naming the lane and the action that cannot be."""
    if isinstance(actions, np.ndarray) and actions.dtype == np.int64 and actions.shape == (num_envs,):
        copy = actions.copy()
        # read as unsigned, a negative number is a large one; at every step it is waited for, so one look must do
        if copy.view(np.uint64).max(initial=0) < num_actions:
            return copy
    actions = np.asarray(actions)
    if actions.shape != (num_envs,):
        raise ValueError(f"actions have shape {actions.shape}, {num_envs} lanes need ({num_envs},)")
    if not np.issubdtype(actions.dtype, np.integer):
        raise ValueError(f"actions are {actions.dtype}, not integers")
    bad = (actions < 0) | (actions >= num_actions)
    if bad.any():
        lane = int(np.argmax(bad))
        raise ValueError(f"lane {lane} has action {actions[lane]}, not within 0 … {num_actions - 1}")
    return actions.astype(np.int64)

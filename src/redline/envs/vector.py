"""What a vector of envs promises: N lanes, each in its own episode."""

from typing import Protocol

import numpy as np

from redline.types import Array, EnvSpec, IntArray, Progress, VectorStep

State = dict[str, Array]


class EnvError(RuntimeError):
    """An env failed or stopped answering; the message names it, the lane and the seed."""


class VectorEnv(Protocol):
    """N lanes in lockstep; a lane that ends begins its next episode within the same step.

    An episode's address is (lane, reset seed, actions since): a lane that is reset with the seed and given the same
    actions plays the same episode, bit for bit. Not every reset is seeded: several episodes may follow one seed.
    """

    @property
    def spec(self) -> EnvSpec:
        """What a network and a replay memory must know."""

    @property
    def num_envs(self) -> int:
        """Lanes."""

    @property
    def frames(self) -> Array:
        """The newest frame of every lane [N, *frame]; the first one where an episode has just begun."""

    @property
    def reset_seed(self) -> IntArray:
        """The seed [N] of the last seeded reset; read it before `recv` to name an episode that ends."""

    @property
    def steps_since_seed(self) -> IntArray:
        """Actions [N] taken since that reset."""

    def actions_since_seed(self, lane: int, begin: int = 0, end: int | None = None) -> Array:
        """Return those actions of one lane, oldest first, or the part from step `begin` to `end`.

        Actions of an episode that has just ended can be read until the next `send`, even after a new seed.
        """

    def reset(self) -> Array:
        """Begin an episode in every lane from its next seed and return the first frames [N, *frame]."""

    def send(self, actions: IntArray) -> None:
        """Start one step in every lane; `recv` returns the results and must come before the next `send`."""

    def recv(self) -> VectorStep:
        """Return the results of the step; ended lanes are already in their next episode."""

    def state(self) -> State:
        """Return what `restore` needs, as plain arrays; only between `recv` and `send`."""

    def restore(self, state: State, progress: Progress | None = None) -> bool:
        """Bring every lane back to the state, reporting the share done (0 … 1) to `progress`.

        False if the envs did not come back exactly: then every lane has begun a new episode.
        """

    def close(self) -> None:
        """Free threads and memory."""


def checked_actions(actions: Array, *, num_envs: int, num_actions: int) -> IntArray:
    """Return a private copy as int64 [N]; raise ValueError with lane and action if one is invalid."""
    if isinstance(actions, np.ndarray) and actions.dtype == np.int64 and actions.shape == (num_envs,):
        copy = actions.copy()
        # as unsigned numbers, negative ones are large: one comparison is enough, in a place that every step waits for
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

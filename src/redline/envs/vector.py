"""What an id stands for, and what a vector of such envs promises: N lanes, each at its own place in its own episode."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from redline.envs.config import EnvConfig
from redline.types import Adjustment, Array, BoolArray, EnvSpec, IntArray, VectorStep

State = dict[str, Array]
Progress = Callable[[float], None]
# DOC """How frames become an observation: the newest K, with zeros before an episode's first frame.
#
# This is the emulator's own padding, byte for byte; replay cuts its windows by the same rule.
# """


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

    @property
    def num_envs(self) -> int:
        """Lanes."""

    @property
    def frames(self) -> Array:
        """The newest frame of every lane [N, *frame]: an episode's first where one has just begun."""

    @property
    def key_seed(self) -> IntArray:
        """The key seed [N] in force for the episode now running; read it before `recv` to name one that ends."""

    @property
    def steps_since_key(self) -> IntArray:
        """Actions [N] taken since that key seed."""

    def actions_since_key(self, lane: int, begin: int = 0, end: int | None = None) -> Array:
        """Return those actions of one lane, oldest first, or the part from `begin` to `end` steps after the key.

        An episode that has just ended can be asked for until the next `send`, even if a new key is in force.
        """

    def reset(self) -> Array:
        """Begin an episode in every lane from its next key seed and return the first frames [N, *frame]."""

    def send(self, actions: IntArray) -> None:
        """Take one step in every lane; the results are asked for with `recv`, and only then comes the next `send`."""

    def recv(self) -> VectorStep:
        """Return what the step gave, with ended lanes already in their next episode."""

    def state(self) -> State:
        """Return what `restore` needs, as plain arrays; only between `recv` and `send`."""

    def restore(self, state: State, progress: Progress | None = None) -> bool:
        """Bring every lane to the state, telling `progress` the share done (0 … 1).

        False if the world did not come back exactly: then every lane has begun a new episode.
        """

    def close(self) -> None:
        """Give back threads and memory."""


class EnvKind(Protocol):
    """What an id stands for: how to make it, what it starts with, and by which rules it is played."""

    @property
    def name(self) -> str:
        """Short, and safe as a folder's name."""

    @property
    def gymnasium_id(self) -> str:
        """The canonical id."""

    @property
    def frame_skip(self) -> int:
        """Emulator frames in one step, unless the user wants others."""

    @property
    def rules(self) -> str:
        """One sentence that says by which rules it is played in training."""

    @property
    def evaluation_rules(self) -> str:
        """The same for whole episodes that nothing is learnt from."""

    def spec(self, config: EnvConfig) -> EnvSpec:
        """Return what a network and a replay memory must know."""

    def effective(self, config: EnvConfig) -> tuple[EnvConfig, list[Adjustment]]:
        """Return the settings as they will act, and each one that does not act as it was asked."""

    def presets(self, algorithm: str) -> Mapping[str, Any]:
        """Return the settings, as a file for --config has them, that an algorithm starts with here."""

    def action_names(self, num_actions: int) -> Sequence[str]:
        """Return a name for each action."""

    def make_vector(
        self, config: EnvConfig, *, num_envs: int, seed: int, threads: int, key_interval_steps: int
    ) -> VectorEnv:
        """Return N lanes; emulators may use `threads`, and an episode has a key of its own if the interval is 0."""


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


def begin(frames: Array, stack: int) -> Array:
    """Return the stack of lanes that have just begun with `frames` [N, *frame]."""
    zeros = np.zeros((len(frames), stack, *frames.shape[1:]), frames.dtype)
    return push(zeros, frames)


def push(stack: Array, frames: Array) -> Array:
    """Return a new stack [N, K, *frame] whose newest frame, at K − 1, is `frames` [N, *frame]."""
    return np.concatenate([stack[:, 1:], frames[:, None]], axis=1)


def restart(stack: Array, lanes: BoolArray, first_frames: Array) -> Array:
    """Return the stack with `lanes` [N] begun anew: zeros, then their first frame; `stack` itself if none is."""
    if not lanes.any():
        return stack
    fresh = stack.copy()
    fresh[lanes] = 0
    fresh[lanes, -1] = first_frames[lanes]
    return fresh

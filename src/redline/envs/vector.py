"""A vector of envs: its interface, the record of what each lane has played, and stacks of its newest frames.

Seed and actions are enough to play an episode again. A reset seed is a pure function of run seed, lane and number, so
a lane's future never depends on other lanes.
"""

import zlib
from typing import Protocol

import numpy as np

from redline.types import Array, BoolArray, EnvSpec, IntArray, Progress, VectorStep

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


def reset_seed(run_seed: int, lane: int, number: int) -> int:
    """Return the lane's reset seed of that number, 0 … 2³¹ − 1: the emulator takes a C int, and −1 as "none"."""
    sequence = np.random.SeedSequence(run_seed, spawn_key=(lane, number))
    return int(sequence.generate_state(1)[0]) & 0x7FFF_FFFF


def checksums(frames: Array) -> IntArray:
    """Return one number per frame [N]; a resume compares them to know that the env came back."""
    return np.array([zlib.crc32(frame.tobytes()) for frame in frames], np.int64)


class Ledger:
    """Reset seeds and actions of N lanes; a new seed drops the actions before it."""

    def __init__(self, num_envs: int, *, num_actions: int, run_seed: int) -> None:
        self.run_seed = run_seed
        self._num_actions = num_actions
        self.seed: IntArray = np.full(num_envs, -1, np.int64)  # [N] of the last seeded reset; −1 before the first
        self.count: IntArray = np.zeros(num_envs, np.int64)  # [N] seeds used so far
        self.steps: IntArray = np.zeros(num_envs, np.int64)  # [N] actions since the seeded reset
        self._lanes = np.arange(num_envs)
        self._actions: Array = np.zeros((num_envs, 1024), np.uint8 if num_actions <= 256 else np.int64)  # [N, T]

    def next_seeds(self, lanes: BoolArray) -> IntArray:
        """Return the next reset seed of those lanes, −1 for the others; nothing changes."""
        seeds: IntArray = np.full(len(self.seed), -1, np.int64)
        for lane in np.flatnonzero(lanes):
            seeds[lane] = reset_seed(self.run_seed, int(lane), int(self.count[lane]))
        return seeds

    def reseed(self, lanes: BoolArray) -> None:
        """Begin anew in those lanes, with their next reset seed."""
        if not lanes.any():
            return
        self.seed = np.where(lanes, self.next_seeds(lanes), self.seed)
        self.count = self.count + lanes
        self.steps = np.where(lanes, 0, self.steps)

    def record(self, actions: IntArray) -> None:
        """Add one action in every lane."""
        if self.steps.max() == self._actions.shape[1]:
            self._actions = np.concatenate([self._actions, np.zeros_like(self._actions)], axis=1)
        self._actions[self._lanes, self.steps] = actions
        self.steps = self.steps + 1

    def actions(self, lane: int, begin: int = 0, end: int | None = None) -> Array:
        """Return a copy of one lane's actions since its seeded reset, from step `begin` to `end`.

        Actions before a new seed can still be read with `end`, until the next `record`.
        """
        return self._actions[lane, begin : self.steps[lane] if end is None else end].copy()

    def script(self, joins: IntArray, *, idle: int) -> IntArray:
        """Return the actions [T, N] of lanes that each begin at their own row and are idle before it."""
        script: IntArray = np.full((int((joins + self.steps).max()), len(joins)), idle, np.int64)
        for lane, (join, steps) in enumerate(zip(joins, self.steps, strict=True)):
            script[join : join + steps, lane] = self._actions[lane, :steps]
        return script

    def state(self) -> State:
        """Return everything as plain arrays; actions are concatenated, lane after lane."""
        return {
            "run_seed": np.array([self.run_seed], np.uint64),
            "key_seed": self.seed.copy(),
            "key_count": self.count.copy(),
            "steps_since_key": self.steps.copy(),
            "actions": np.concatenate([self.actions(int(lane)) for lane in self._lanes]),
        }

    def load(self, state: State) -> bool:
        """Load a state of as many lanes; False if it holds actions that this env does not have."""
        if len(state["key_seed"]) != len(self.seed):
            raise ValueError(f"the state has {len(state['key_seed'])} lanes, this env has {len(self.seed)}")
        self.run_seed = int(state["run_seed"][0])
        self.seed = state["key_seed"].astype(np.int64)
        self.count = state["key_count"].astype(np.int64)
        self.steps = state["steps_since_key"].astype(np.int64)
        longest = max(1024, int(self.steps.max()))
        self._actions = np.zeros((len(self.seed), longest), self._actions.dtype)
        ends = np.cumsum(self.steps)
        for lane, (end, steps) in enumerate(zip(ends, self.steps, strict=True)):
            self._actions[lane, :steps] = state["actions"][end - steps : end]
        return bool(state["actions"].max(initial=0) < self._num_actions)


class EpisodesUnderWay:
    """The running episode of each lane of a vector env: its return, its length, and where it began."""

    def __init__(self, env: VectorEnv) -> None:
        self._env = env
        self.total_reward = np.zeros(env.num_envs)  # [N] unclipped
        self.length_steps: IntArray = np.zeros(env.num_envs, np.int64)
        self.reset_seed: IntArray = np.zeros(env.num_envs, np.int64)  # of the last seeded reset
        self.seed_offset_steps: IntArray = np.zeros(env.num_envs, np.int64)  # from there to the start of the episode

    def begin(self, lanes: BoolArray) -> None:
        """Start an episode in those lanes, from the current state of their envs."""
        self.total_reward[lanes] = 0.0
        self.length_steps[lanes] = 0
        self.reset_seed[lanes] = self._env.reset_seed[lanes]
        self.seed_offset_steps[lanes] = self._env.steps_since_seed[lanes]

    def count(self, step: VectorStep) -> None:
        """Add a step of each lane."""
        self.total_reward += step.reward
        self.length_steps += 1

    def state(self) -> State:
        """Return the state for a checkpoint."""
        return {
            "return": self.total_reward,
            "length_steps": self.length_steps,
            "key_seed": self.reset_seed,
            "key_offset_steps": self.seed_offset_steps,
        }

    def load_state(self, state: State) -> None:
        """Continue from what `state()` returned."""
        for name, values in self.state().items():
            values[:] = state[name]


# How frames become an observation: the newest K, with zeros before an episode's first frame. This is the emulator's own
# padding, byte for byte; the replay memory follows the same rule.


def begin_stack(frames: Array, stack: int) -> Array:
    """Return the stack of lanes that have just begun with `frames` [N, *frame]."""
    zeros = np.zeros((len(frames), stack, *frames.shape[1:]), frames.dtype)
    return push_frames(zeros, frames)


def push_frames(stack: Array, frames: Array) -> Array:
    """Return a new stack [N, K, *frame] whose newest frame, at K − 1, is `frames` [N, *frame]."""
    return np.concatenate([stack[:, 1:], frames[:, None]], axis=1)


def restart_stack(stack: Array, lanes: BoolArray, first_frames: Array) -> Array:
    """Return the stack with `lanes` [N] begun anew: zeros, then their first frame; `stack` itself if there are none."""
    if not lanes.any():
        return stack
    fresh = stack.copy()
    fresh[lanes] = 0
    fresh[lanes, -1] = first_frames[lanes]
    return fresh

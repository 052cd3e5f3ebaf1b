"""Envs so small that the right answer is known; the first line of each says which fault it reveals."""

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from redline.types import Array

STAMPED_SHAPE = (36, 36)  # the smallest that the usual network reads
STAMP_BYTES = 8

_Step = tuple[Array, float, bool, bool, dict[str, Any]]


class Constant(gymnasium.Env[Array, np.int64]):
    """One step, reward 1: the value must become 1, or the loss or the optimiser is broken."""

    observation_space = Box(0.0, 1.0, (1,), np.float32)
    action_space = Discrete(1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: np.int64) -> _Step:
        return np.zeros(1, np.float32), 1.0, True, False, {}


class Endless(Constant):
    """Reward 1 forever: cut by a limit, a step is still worth 1 / (1 − γ), or truncation is taken for an end."""

    def step(self, action: np.int64) -> _Step:
        return np.zeros(1, np.float32), 1.0, False, False, {}


class ObsValue(gymnasium.Env[Array, np.int64]):
    """One step, the reward is the observation ±1: fails if what is learned does not depend on what is seen."""

    observation_space = Box(-1.0, 1.0, (1,), np.float32)
    action_space = Discrete(1)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._sign = 1.0 if self.np_random.random() < 0.5 else -1.0
        return np.array([self._sign], np.float32), {}

    def step(self, action: np.int64) -> _Step:
        return np.array([self._sign], np.float32), self._sign, True, False, {}


class ActionReward(gymnasium.Env[Array, np.int64]):
    """One step, reward 1 if action 0 or 1 answers the −1 or 1 seen, else −1: fails if acting ignores what is seen."""

    observation_space = Box(-1.0, 1.0, (1,), np.float32)
    action_space = Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._right = int(self.np_random.integers(2))
        return self._seen(), {}

    def step(self, action: np.int64) -> _Step:
        return self._seen(), 1.0 if action == self._right else -1.0, True, False, {}

    def _seen(self) -> Array:
        return np.array([2 * self._right - 1], np.float32)


class Delayed(gymnasium.Env[Array, np.int64]):
    """`delay` steps, reward 1 at the last if the first action was the highest: fails if returns are wrong.

    The observation is the share of the way done and the first action (0.5 before it).
    """

    observation_space = Box(0.0, 1.0, (2,), np.float32)

    def __init__(self, delay: int, num_actions: int) -> None:
        self._delay = delay
        self._rewarded = num_actions - 1
        self.action_space = Discrete(num_actions)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._t = 0
        self._first = 0.5
        return self._seen(), {}

    def step(self, action: np.int64) -> _Step:
        if self._t == 0:
            self._first = 1.0 if action == self._rewarded else 0.0
        self._t += 1
        done = self._t == self._delay
        return self._seen(), self._first if done else 0.0, done, False, {}

    def _seen(self) -> Array:
        return np.array([self._t / self._delay, self._first], np.float32)


class Cue(gymnasium.Env[Array, np.int64]):
    """A cue ±1 in the first frame only; reward 1 if the last of `delay` actions, 0 or 1, answers it, else −1.

    The observation is the cue (0 afterwards) and the share of the way done: an agent whose frames do not reach back to
    the first can only guess, so its mean return stays near 0 unless it remembers.
    """

    observation_space = Box(-1.0, 1.0, (2,), np.float32)
    action_space = Discrete(2)

    def __init__(self, delay: int) -> None:
        self._delay = delay

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._right = int(self.np_random.integers(2))
        self._t = 0
        return self._seen(), {}

    def step(self, action: np.int64) -> _Step:
        self._t += 1
        done = self._t == self._delay
        reward = (1.0 if action == self._right else -1.0) if done else 0.0
        return self._seen(), reward, done, False, {}

    def _seen(self) -> Array:
        cue = 2 * self._right - 1 if self._t == 0 else 0
        return np.array([cue, self._t / self._delay], np.float32)


class Counting(gymnasium.Env[Array, np.int64]):
    """Stamps (seed, episode, t, last action) into its observation: a stored step tells where it comes from.

    Episode e lasts `lengths[e mod len]` steps and ends by truncation where e is odd, else by termination; the reward
    is t. The seed is given modulo 2²⁰, which float32 holds exactly; an unseeded reset keeps the last one.
    The count of episodes outlives every seed, so this is also a world that a resume cannot bring back.
    """

    observation_space = Box(-1.0, 2.0**24, (4,), np.float32)
    action_space = Discrete(4)

    def __init__(self, lengths: tuple[int, ...] = (3, 1, 7, 2, 5)) -> None:
        self._lengths = lengths
        self._seed = 0
        self._episode = -1

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        if seed is not None:
            self._seed = seed % 2**20
        self._episode += 1
        self._t = 0
        self._last = -1
        return self._seen(), {}

    def step(self, action: np.int64) -> _Step:
        self._t += 1
        self._last = int(action)
        done = self._t >= self._lengths[self._episode % len(self._lengths)]
        by_limit = self._episode % 2 == 1
        return self._seen(), float(self._t), done and not by_limit, done and by_limit, {}

    def _seen(self) -> Array:
        return np.array([self._seed, self._episode, self._t, self._last], np.float32)


class Stamped(gymnasium.Env[Array, np.int64]):
    """Pictures that tell seed and step of their episode by every pixel: a row that is not whole shows it.

    Reward and ends follow from seed, step and action alone, so a row can be checked by itself. Episodes last 3 … 60
    steps, half of them are cut by truncation.
    """

    observation_space = Box(0, 255, STAMPED_SHAPE, np.uint8)
    action_space = Discrete(4)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Array, dict[str, Any]]:
        super().reset(seed=seed)
        self._seed = int(self.np_random.integers(2**31)) if seed is None else seed
        self._t = 0
        return stamped_frame(self._seed, 0), {}

    def step(self, action: np.int64) -> _Step:
        reward, terminated, truncated = stamped_outcome(self._seed, self._t, int(action))
        self._t += 1
        return stamped_frame(self._seed, self._t), reward, terminated, truncated, {}


def stamped_frame(seed: int, step: int) -> Array:
    """Return the picture of one moment: seed and step in its first bytes, and a pattern of both in all others."""
    pixels: Array = (np.arange(np.prod(STAMPED_SHAPE)) * (2 * step + 1) + seed * 31 + 1).astype(np.uint8)
    pixels[:STAMP_BYTES] = np.array([seed, step], "<u4").view(np.uint8)
    return pixels.reshape(STAMPED_SHAPE)


def stamped_outcome(seed: int, step: int, action: int) -> tuple[float, bool, bool]:
    """Return reward, terminated and truncated of what is done at a step."""
    is_last = step + 1 == 3 + seed % 58
    is_cut = seed // 58 % 2 == 1
    return ((seed + 7 * step + 3 * action) % 17 - 8) / 8, is_last and not is_cut, is_last and is_cut


def read_stamp(frame: Array) -> tuple[int, int] | None:
    """Return seed and step of a picture, or None if any pixel is not as it should be."""
    seed, step = np.ascontiguousarray(frame).reshape(-1)[:STAMP_BYTES].view("<u4").tolist()
    return (seed, step) if np.array_equal(frame, stamped_frame(seed, step)) else None


def stamped_row_error(
    frames: Array, *, action: int, reward: float, terminated: bool, truncated: bool | None = None
) -> str | None:
    """Say what is wrong with a row of K + 1 frames: the state, of zeros before an episode, and the frame that follows.

    Where it can't be told whether an episode was cut, `truncated` is None.
    """
    stamp = read_stamp(frames[-2])
    if stamp is None:
        return "the newest frame of the state is torn"
    seed, step = stamp
    for age in range(-1, len(frames) - 1):
        expected = stamped_frame(seed, step - age) if age <= step else np.zeros(STAMPED_SHAPE, np.uint8)
        if not np.array_equal(frames[-2 - age], expected):
            return f"frame {-age} from step {step} of episode {seed} is {read_stamp(frames[-2 - age]) or 'torn'}"
    outcome = stamped_outcome(seed, step, action)
    told = (reward, terminated, outcome[2] if truncated is None else truncated)
    return None if told == outcome else f"step {step} of episode {seed} gives {outcome}, not {told}"


def register() -> None:
    """Make the probes known to Gymnasium as probe/…-v0."""
    for kind in (Constant, Endless, ObsValue, ActionReward, Counting, Stamped):
        gymnasium.register(f"probe/{kind.__name__}-v0", entry_point=kind)
    gymnasium.register("probe/Discount-v0", entry_point=Delayed, kwargs={"delay": 2, "num_actions": 1})
    gymnasium.register("probe/Delayed-v0", entry_point=Delayed, kwargs={"delay": 5, "num_actions": 2})
    gymnasium.register("probe/Cue-v0", entry_point=Cue, kwargs={"delay": 6})

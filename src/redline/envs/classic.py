"""Any Gymnasium env with discrete actions and array observations, N copies stepped in one thread.

Every episode is seeded with a key of its own, so a resume lives only the episodes under way again.
"""

import math
import warnings
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from redline.envs.catalog import EnvKind
from redline.envs.ledger import Ledger, checksums
from redline.envs.vector import EnvError, Progress, State, checked_actions
from redline.errors import UserError
from redline.types import Array, BoolArray, EnvSpec, FloatArray, IntArray, VectorStep

_GymEnv = gymnasium.Env[Any, Any]


class ClassicVectorEnv:
    """N copies of one Gymnasium env; `send` keeps the actions, `recv` takes the step."""

    def __init__(self, kind: EnvKind, *, stack: int, max_episode_frames: int, num_envs: int, seed: int) -> None:
        self._id = kind.gymnasium_id
        self._envs = [make_gymnasium_env(self._id) for _ in range(num_envs)]
        actions, observations = checked_spaces(self._id, self._envs[0])
        self._first_action = int(actions.start)
        self._to_frame = frame_converter(observations)
        frame = self._to_frame(np.zeros(observations.shape, observations.dtype))
        self.spec = EnvSpec(
            name=kind.name,
            frame_shape=frame.shape,
            frame_dtype=str(frame.dtype),
            stack=stack,
            num_actions=int(actions.n),
            frames_per_step=1,
        )
        self.protocol = f"Gymnasium {self._id}: one action per step, observations as the env gives them"
        self.num_envs = num_envs
        self._max_episode_frames = max_episode_frames
        self._ledger = Ledger(num_envs, num_actions=self.spec.num_actions, run_seed=seed)
        self._frames: Array | None = None
        self._pending: IntArray | None = None

    @property
    def frames(self) -> Array:
        """The newest frame of every lane [N, *frame]."""
        if self._frames is None:
            raise RuntimeError(f"{self._id} has no frames before reset()")
        return self._frames

    @property
    def key_seed(self) -> IntArray:
        """The key seed [N] of the episode now running."""
        return self._ledger.seed

    @property
    def steps_since_key(self) -> IntArray:
        """Actions [N] taken in the episode now running."""
        return self._ledger.steps

    def actions_since_key(self, lane: int) -> Array:
        """Return those actions of one lane."""
        return self._ledger.actions(lane)

    def reset(self) -> Array:
        """Begin an episode in every lane from its next key seed."""
        self._pending = None
        self._ledger.rekey(np.ones(self.num_envs, np.bool_))
        self._frames = np.stack([self._begin(lane) for lane in range(self.num_envs)])
        return self._frames

    def send(self, actions: IntArray) -> None:
        """Keep the actions for `recv`."""
        if self._pending is not None or self._frames is None:
            raise RuntimeError(f"{self._id}: send() follows reset() or recv(), once")
        self._pending = checked_actions(actions, num_envs=self.num_envs, num_actions=self.spec.num_actions)

    def recv(self) -> VectorStep:
        """Step every lane and begin the next episode where one ended."""
        if self._pending is None:
            raise RuntimeError(f"{self._id}: recv() follows send(), once")
        actions, self._pending = self._pending, None
        frames = np.empty_like(self.frames)
        reward: FloatArray = np.zeros(self.num_envs, np.float32)
        terminated: BoolArray = np.zeros(self.num_envs, np.bool_)
        truncated: BoolArray = np.zeros(self.num_envs, np.bool_)
        for lane in range(self.num_envs):
            frames[lane], reward[lane], terminated[lane], truncated[lane] = self._step(lane, int(actions[lane]))
        self._ledger.record(actions)
        truncated |= ~terminated & (self._ledger.steps >= self._max_episode_frames)
        first_frames = self._begin_next(frames, terminated | truncated)
        self._frames = first_frames
        return VectorStep(
            frames=frames,
            reward=reward,
            terminated=terminated,
            truncated=truncated,
            life_lost=np.zeros(self.num_envs, np.bool_),
            first_frames=first_frames,
        )

    def state(self) -> State:
        """Return what `restore` needs."""
        if self._pending is not None:
            raise RuntimeError(f"{self._id}: state() between send() and recv() would lose a step")
        return self._ledger.state() | {"frame_crc32": checksums(self.frames)}

    def restore(self, state: State, progress: Progress | None = None) -> bool:
        """Live the episodes under way again; False, with new ones begun, if a frame differs."""
        self._pending = None
        if self._ledger.load(state):
            frames = []
            for lane in range(self.num_envs):
                frames.append(self._relive(lane))
                if progress is not None:
                    progress((lane + 1) / self.num_envs)
            self._frames = np.stack(frames)
            if np.array_equal(checksums(self._frames), state["frame_crc32"]):
                return True
        self.reset()
        return False

    def close(self) -> None:
        """Close every copy."""
        for env in self._envs:
            env.close()

    def _begin_next(self, frames: Array, ended: BoolArray) -> Array:
        if not ended.any():
            return frames
        self._ledger.rekey(ended)
        first_frames = frames.copy()
        for lane in np.flatnonzero(ended):
            first_frames[lane] = self._begin(int(lane))
        return first_frames

    def _begin(self, lane: int) -> Array:
        try:
            observation, _ = self._envs[lane].reset(seed=int(self._ledger.seed[lane]))
        except Exception as error:
            raise self._failure(lane, repr(error)) from error
        return self._to_frame(observation)

    def _step(self, lane: int, action: int) -> tuple[Array, float, bool, bool]:
        try:
            observation, reward, terminated, truncated, _ = self._envs[lane].step(action + self._first_action)
        except Exception as error:
            raise self._failure(lane, repr(error)) from error
        if not math.isfinite(reward):
            raise self._failure(lane, f"a reward of {reward}")
        return self._to_frame(observation), float(reward), bool(terminated), bool(truncated)

    def _failure(self, lane: int, what: str) -> EnvError:
        return EnvError(f"{self._id} failed in lane {lane}, key seed {self._ledger.seed[lane]}: {what}")

    def _relive(self, lane: int) -> Array:
        frame = self._begin(lane)
        for action in self._ledger.actions(lane):
            frame, _, terminated, truncated = self._step(lane, int(action))
            if terminated or truncated:
                break  # it did not end where it was saved: the checksum will tell
        return frame


def make_gymnasium_env(env_id: str, **options: Any) -> _GymEnv:
    """Return one copy; UserError where Gymnasium can't make it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an old version is the user's choice
            return gymnasium.make(env_id, disable_env_checker=True, **options)
    except (gymnasium.error.Error, ImportError) as error:
        raise UserError(f"env {env_id!r} cannot be made: {' '.join(str(error).split())}") from error


def checked_spaces(env_id: str, env: _GymEnv) -> tuple[Discrete, Box]:
    """Return actions and observations, if they are of a kind that an agent here can use."""
    actions, observations = env.action_space, env.observation_space
    if not isinstance(actions, Discrete):
        form = "continuous" if isinstance(actions, Box) else type(actions).__name__
        raise UserError(f"env {env_id!r} has {form} actions: choose one with discrete actions, such as CartPole-v1")
    if not isinstance(observations, Box):
        form = type(observations).__name__
        raise UserError(f"env {env_id!r} has {form} observations: choose one that gives arrays, such as CartPole-v1")
    return actions, observations


def frame_converter(space: Box) -> Callable[[Any], Array]:
    """Return the way from an observation to a frame: bytes in two or more axes are a picture, all else a vector."""
    if space.dtype != np.uint8 or len(space.shape) not in (2, 3):
        return lambda observation: np.asarray(observation, np.float32).reshape(-1)
    if len(space.shape) == 2:
        return np.array
    if space.shape[-1] == 1:
        return lambda observation: np.array(observation[..., 0])
    return lambda observation: np.ascontiguousarray(np.moveaxis(observation, -1, 0))  # [C, H, W]

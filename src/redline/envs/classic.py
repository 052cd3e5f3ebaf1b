"""Any Gymnasium env with discrete actions and array observations, N copies stepped in one thread.

Every episode has a seed of its own, so a resume replays only the running episodes.
"""

import math
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from redline.envs.config import EnvConfig
from redline.envs.vector import EnvError, Ledger, State, VectorEnv, checked_actions, checksums
from redline.errors import UserError
from redline.types import Adjustment, Array, BoolArray, EnvSpec, FloatArray, IntArray, Progress, VectorStep

GymEnv = gymnasium.Env[Any, Any]
MakeEnv = Callable[..., GymEnv]  # takes options of Gymnasium, such as render_mode
MakeVector = Callable[..., VectorEnv]  # takes what EnvKind.make_vector takes
Draw = Callable[[GymEnv], Array]  # returns a picture [H, W, 3] uint8 of the env's state
Presets = Mapping[str, Mapping[str, Any]]  # by algorithm, or by ANY_ALGORITHM

ANY_ALGORITHM = "any"  # in presets: for every algorithm without its own
BYTE = 255  # where a boolean picture is true


def gymnasium_env(env_id: str) -> "GymnasiumEnv":
    """Return the env that Gymnasium has registered under an id."""
    return GymnasiumEnv(env_id, partial(make_gymnasium_env, env_id))


@dataclass(frozen=True)
class GymnasiumEnv:
    """An env with Gymnasium's interface, discrete actions, and arrays or pictures as observations."""

    gymnasium_id: str
    make: MakeEnv
    presets_by_algorithm: Presets = field(default_factory=dict)
    draw: Draw | None = None  # instead of what the env renders
    vector: MakeVector | None = None  # instead of N copies stepped one after the other

    frame_skip = 1

    @property
    def name(self) -> str:
        """A short name, safe for a folder."""
        return re.sub(r"[^a-z0-9._-]+", "-", self.gymnasium_id.lower())

    @property
    def rules(self) -> str:
        """The rules in training: the env's own."""
        return f"Gymnasium {self.gymnasium_id}: one action per step, observations as the env gives them"

    @property
    def evaluation_rules(self) -> str:
        """The rules in evaluation: the same."""
        return self.rules

    @cached_property
    def spaces(self) -> tuple[Discrete, Box]:
        """Spaces of actions and observations, read once from a copy."""
        env = self.make_one()
        try:
            return checked_spaces(self.gymnasium_id, env)
        finally:
            env.close()

    def spec(self, config: EnvConfig) -> EnvSpec:
        """Return what a network and a replay memory must know."""
        if self.vector is not None:
            lanes = self.make_vector(config, num_envs=1, seed=0, threads=1, seed_interval_steps=0)
            spec = lanes.spec
            lanes.close()
            return spec
        actions, observations = self.spaces
        frame = frame_converter(observations)(np.zeros(observations.shape, observations.dtype))
        return EnvSpec(
            name=self.name,
            frame_shape=frame.shape,
            frame_dtype=str(frame.dtype),
            stack=config.stack,
            num_actions=int(actions.n),
            frames_per_step=1,
        )

    def effective(self, config: EnvConfig) -> tuple[EnvConfig, list[Adjustment]]:
        """Return the effective settings: pictures keep their size, and no action is repeated."""
        adjustments = [Adjustment("env.size", str(config.size), "native", "only Atari pictures are scaled")]
        if config.skip != 1:
            adjustments.append(Adjustment("env.skip", str(config.skip), "1", "only Atari games repeat an action"))
        return replace(config, skip=1), adjustments

    def presets(self, algorithm: str) -> Mapping[str, Any]:
        """Return an algorithm's defaults for this env."""
        return self.presets_by_algorithm.get(algorithm, self.presets_by_algorithm.get(ANY_ALGORITHM, {}))

    def action_names(self, num_actions: int) -> Sequence[str]:
        """Return the actions' numbers."""
        return [str(action) for action in range(num_actions)]

    def make_vector(
        self, config: EnvConfig, *, num_envs: int, seed: int, threads: int, seed_interval_steps: int
    ) -> VectorEnv:
        """Return N lanes: the env's own vector, or copies stepped in one thread, with a seed for each episode."""
        if self.vector is not None:
            return self.vector(
                config, num_envs=num_envs, seed=seed, threads=threads, seed_interval_steps=seed_interval_steps
            )
        return ClassicVectorEnv(self, config, num_envs=num_envs, seed=seed)

    def make_one(self, **options: Any) -> GymEnv:
        """Return one copy; UserError if it can't be made, TypeError if it does not know an option."""
        try:
            return self.make(**options)
        except UserError:
            raise
        except Exception as error:  # of foreign code
            if options and isinstance(error, TypeError):
                raise
            raise UserError(f"env {self.gymnasium_id!r} cannot be made: {error!r}") from error


class ClassicVectorEnv:
    """N copies of one Gymnasium env; `send` keeps the actions, `recv` steps the copies."""

    def __init__(self, kind: GymnasiumEnv, config: EnvConfig, *, num_envs: int, seed: int) -> None:
        self._id = kind.gymnasium_id
        actions, observations = kind.spaces
        self._first_action = int(actions.start)
        self._to_frame = frame_converter(observations)
        self.spec: EnvSpec = kind.spec(config)
        self._envs = [kind.make_one() for _ in range(num_envs)]
        self.num_envs = num_envs
        self._max_episode_frames = config.max_episode_frames
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
    def reset_seed(self) -> IntArray:
        """The seed [N] of the running episode."""
        return self._ledger.seed

    @property
    def steps_since_seed(self) -> IntArray:
        """Actions [N] taken in the running episode."""
        return self._ledger.steps

    def actions_since_seed(self, lane: int, begin: int = 0, end: int | None = None) -> Array:
        """Return those actions of one lane, or a part; after an episode's end, until the next `send`."""
        return self._ledger.actions(lane, begin, end)

    def reset(self) -> Array:
        """Begin an episode in every lane from its next seed."""
        self._pending = None
        self._ledger.reseed(np.ones(self.num_envs, np.bool_))
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
        """Replay the running episodes; False, with new ones begun, if a frame differs."""
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
        self._ledger.reseed(ended)
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
        return EnvError(f"{self._id} failed in lane {lane}, seed {self._ledger.seed[lane]}: {what}")

    def _relive(self, lane: int) -> Array:
        frame = self._begin(lane)
        for action in self._ledger.actions(lane):
            frame, _, terminated, truncated = self._step(lane, int(action))
            if terminated or truncated:
                break  # it did not end where it was saved: the checksum will tell
        return frame


def make_gymnasium_env(env_id: str, **options: Any) -> GymEnv:
    """Return one copy; UserError if Gymnasium can't make it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # an old version is the user's choice
            return gymnasium.make(env_id, disable_env_checker=True, **options)
    except (gymnasium.error.Error, ImportError) as error:
        raise UserError(f"env {env_id!r} cannot be made: {' '.join(str(error).split())}") from error


def checked_spaces(env_id: str, env: GymEnv) -> tuple[Discrete, Box]:
    """Return the spaces of actions and observations; UserError if no algorithm here can use them."""
    actions, observations = env.action_space, env.observation_space
    if not isinstance(actions, Discrete):
        form = "continuous" if isinstance(actions, Box) else type(actions).__name__
        raise UserError(f"env {env_id!r} has {form} actions: choose one with discrete actions, such as CartPole-v1")
    if not isinstance(observations, Box):
        form = type(observations).__name__
        raise UserError(f"env {env_id!r} has {form} observations: choose one that gives arrays, such as CartPole-v1")
    return actions, observations


def frame_converter(space: Box) -> Callable[[Any], Array]:
    """Return the function from observation to frame: bytes or booleans in two or three axes are a picture.

    All else is a vector. Channels come first in a frame [C, H, W]; an env has them first or last, on the smaller axis.
    """
    is_boolean = space.dtype == np.bool_
    if not (is_boolean or space.dtype == np.uint8) or len(space.shape) not in (2, 3):
        return lambda observation: np.asarray(observation, np.float32).reshape(-1)

    def to_frame(observation: Any) -> Array:
        picture = np.asarray(observation, np.uint8)
        if picture.ndim == 3 and space.shape[0] >= space.shape[-1]:  # more pixels each way than channels
            picture = np.moveaxis(picture, -1, 0)
        if picture.ndim == 3 and len(picture) == 1:
            picture = picture[0]
        # always a copy: an env may show the same array again, with other content
        return np.array(picture * BYTE if is_boolean else picture, order="C")

    return to_frame

"""A recorded lane lives again: the same key seed and the same actions give the same frames, bit for bit."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple, Protocol

import numpy as np
from ale_py import ALEInterface, LoggerMode, roms
from ale_py.vector_env import AtariVectorEnv as Emulator
from gymnasium.error import Error as GymnasiumError
from gymnasium.vector import AutoresetMode

from redline.envs.catalog import resolve
from redline.envs.classic import GymnasiumEnv, frame_converter
from redline.errors import UserError
from redline.recordings.episode import RecordingError
from redline.recordings.setting import Setting
from redline.types import Array

_GO_ON = np.array([-1])  # to the emulator: reset, and go on with the random numbers you have
_THE_LANE = np.ones(1, np.bool_)


class Relived(NamedTuple):
    """What a step gave."""

    frame: Array
    reward: np.float32
    terminated: bool
    truncated: bool

    @property
    def ended(self) -> bool:
        """Whether the episode is over."""
        return self.terminated or self.truncated


class Rerun(Protocol):
    """One lane, from its key on."""

    def begin(self, seed: int) -> Array:
        """Begin at a key seed and return the first frame."""
        ...

    def begin_next(self) -> Array:
        """Begin the next episode after one has ended and return its first frame."""
        ...

    def step(self, action: int) -> Relived:
        """Take an action."""
        ...

    def close(self) -> None:
        """Give back what it holds."""
        ...


def make_rerun(setting: Setting, *, in_colour: bool = False) -> Rerun:
    """Return a lane that shows frames as the agent saw them, or pictures [H, W, 3] to look at."""
    if setting.game is not None:
        return AtariRerun(setting, in_colour=in_colour)
    return GymnasiumPictures(setting) if in_colour else GymnasiumRerun(setting)


def find_env(setting: Setting) -> GymnasiumEnv:
    """Return the env, other than an Atari game, that was recorded."""
    kind = resolve(setting.gymnasium_id)
    if not isinstance(kind, GymnasiumEnv):
        raise RecordingError(f"{setting.gymnasium_id} is an Atari game, but was not recorded as one")
    return kind


class AtariRerun:
    """One emulator."""

    def __init__(self, setting: Setting, *, in_colour: bool = False) -> None:
        options = dict(setting.options)
        if in_colour:
            height, width = screen_size(setting.game or "")
            options |= {"grayscale": False, "img_height": height, "img_width": width, "stack_num": 1, "maxpool": False}
        self._num_actions = setting.num_actions
        try:
            self._emulator = Emulator(
                setting.game or "",
                1,
                batch_size=1,
                num_threads=1,
                thread_affinity_offset=-1,
                autoreset_mode=AutoresetMode.NEXT_STEP,
                **options,
            )
        except (TypeError, ValueError, RuntimeError, GymnasiumError) as error:
            raise RecordingError(f"the emulator can't be set up as it was: {error}") from error
        if (known := len(self._emulator.ale.get_action_set())) != setting.num_actions:
            self._emulator.close()
            raise RecordingError(f"{setting.num_actions} actions were recorded, the game has {known}")

    def begin(self, seed: int) -> Array:
        """Begin at a key seed and return the first frame."""
        frames, _ = self._emulator.reset(seed=np.array([seed]))
        return np.asarray(frames[0, 0])

    def begin_next(self) -> Array:
        """Begin the next episode, with the random numbers that are left."""
        frames, _ = self._emulator.reset(seed=_GO_ON, options={"reset_mask": _THE_LANE})
        return np.asarray(frames[0, 0])

    def step(self, action: int) -> Relived:
        """Take an action; one that the game does not know would stop the emulator for ever."""
        if not 0 <= action < self._num_actions:
            raise RecordingError(f"action {action}, of {self._num_actions}")
        self._emulator.send(np.array([action]))
        frames, reward, terminated, truncated, _ = self._emulator.recv()
        return Relived(frames[0, 0], np.float32(reward[0]), bool(terminated[0]), bool(truncated[0]))

    def close(self) -> None:
        """End its thread."""
        self._emulator.close()


class GymnasiumRerun:
    """One env of Gymnasium."""

    def __init__(self, setting: Setting, **options: object) -> None:
        self._kind = find_env(setting)
        self._env = self._kind.make_one(**options)
        actions, observations = self._kind.spaces
        self._first_action, self._num_actions = int(actions.start), int(actions.n)
        self._to_frame = frame_converter(observations)
        self._most_steps = int(setting.options.get("max_episode_frames", 2**62))
        self._steps = 0

    def begin(self, seed: int) -> Array:
        """Begin at a key seed and return the first frame."""
        observation, _ = self._env.reset(seed=seed)
        self._steps = 0
        return self._shown(self._to_frame(observation))

    def begin_next(self) -> Array:
        """Refuse: every episode of such an env has a key of its own."""
        raise RecordingError("an episode that begins without a key seed")

    def step(self, action: int) -> Relived:
        """Take an action."""
        if not 0 <= action < self._num_actions:
            raise RecordingError(f"action {action}, of {self._num_actions}")
        observation, reward, terminated, truncated, _ = self._env.step(action + self._first_action)
        self._steps += 1
        is_cut = bool(truncated) or (not terminated and self._steps >= self._most_steps)
        return Relived(self._shown(self._to_frame(observation)), np.float32(reward), bool(terminated), is_cut)

    def close(self) -> None:
        """Close it."""
        self._env.close()

    def _shown(self, frame: Array) -> Array:
        return frame


class GymnasiumPictures(GymnasiumRerun):
    """The same env with pictures to look at: what it renders, or what the agent sees if that is a picture."""

    def __init__(self, setting: Setting) -> None:
        try:
            super().__init__(setting, render_mode="rgb_array")
        except (UserError, GymnasiumError, TypeError):  # it may know of no such option
            super().__init__(setting)

    def _shown(self, frame: Array) -> Array:
        if self._kind.draw is not None:
            return np.asarray(self._kind.draw(self._env), np.uint8)
        if self._env.render_mode == "rgb_array":
            try:
                return np.asarray(self._env.render(), np.uint8)
            except (GymnasiumError, ImportError) as error:
                raise UserError(f"this env can't be drawn: {' '.join(str(error).split())}") from error
        if frame.dtype != np.uint8:
            raise UserError("this env shows no pictures: nothing can be drawn")
        if frame.ndim == 3 and len(frame) != 3:  # channels that are no colours
            frame = frame.max(0)
        planes = frame if frame.ndim == 3 else np.stack([frame] * 3)  # [3, H, W]
        return np.ascontiguousarray(np.moveaxis(planes, 0, -1))


@cache
def screen_size(game: str) -> tuple[int, int]:
    """Return height and width of a game's own screen."""
    ALEInterface.setLoggerMode(LoggerMode.Error)
    rom = roms.get_rom_path(game)
    if rom is None:
        raise RecordingError(f"the ROM of {game} is not here")
    emulator = ALEInterface()
    emulator.loadROM(rom)
    height, width = emulator.getScreenDims()
    return int(height), int(width)

"""Plays recorded episodes again: the same seed and actions give the same frames, bit for bit.

The frames are those that the agent saw, or colour pictures for people.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from gymnasium.error import Error as GymnasiumError

from redline.envs.atari import start_emulator
from redline.envs.atari_games import screen_size
from redline.envs.catalog import resolve
from redline.envs.classic import GymEnv, GymnasiumEnv, frame_converter
from redline.episodes.episode import RecordingError, Trace
from redline.episodes.library import Entry, Library
from redline.episodes.setting import Setting
from redline.errors import UserError
from redline.types import Array, Progress

RequestedStop = Callable[[], str | None]

EMULATOR_FRAMES_PER_S = 60
USUAL_PICTURES_PER_S = 15  # of an env that names no speed
MAX_PICTURES_PER_S = 240

_NO_SEED = np.array([-1])  # the emulator resets and continues with its own random numbers
_THE_LANE = np.ones(1, np.bool_)


class Replayed(NamedTuple):
    """The outcome of a step."""

    frame: Array
    reward: np.float32
    terminated: bool
    truncated: bool

    @property
    def ended(self) -> bool:
        """Whether the episode is over."""
        return self.terminated or self.truncated


class Replay:
    """One lane, played again from a reset seed, episode after episode."""

    def __init__(self, setting: Setting, *, in_colour: bool = False) -> None:
        if setting.game is not None:
            self._world: _AtariLane | _GymnasiumLane = _AtariLane(setting, setting.game, in_colour=in_colour)
        else:
            self._world = _GymnasiumLane(setting, in_colour=in_colour)
        self.has_ended = False  # the newest step ended the episode

    def begin(self, seed: int) -> Array:
        """Reset with a seed and return the first frame."""
        self.has_ended = False
        return self._world.reset(seed)

    def begin_next(self) -> Array:
        """Begin the next episode after one has ended and return its first frame."""
        self.has_ended = False
        return self._world.reset(None)

    def play(self, action: int) -> Replayed:
        """Take an action, in the next episode if one has ended."""
        if not 0 <= action < self._world.num_actions:  # an unknown action would hang an emulator
            raise RecordingError(f"action {action}, of {self._world.num_actions}")
        if self.has_ended:
            self.begin_next()
        step = self._world.step(action)
        self.has_ended = step.ended
        return step

    def close(self) -> None:
        """Close the env."""
        self._world.close()


class _AtariLane:
    """One emulator."""

    def __init__(self, setting: Setting, game: str, *, in_colour: bool) -> None:
        options = dict(setting.options)
        if in_colour:
            height, width = screen_size(game)
            options |= {"grayscale": False, "img_height": height, "img_width": width, "stack_num": 1, "maxpool": False}
        self.num_actions = setting.num_actions
        try:
            self._emulator = start_emulator(game, options, num_envs=1, threads=1)
        except (TypeError, ValueError, RuntimeError, GymnasiumError) as error:
            raise RecordingError(f"the emulator can't be set up as it was: {error}") from error
        if (known := len(self._emulator.ale.get_action_set())) != setting.num_actions:
            self._emulator.close()
            raise RecordingError(f"{setting.num_actions} actions were recorded, the game has {known}")

    def reset(self, seed: int | None) -> Array:
        if seed is None:
            frames, _ = self._emulator.reset(seed=_NO_SEED, options={"reset_mask": _THE_LANE})
        else:
            frames, _ = self._emulator.reset(seed=np.array([seed]))
        return np.asarray(frames[0, 0])

    def step(self, action: int) -> Replayed:
        self._emulator.send(np.array([action]))
        frames, reward, terminated, truncated, _ = self._emulator.recv()
        return Replayed(frames[0, 0], np.float32(reward[0]), bool(terminated[0]), bool(truncated[0]))

    def close(self) -> None:
        self._emulator.close()


class _GymnasiumLane:
    """One Gymnasium env. In colour it shows what it renders, or the observation if that is a picture."""

    def __init__(self, setting: Setting, *, in_colour: bool) -> None:
        self._kind = find_env(setting)
        self._in_colour = in_colour
        self._env = _make_drawable(self._kind) if in_colour else self._kind.make_one()
        actions, observations = self._kind.spaces
        self._first_action, self.num_actions = int(actions.start), int(actions.n)
        self._to_frame = frame_converter(observations)
        self._max_steps = int(setting.options.get("max_episode_frames", 2**62))
        self._steps = 0

    def reset(self, seed: int | None) -> Array:
        if seed is None:  # every episode of such an env has its own seed
            raise RecordingError("an episode that begins without a seed")
        observation, _ = self._env.reset(seed=seed)
        self._steps = 0
        return self._show(self._to_frame(observation))

    def step(self, action: int) -> Replayed:
        observation, reward, terminated, truncated, _ = self._env.step(action + self._first_action)
        self._steps += 1
        is_cut = bool(truncated) or (not terminated and self._steps >= self._max_steps)
        return Replayed(self._show(self._to_frame(observation)), np.float32(reward), bool(terminated), is_cut)

    def close(self) -> None:
        self._env.close()

    def _show(self, frame: Array) -> Array:
        if not self._in_colour:
            return frame
        if self._kind.draw is not None:
            return np.asarray(self._kind.draw(self._env), np.uint8)
        if self._env.render_mode == "rgb_array":
            try:
                return np.asarray(self._env.render(), np.uint8)
            except (GymnasiumError, ImportError) as error:
                raise UserError(f"this env can't be drawn: {' '.join(str(error).split())}") from error
        if frame.dtype != np.uint8:
            raise UserError("this env shows no pictures: nothing can be drawn")
        if frame.ndim == 3 and len(frame) != 3:  # channels other than colours
            frame = frame.max(0)
        planes = frame if frame.ndim == 3 else np.stack([frame] * 3)  # [3, H, W]
        return np.ascontiguousarray(np.moveaxis(planes, 0, -1))


def _make_drawable(kind: GymnasiumEnv) -> GymEnv:
    try:
        return kind.make_one(render_mode="rgb_array")
    except (UserError, GymnasiumError, TypeError):  # it may lack the option
        return kind.make_one()


def find_env(setting: Setting) -> GymnasiumEnv:
    """Return the recorded env, other than an Atari game."""
    kind = resolve(setting.gymnasium_id)
    if not isinstance(kind, GymnasiumEnv):
        raise RecordingError(f"{setting.gymnasium_id} is an Atari game, but was not recorded as one")
    return kind


@dataclass(frozen=True)
class Picture:
    """The screen after a step, the step's outcome, and the agent's values."""

    step: int  # of the episode; 0 is the first picture
    image: Array  # [H, W, 3] uint8
    reward: float  # of this step
    total_reward: float  # up to here
    action: int | None  # that the agent took next; None at the end
    values: Array | None  # [A] float32: its values before acting; None if not recorded


class StoppedWhilePlayingError(Exception):
    """A stop was requested before all episodes were played again."""


def iterate_pictures(
    library: Library,
    entry: Entry,
    *,
    progress: Progress = lambda _: None,
    requested_stop: RequestedStop = lambda: None,
) -> Generator[Picture, None, None]:
    """Yield the first picture of an episode and one per step; raise RecordingError if it differs from the recording.

    The steps between its seed and its beginning are played as well, and count for `progress`. The emulator does not
    redraw the screen when a game is over: the last picture of an Atari episode equals the one before.
    """
    trace = library.load(entry)
    actions: list[int] = library.actions_since_seed(entry).tolist()
    if len(actions) != trace.end_steps:
        raise RecordingError(f"{len(actions):,} of {trace.end_steps:,} actions since the seed are known")
    replay = Replay(library.setting_of(entry), in_colour=True)
    try:
        for done, picture in _play(replay, trace, actions):
            progress(done / len(actions))
            if reason := requested_stop():
                raise StoppedWhilePlayingError(f"{reason} after {done:,} of {len(actions):,} steps")
            if picture is not None:
                yield picture
    finally:
        replay.close()


def _play(replay: Replay, trace: Trace, actions: list[int]) -> Iterator[tuple[int, Picture | None]]:
    """Yield the number of steps since the seed, and the picture if it belongs to the episode."""
    image = replay.begin(trace.reset_seed)
    for number, action in enumerate(actions[: trace.seed_offset_steps], start=1):
        replay.play(action)
        yield number, None
    if trace.seed_offset_steps:
        if not replay.has_ended:
            raise RecordingError("the episode before it does not end where it was recorded to end")
        image = replay.begin_next()
    total = reward = 0.0
    for number, action in enumerate(actions[trace.seed_offset_steps :]):
        picture = Picture(number, np.array(image), reward, total, action, _values_at(trace, number))
        yield trace.seed_offset_steps + number, picture
        step = replay.play(action)
        image, reward = step.frame, float(step.reward)
        total += reward
        if step.ended != (number + 1 == trace.length_steps):
            end = "ended" if step.ended else "did not end"
            raise RecordingError(f"it {end} at step {number + 1:,}, recorded were {trace.length_steps:,}")
    if total != trace.total_reward:
        raise RecordingError(f"its return is {total:g}, recorded was {trace.total_reward:g}")
    yield trace.end_steps, Picture(trace.length_steps, np.array(image), reward, total, None, None)


def _values_at(trace: Trace, number: int) -> Array | None:
    if trace.values is None:
        return None
    values: Array = trace.values[number].astype(np.float32)
    return values if np.isfinite(values).all() else None


def pictures_per_s(setting: Setting) -> Fraction:
    """Return the pictures per second of play: 60 emulator frames, or the env's own rate."""
    if setting.game is not None:
        return Fraction(EMULATOR_FRAMES_PER_S, setting.options["frameskip"])
    env = find_env(setting).make_one()
    told = env.metadata.get("render_fps")
    env.close()
    is_usable = isinstance(told, int) and 1 <= told <= MAX_PICTURES_PER_S
    return Fraction(told if is_usable and told is not None else USUAL_PICTURES_PER_S)

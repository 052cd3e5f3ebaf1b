"""A recorded episode as pictures in colour: played again from its key, and checked on the way."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from redline.recordings.episode import RecordingError, Trace
from redline.recordings.library import Entry, Library
from redline.recordings.rerunning import Rerun, find_env, make_rerun
from redline.recordings.setting import Setting
from redline.types import Array

Progress = Callable[[float], None]
RequestedStop = Callable[[], str | None]

EMULATOR_FRAMES_PER_S = 60
USUAL_PICTURES_PER_S = 15  # of an env that does not say how fast it is
MAX_PICTURES_PER_S = 240


@dataclass(frozen=True)
class Picture:
    """What was on the screen after a step, what that step gave, and what the agent made of it."""

    step: int  # of the episode; 0 is the picture that it begins with
    image: Array  # [H, W, 3] uint8
    reward: float  # of this step
    total_reward: float  # up to here
    action: int | None  # that the agent took when it saw this; None at the end
    values: Array | None  # [A] float32: what it thought before; None if nothing was recorded


class StoppedWhilePlayingError(Exception):
    """A stop was requested before the episode had been played again."""


def iterate_pictures(
    library: Library,
    entry: Entry,
    *,
    progress: Progress = lambda _: None,
    requested_stop: RequestedStop = lambda: None,
) -> Generator[Picture, None, None]:
    """Yield the first picture of an episode and one per step; RecordingError where it does not go as it was recorded.

    The steps from its key to its beginning are played, too, and count for `progress`. The emulator's vector env does
    not look at the screen again when a game is over: the last picture of an Atari episode is like the one before.
    """
    trace = library.load(entry).trace
    actions: list[int] = library.actions_since_key(entry).tolist()
    if len(actions) != trace.end_steps:
        raise RecordingError(f"{len(actions):,} actions are known of {trace.end_steps:,} since the key")
    rerun = make_rerun(library.setting_of(entry), in_colour=True)
    try:
        for done, picture in _played(rerun, trace, actions):
            progress(done / len(actions))
            if reason := requested_stop():
                raise StoppedWhilePlayingError(f"{reason} after {done:,} of {len(actions):,} steps")
            if picture is not None:
                yield picture
    finally:
        rerun.close()


def _played(rerun: Rerun, trace: Trace, actions: list[int]) -> Iterator[tuple[int, Picture | None]]:
    """Yield how many steps were played since the key, and the picture if it belongs to the episode."""
    image = rerun.begin(trace.key_seed)
    is_over = False
    for number, action in enumerate(actions[: trace.key_offset_steps], start=1):
        if is_over:
            rerun.begin_next()
        is_over = rerun.step(action).ended
        yield number, None
    if trace.key_offset_steps:
        if not is_over:
            raise RecordingError("the episode before it does not end where it was recorded to end")
        image = rerun.begin_next()
    own = actions[trace.key_offset_steps :]
    total = reward = 0.0
    for number, action in enumerate(own):
        yield (
            trace.key_offset_steps + number,
            Picture(number, np.array(image), reward, total, action, _values_at(trace, number)),
        )
        step = rerun.step(action)
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
    """Return how many pictures a second of play has: 60 emulator frames, or as many as another env says of itself."""
    if setting.game is not None:
        skip = setting.options.get("frameskip", 4)
        if isinstance(skip, bool) or not isinstance(skip, int) or not 1 <= skip <= EMULATOR_FRAMES_PER_S:
            raise RecordingError(f"a step of {skip!r} frames")
        return Fraction(EMULATOR_FRAMES_PER_S, skip)
    env = find_env(setting).make_one()
    told = env.metadata.get("render_fps")
    env.close()
    is_usable = isinstance(told, int) and 1 <= told <= MAX_PICTURES_PER_S
    return Fraction(told if is_usable and told is not None else USUAL_PICTURES_PER_S)

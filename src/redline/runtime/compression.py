"""How small the frames of a game become: measured by playing it, because games differ by a factor of twenty."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from redline.envs.catalog import make_vector_env
from redline.envs.config import EnvConfig
from redline.envs.vector import VectorEnv
from redline.experience import ReplayLayout
from redline.experience.frame_codec import find_codec
from redline.runtime.roles import usable_cores
from redline.types import Array, EnvSpec, IntArray

NUM_ENVS = 8
CAPACITY = 1_000_000

Progress = Callable[[float], None]  # is told the share done, 0 … 1


def _ignore(_: float) -> None:
    """Tell nobody."""


@dataclass(frozen=True)
class Measured:
    """What a codec makes of the frames that random play shows."""

    codec: str
    num_transitions: int  # played
    num_frames: int  # encoded, in whole chunks
    frames_per_chunk: int
    bytes_per_frame: float
    frames_per_transition: float
    bytes_per_transition: float  # its frame, its share of the final frames, and all else that the memory notes


class ChunkScale:
    """Weighs the frames of every lane as the replay memory stores them: chunk by chunk, each lane apart."""

    def __init__(self, layout: ReplayLayout) -> None:
        self.layout = layout
        self._codec = find_codec(layout.codec)
        shape = (layout.lanes, layout.frames_per_chunk, *layout.frame_shape)
        self._chunks: Array = np.zeros(shape, layout.frame_dtype)
        self._filled = np.zeros(layout.lanes, np.int64)
        self._num_frames = 0
        self._num_bytes = 0

    def put(self, lanes: IntArray, frames: Array) -> None:
        """Add one frame to each of `lanes`."""
        self._chunks[lanes, self._filled[lanes]] = frames
        self._filled[lanes] += 1
        for lane in lanes[self._filled[lanes] == self.layout.frames_per_chunk].tolist():
            self._weigh(lane)

    def read(self, *, num_transitions: int, num_ended: int) -> Measured:
        """Return what the frames of so many transitions and ended episodes came to."""
        if self._num_frames == 0:  # play was too short to fill a single chunk
            for lane in np.flatnonzero(self._filled).tolist():
                self._weigh(lane)
        bytes_per_frame = self._num_bytes / self._num_frames
        frames_per_transition = 1.0 + num_ended / num_transitions  # no transition starts at a final frame
        metadata_bytes_per_transition = self.layout.metadata_bytes / self.layout.capacity
        return Measured(
            codec=self.layout.codec,
            num_transitions=num_transitions,
            num_frames=self._num_frames,
            frames_per_chunk=self.layout.frames_per_chunk,
            bytes_per_frame=bytes_per_frame,
            frames_per_transition=frames_per_transition,
            bytes_per_transition=bytes_per_frame * frames_per_transition + metadata_bytes_per_transition,
        )

    def _weigh(self, lane: int) -> None:
        count = int(self._filled[lane])
        frames = self._chunks[lane, :count].reshape(-1).view(np.uint8)
        self._num_bytes += len(self._codec.encode(frames.data))
        self._num_frames += count
        self._filled[lane] = 0


def measure_compression(
    env: EnvConfig,
    *,
    codec: str,
    steps: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    capacity: int = CAPACITY,
    num_envs: int = NUM_ENVS,
    progress: Progress = _ignore,
) -> Measured:
    """Play at random and return what one codec makes of it; the same again for the same `steps` and `seed`."""
    return measure_codecs(
        env, (codec,), steps=steps, seconds=seconds, seed=seed, capacity=capacity, num_envs=num_envs, progress=progress
    )[codec]


def measure_codecs(
    env: EnvConfig,
    codecs: Sequence[str],
    *,
    steps: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    capacity: int = CAPACITY,
    num_envs: int = NUM_ENVS,
    progress: Progress = _ignore,
) -> dict[str, Measured]:
    """Play once, at random, and return what each codec makes of it.

    `capacity` is that of the memory for which the figures are wanted: so many transitions share its tables.
    """
    vector = make_vector_env(env, num_envs=num_envs, seed=seed, threads=min(usable_cores(), num_envs))
    try:
        spec = vector.spec
        scales = [ChunkScale(layout_for(spec, codec=codec, capacity=capacity, lanes=num_envs)) for codec in codecs]
        num_transitions, num_ended = _play(vector, scales, steps=steps, seconds=seconds, seed=seed, progress=progress)
    finally:
        vector.close()
    found = [scale.read(num_transitions=num_transitions, num_ended=num_ended) for scale in scales]
    return {measured.codec: measured for measured in found}


def layout_for(spec: EnvSpec, *, codec: str, capacity: int, lanes: int = NUM_ENVS) -> ReplayLayout:
    """Return the layout for which a codec is measured."""
    return ReplayLayout(
        capacity=capacity,
        frame_shape=spec.frame_shape,
        frame_dtype=spec.frame_dtype,
        stack=spec.stack,
        lanes=lanes,
        codec=codec,
    )


def _play(
    env: VectorEnv,
    scales: Sequence[ChunkScale],
    *,
    steps: int | None,
    seconds: float | None,
    seed: int,
    progress: Progress,
) -> tuple[int, int]:
    """Take random actions until all is done; return transitions and episodes ended."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    lanes = np.arange(env.num_envs)
    first_frames = env.reset()
    for scale in scales:
        scale.put(lanes, first_frames)
    share_done = _until(steps=steps, seconds=seconds)
    num_transitions = num_ended = 0
    while num_transitions == 0 or share_done(num_transitions) < 1.0:
        env.send(rng.integers(env.spec.num_actions, size=env.num_envs))
        step = env.recv()
        over = np.flatnonzero(step.ended)
        for scale in scales:
            scale.put(lanes, step.frames)
            scale.put(over, step.first_frames[over])
        num_transitions += env.num_envs
        num_ended += len(over)
        progress(min(share_done(num_transitions), 1.0))
    return num_transitions, num_ended


def _until(*, steps: int | None, seconds: float | None) -> Callable[[int], float]:
    """Return what tells the share done from the transitions played: of the steps, which repeats, or of the time."""
    if steps is not None and seconds is None:
        return lambda num_transitions: num_transitions / steps
    if seconds is not None and steps is None:
        start_s = time.monotonic()
        return lambda num_transitions: (time.monotonic() - start_s) / seconds
    raise ValueError("say either how many steps or how many seconds to play")

"""How large the replay memory of a job will be, in transitions and bytes.

How small the frames of a game become is measured by playing it, because games differ by a factor of twenty.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from redline.algorithms.q_learning import QLearning
from redline.envs.catalog import make_vector_env
from redline.envs.config import EnvConfig
from redline.envs.vector import VectorEnv
from redline.replay import ReplayLayout, ReplayMemory, with_budget
from redline.replay.frame_codec import find_codec
from redline.replay.layout import SURPLUS
from redline.replay.stored_form import SnapshotManifest, decode_manifest
from redline.runs.host import usable_cores
from redline.runtime.config import Job
from redline.runtime.counters import Pacing
from redline.types import Adjustment, Array, EnvSpec, IntArray, Progress

MEASURED_STEPS = 2_000  # played at random to learn how small the frames become
NUM_ENVS = 8  # that play them, at most: each takes a moment to start
CAPACITY = 1_000_000


def resolve_replay(
    job: Job, spec: EnvSpec, saved: Mapping[str, Any] | None = None
) -> tuple[ReplayLayout | None, list[Adjustment]]:
    """Return the layout with its bytes, None if there is none, and what a user should know of it.

    `saved` is the replay manifest of a checkpoint. Bytes that nobody asked for are found by playing the game for a
    moment. They are those of the checkpoint if all settings that decide them are as they were.
    """
    algorithm = job.algorithm
    if not isinstance(algorithm, QLearning):
        return None, []
    layout = replay_layout(algorithm, spec, num_envs=job.num_envs, pacing=pacing_of(job, algorithm))
    before = None if saved is None else decode_manifest(saved)
    if before is not None:
        layout = replace(layout, chunk_frames=before.frames_per_chunk)
    if algorithm.replay.bytes is not None:
        return layout, _about_given_bytes(layout)
    if not layout.is_picture:
        return layout, []
    if layout.effective_codec == "raw":
        return layout, [Adjustment("replay.bytes", "auto", f"{layout.num_bytes:_}", "raw frames, at most")]
    if before is not None and before.budget_bytes is not None and _is_as_saved(layout, before):
        return replace(layout, budget_bytes=before.budget_bytes), []
    measured = measure_codecs(
        job.env, (layout.codec,), steps=MEASURED_STEPS, capacity=layout.capacity, num_envs=min(job.num_envs, NUM_ENVS)
    )[layout.codec]
    layout = with_budget(layout, measured.bytes_per_frame * measured.frames_per_transition)
    headroom = f"{SURPLUS - 1:.0%} headroom"
    why = f"{measured.bytes_per_frame:.0f} bytes per frame with {layout.codec}, measured by playing, and {headroom}"
    return layout, [Adjustment("replay.bytes", "auto", f"{layout.num_bytes:_}", why)]


def full_replay(memory: ReplayMemory | None) -> Adjustment | None:
    """Say how many transitions a memory holds that is full before its capacity is reached, and why."""
    if memory is None or memory.full_at is None:
        return None
    if memory.frames.is_short:
        why = "the machine has no more to spare"
    elif memory.layout.budget_bytes is not None:
        why = "its bytes are full; see --replay.bytes"
    else:
        why = "episodes are short, and each keeps one frame more than it has steps"
    return Adjustment("replay.capacity", f"{memory.layout.capacity:,}", f"about {memory.full_at:,}", why)


def pacing_of(job: Job, algorithm: QLearning) -> Pacing:
    """Return how much is learnt per step in a job."""
    return Pacing(
        samples_per_step=algorithm.samples_per_step, warmup_steps=algorithm.warmup_steps, is_free=job.pacing == "free"
    )


def replay_layout(algorithm: QLearning, spec: EnvSpec, *, num_envs: int, pacing: Pacing) -> ReplayLayout:
    """Return the layout of an algorithm's replay memory, with the bytes that the user gave, if any."""
    horizon = pacing.horizon_vector_steps(
        batches_ahead=algorithm.replay.prefetch, batch_size=algorithm.batch_size, num_envs=num_envs
    )
    base = layout_for(spec, codec=algorithm.replay.codec, capacity=algorithm.replay.capacity, lanes=num_envs)
    return replace(
        base,
        horizon_steps=horizon,
        max_n_steps=algorithm.returns.n,
        budget_bytes=algorithm.replay.bytes,
        path=algorithm.replay.path,
    )


def _is_as_saved(layout: ReplayLayout, saved: SnapshotManifest) -> bool:
    now = (layout.capacity, layout.effective_codec, layout.lanes, layout.horizon_steps)
    return now == (saved.capacity, saved.codec, len(saved.lanes), saved.horizon_steps)


def _about_given_bytes(layout: ReplayLayout) -> list[Adjustment]:
    given = layout.budget_bytes or 0
    if replace(layout, budget_bytes=None).num_bytes < given:
        return [Adjustment("replay.bytes", f"{given:_}", f"{layout.num_bytes:_}", "the capacity can't fill more")]
    if not layout.is_packed and layout.expected_transitions < layout.capacity:
        held = f"about {layout.expected_transitions:,}"
        return [Adjustment("replay.capacity", f"{layout.capacity:,}", held, "no more fit into --replay.bytes")]
    return []


# Measured by playing


@dataclass(frozen=True)
class Measured:
    """What a codec makes of the frames that random play shows."""

    codec: str
    num_transitions: int  # played
    num_frames: int  # encoded, in whole chunks
    frames_per_chunk: int
    bytes_per_frame: float
    frames_per_transition: float
    bytes_per_transition: float  # its frame, its share of the final frames, and its row in the memory's tables


class ChunkScale:
    """Measures the encoded size of frames as the replay memory stores them: chunk by chunk, each lane apart."""

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
        """Return the sizes of the frames, given how many transitions they show and how many episodes ended."""
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


def measure_codecs(
    env: EnvConfig,
    codecs: Sequence[str],
    *,
    steps: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    capacity: int = CAPACITY,
    num_envs: int = NUM_ENVS,
    progress: Progress = lambda share: None,
) -> dict[str, Measured]:
    """Play once, at random, and return what each codec makes of it; the same again for the same `steps` and `seed`.

    `capacity` is that of the memory for which the figures are wanted: so many transitions share its tables.
    """
    vector = make_vector_env(env, num_envs=num_envs, seed=seed, threads=min(usable_cores(), num_envs))
    with closing(vector):
        layouts = [layout_for(vector.spec, codec=codec, capacity=capacity, lanes=num_envs) for codec in codecs]
        scales = [ChunkScale(layout) for layout in layouts]
        share_done = _until(steps=steps, seconds=seconds)
        num_transitions, num_ended = _play(vector, scales, share_done, seed=seed, progress=progress)
    found = [scale.read(num_transitions=num_transitions, num_ended=num_ended) for scale in scales]
    return {measured.codec: measured for measured in found}


def layout_for(spec: EnvSpec, *, codec: str, capacity: int, lanes: int = NUM_ENVS) -> ReplayLayout:
    """Return the layout of a replay memory of such envs, and nothing else decided."""
    return ReplayLayout(
        capacity=capacity,
        frame_shape=spec.frame_shape,
        frame_dtype=spec.frame_dtype,
        stack=spec.stack,
        lanes=lanes,
        codec=codec,
    )


def _play(
    env: VectorEnv, scales: Sequence[ChunkScale], share_done: Callable[[int], float], *, seed: int, progress: Progress
) -> tuple[int, int]:
    """Take random actions until the share done is 1; return how many transitions and ended episodes there were."""
    rng = np.random.Generator(np.random.Philox(key=seed))
    lanes = np.arange(env.num_envs)
    first_frames = env.reset()
    for scale in scales:
        scale.put(lanes, first_frames)
    num_transitions = num_ended = 0
    done = 0.0
    while done < 1.0:
        env.send(rng.integers(env.spec.num_actions, size=env.num_envs))
        step = env.recv()
        over = np.flatnonzero(step.ended)
        for scale in scales:
            scale.put(lanes, step.frames)
            scale.put(over, step.first_frames[over])
        num_transitions += env.num_envs
        num_ended += len(over)
        done = min(share_done(num_transitions), 1.0)
        progress(done)
    return num_transitions, num_ended


def _until(*, steps: int | None, seconds: float | None) -> Callable[[int], float]:
    """Return progress by steps (reproducible) or by seconds, as a function of the transitions played."""
    if steps is not None and seconds is None:
        return lambda num_transitions: num_transitions / steps
    if seconds is not None and steps is None:
        start_s = time.monotonic()
        return lambda num_transitions: (time.monotonic() - start_s) / seconds
    raise ValueError("give either the steps or the seconds to play")

"""How large the replay memory of a job will be, in transitions and bytes, and what of that the user did not say."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from redline.algorithms.q_learning import QLearning
from redline.experience import ReplayLayout, ReplayMemory, with_budget
from redline.experience.sizing import SURPLUS
from redline.runtime.compression import measure_compression
from redline.runtime.job import Job
from redline.runtime.pacing import Pacing
from redline.types import Adjustment, EnvSpec

MEASURED_STEPS = 2_000  # played at random to learn how small the frames become
MEASURED_ENVS = 8  # at most: each takes a moment to start


def settle_replay(
    job: Job, spec: EnvSpec, saved: Mapping[str, Any] | None = None
) -> tuple[ReplayLayout | None, list[Adjustment]]:
    """Return the layout with its bytes, None if there is none, and what a user should know of it.

    `saved` is what a checkpoint holds.

    Bytes that nobody asked for are found by playing the game for a moment, or are those of the checkpoint if all that
    they depend on is as it was.
    """
    algorithm = job.algorithm
    if not isinstance(algorithm, QLearning):
        return None, []
    layout = replay_layout(algorithm, spec, num_envs=job.num_envs, pacing=pacing_of(job, algorithm))
    if saved is not None:
        layout = replace(layout, chunk_frames=saved["frames_per_chunk"])
    if algorithm.replay.bytes is not None:
        return layout, _about_given_bytes(layout)
    if not layout.is_picture:
        return layout, []
    if layout.effective_codec == "raw":
        return layout, [Adjustment("replay.bytes", "auto", f"{layout.num_bytes:_}", "raw frames, at most")]
    if saved is not None and saved["budget_bytes"] is not None and _is_as_saved(layout, saved):
        return replace(layout, budget_bytes=saved["budget_bytes"]), []
    measured = measure_compression(
        job.env,
        codec=layout.codec,
        steps=MEASURED_STEPS,
        capacity=layout.capacity,
        num_envs=min(job.num_envs, MEASURED_ENVS),
    )
    layout = with_budget(layout, measured.bytes_per_frame * measured.frames_per_transition)
    why = f"{layout.codec} makes {measured.bytes_per_frame:.0f} bytes of a frame, measured by playing; × {SURPLUS}"
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
        samples_per_step=algorithm.samples_per_step,
        warmup_steps=algorithm.warmup_steps,
        is_free=job.pacing == "free",
    )


def replay_layout(algorithm: QLearning, spec: EnvSpec, *, num_envs: int, pacing: Pacing) -> ReplayLayout:
    """Return how the replay memory of an algorithm is laid out, with the bytes that the user gave, if any."""
    horizon = pacing.horizon_vector_steps(
        batches_ahead=algorithm.replay.prefetch, batch_size=algorithm.batch_size, num_envs=num_envs
    )
    return ReplayLayout(
        capacity=algorithm.replay.capacity,
        frame_shape=spec.frame_shape,
        frame_dtype=spec.frame_dtype,
        stack=spec.stack,
        lanes=num_envs,
        horizon_steps=horizon,
        max_n_steps=algorithm.returns.n,
        codec=algorithm.replay.codec,
        budget_bytes=algorithm.replay.bytes,
        path=algorithm.replay.path,
    )


def _is_as_saved(layout: ReplayLayout, saved: Mapping[str, Any]) -> bool:
    now = (layout.capacity, layout.effective_codec, layout.lanes, layout.horizon_steps)
    return now == (saved["capacity"], saved["codec"], len(saved["lanes"]), saved["horizon_steps"])


def _about_given_bytes(layout: ReplayLayout) -> list[Adjustment]:
    given = layout.budget_bytes or 0
    if replace(layout, budget_bytes=None).num_bytes < given:
        return [Adjustment("replay.bytes", f"{given:_}", f"{layout.num_bytes:_}", "the capacity can't fill more")]
    if not layout.is_packed and layout.expected_transitions < layout.capacity:
        held = f"about {layout.expected_transitions:,}"
        return [Adjustment("replay.capacity", f"{layout.capacity:,}", held, "no more fit into --replay.bytes")]
    return []

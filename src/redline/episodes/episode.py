"""One recorded episode as the payload of a block, and back; docs/recordings.md describes the bytes.

An episode is what its lane played for `length_steps`, from `seed_offset_steps` after a seeded reset. To get there, the
actions since that reset are needed: the record holds those from step `actions_from` on, the earlier records of the same
role, lane and seed hold those before. Where `actions_from` is 0 it needs no other record.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass, replace
from typing import Annotated, Literal, TypeVar

import msgspec
import numpy as np

from redline.types import Array

EPISODE = 2  # kind of block
CHECK_EVERY_STEPS = 64
MAX_ACTIONS = 64_000_000  # of one record; an episode can be as long as --env.max-episode-frames
MAX_META_BYTES = 64 * 1024
MAX_VALUES_BYTES = 256 * 1024**2

_META_LENGTH = struct.Struct("<I")
_ACTION_TYPES = {1: "<u1", 2: "<u2", 4: "<u4"}

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
MetaT = TypeVar("MetaT")


class RecordingError(ValueError):
    """Bytes that are no recorded episode; the message says why."""


@dataclass(frozen=True)
class Address:
    """Where an episode began: unique within a run."""

    role: str  # "actor", "greedy" or "policy"
    lane: int
    reset_seed: int
    seed_offset_steps: int


@dataclass(frozen=True)
class Trace:
    """All that is needed to play an episode again and to check it."""

    lane: int
    reset_seed: int
    seed_offset_steps: int  # steps from the seeded reset to the episode's first
    length_steps: int
    total_reward: float  # unclipped
    is_truncated: bool  # cut by a limit
    actions_from: int  # steps from the seeded reset to the first of `actions`
    actions: Array  # [seed_offset_steps + length_steps − actions_from]
    checks_from: int  # number of the first check: earlier ones were not made
    checks: Array  # [C, 2] uint32: checksum of the frame, and of the rewards since the check before
    values: Array | None = None  # [length_steps, A] float16: what the agent thought before each action, NaN: nothing

    @property
    def end_steps(self) -> int:
        """Steps from the seeded reset to the episode's end."""
        return self.seed_offset_steps + self.length_steps


@dataclass(frozen=True)
class RecordedEpisode:
    """A trace, and when and by whom it was played."""

    role: str
    steps: int  # of the run, when it ended
    unix_s: float
    trace: Trace
    has_values: bool
    evaluation: int | None = None  # number of the evaluation it belongs to
    weights_steps: int | None = None  # steps of the run at which the weights were taken, if not the newest

    @property
    def address(self) -> Address:
        """Return where it began."""
        return Address(self.role, self.trace.lane, self.trace.reset_seed, self.trace.seed_offset_steps)


def frame_checksum(frame: Array) -> int:
    """Return the checksum of a frame as the agent sees it."""
    return zlib.crc32(np.ascontiguousarray(frame).data)


def reward_checksum(rewards: Array) -> int:
    """Return the checksum of rewards [T], as float32."""
    return zlib.crc32(np.ascontiguousarray(rewards, "<f4").data)


def num_checks(length_steps: int) -> int:
    """Return how many checks an episode has: one every CHECK_EVERY_STEPS, and one at its end."""
    return -(-length_steps // CHECK_EVERY_STEPS)


def encode_trace(trace: Trace) -> bytes:
    """Return a trace as bytes."""
    width = 1 if trace.actions.max(initial=0) < 256 else 2 if trace.actions.max() < 65_536 else 4
    actions = trace.actions.astype(_ACTION_TYPES[width]).tobytes()
    parts = [
        zlib.compress(actions, 9),
        trace.checks.astype("<u4").tobytes(),
        b"" if trace.values is None else zlib.compress(trace.values.astype("<f2").tobytes(), 6),
    ]
    meta = {
        "lane": trace.lane,
        "seed": trace.reset_seed,
        "seed_offset_steps": trace.seed_offset_steps,
        "length_steps": trace.length_steps,
        "return": trace.total_reward,
        "truncated": trace.is_truncated,
        "actions_from": trace.actions_from,
        "action_bytes": width,
        "actions_crc32": zlib.crc32(actions),
        "checks_from": trace.checks_from,
        "values_per_step": 0 if trace.values is None else trace.values.shape[1],
        "sizes": [len(part) for part in parts],
    }
    text = json.dumps(meta, separators=(",", ":"), allow_nan=False).encode()
    return b"".join([_META_LENGTH.pack(len(text)), text, *parts])


def encode_episode(trace: bytes, **played: object) -> bytes:
    """Return the payload of a block: `played` (role, time, …) and an encoded trace."""
    text = json.dumps(played, separators=(",", ":"), allow_nan=False).encode()
    return _META_LENGTH.pack(len(text)) + text + trace


class _Played(msgspec.Struct):
    """The first description of a payload: when and by whom an episode was played."""

    role: Annotated[str, msgspec.Meta(max_length=100)]
    unix_s: float
    evaluation: Count | None = None
    weights_steps: Count | None = None


class _Meta(msgspec.Struct):
    """The second description of a payload: the trace without its parts."""

    lane: Count
    seed: Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
    seed_offset_steps: Count
    length_steps: Count
    total_reward: float = msgspec.field(name="return")
    truncated: bool
    actions_from: Count
    action_bytes: Literal[1, 2, 4]
    actions_crc32: Count
    checks_from: Count
    values_per_step: Count
    sizes: tuple[Count, Count, Count]  # bytes of actions, checks and values


def decode_episode(payload: bytes, *, steps: int, with_parts: bool = True) -> RecordedEpisode:
    """Return the episode of a block; RecordingError where it can't be one, before anything large is made.

    Without its parts it has no actions, checks and values: a list of thousands need not be unpacked.
    """
    try:
        played, rest = _take_meta(payload, _Played)
        meta, rest = _take_meta(rest, _Meta)
        return RecordedEpisode(
            role=played.role,
            steps=steps,
            unix_s=played.unix_s,
            trace=_decode_trace(meta, rest, with_parts=with_parts),
            has_values=meta.values_per_step > 0,
            evaluation=played.evaluation,
            weights_steps=played.weights_steps,
        )
    except (ValueError, zlib.error, struct.error, msgspec.MsgspecError, RecursionError) as error:
        raise RecordingError(f"no recorded episode: {error}") from error


def _decode_trace(meta: _Meta, body: bytes, *, with_parts: bool) -> Trace:
    length, width, per_step = meta.length_steps, meta.action_bytes, meta.values_per_step
    num_actions = meta.seed_offset_steps + length - meta.actions_from
    if not 1 <= length <= num_actions <= MAX_ACTIONS:
        raise RecordingError(f"{num_actions} actions for {length} steps")
    if length * per_step * 2 > MAX_VALUES_BYTES:
        raise RecordingError(f"{per_step} values for each of {length} steps")
    if sum(meta.sizes) != len(body):
        raise RecordingError("its parts do not add up")
    if meta.sizes[1] != 8 * (num_checks(length) - meta.checks_from):
        raise RecordingError(f"{meta.sizes[1]} bytes of checks for {length} steps")
    trace = Trace(
        lane=meta.lane,
        reset_seed=meta.seed,
        seed_offset_steps=meta.seed_offset_steps,
        length_steps=length,
        total_reward=meta.total_reward,
        is_truncated=meta.truncated,
        actions_from=meta.actions_from,
        actions=np.zeros(0, _ACTION_TYPES[width]),
        checks_from=meta.checks_from,
        checks=np.zeros((0, 2), "<u4"),
    )
    if not with_parts:
        return trace
    values_at = meta.sizes[0] + meta.sizes[1]
    packed, checks, values = body[: meta.sizes[0]], body[meta.sizes[0] : values_at], body[values_at:]
    actions = _inflate(packed, num_actions * width)
    if zlib.crc32(actions) != meta.actions_crc32:
        raise RecordingError("its actions are not those that were recorded")
    thoughts: Array | None = None
    if per_step:
        thoughts = np.frombuffer(_inflate(values, length * per_step * 2), "<f2").reshape(length, per_step)
    return replace(
        trace,
        actions=np.frombuffer(actions, trace.actions.dtype),
        checks=np.frombuffer(checks, "<u4").reshape(-1, 2),
        values=thoughts,
    )


def _take_meta(data: bytes, kind: type[MetaT]) -> tuple[MetaT, bytes]:
    (length,) = _META_LENGTH.unpack_from(data)
    if length > min(MAX_META_BYTES, len(data) - _META_LENGTH.size):
        raise RecordingError(f"a description of {length} bytes")
    end = _META_LENGTH.size + length
    return msgspec.json.decode(data[_META_LENGTH.size : end], type=kind), data[end:]


def _inflate(data: bytes, size: int) -> bytes:
    """Decompress exactly `size` bytes, and never more."""
    inflater = zlib.decompressobj()
    content = inflater.decompress(data, size + 1)
    if len(content) != size or not inflater.eof:
        raise RecordingError(f"{len(content)} bytes where {size} were compressed")
    return content

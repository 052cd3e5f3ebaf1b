"""One recorded episode as the payload of a block, and back; docs/recordings.md describes the bytes.

An episode is what its lane lived through from `key_offset_steps` after the key seed on, for `length_steps`. To come
there, the actions since the key are needed: the record holds those since `actions_from` steps after the key, earlier
ones are in the records of the same role, lane and key before it. Where `actions_from` is 0 it needs no other.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from redline.types import Array

EPISODE = 2  # kind of block
CHECK_EVERY_STEPS = 64
MAX_ACTIONS = 64_000_000  # of one record; an episode can be as long as --env.max-episode-frames
MAX_META_BYTES = 64 * 1024
MAX_VALUES_BYTES = 256 * 1024**2

_META_LENGTH = struct.Struct("<I")
_ACTION_TYPES = {1: "<u1", 2: "<u2", 4: "<u4"}


class RecordingError(ValueError):
    """Bytes that are no recorded episode; the message says what is wrong with them."""


@dataclass(frozen=True)
class Address:
    """Where an episode began: unique within a run."""

    role: str  # "actor", "greedy" or "policy"
    lane: int
    key_seed: int
    key_offset_steps: int


@dataclass(frozen=True)
class Trace:
    """What must be kept of an episode so that it can be played again and checked."""

    lane: int
    key_seed: int
    key_offset_steps: int  # steps from the key to the episode's first
    length_steps: int
    total_reward: float  # unclipped
    is_truncated: bool  # cut by a limit
    actions_from: int  # steps from the key to the first of `actions`
    actions: Array  # [key_offset_steps + length_steps − actions_from]
    checks_from: int  # number of the first check: earlier ones were not made
    checks: Array  # [C, 2] uint32: checksum of the frame, and of the rewards since the check before
    values: Array | None = None  # [length_steps, A] float16: what the agent thought before each action, NaN: nothing

    @property
    def end_steps(self) -> int:
        """Steps from the key to the episode's end."""
        return self.key_offset_steps + self.length_steps


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
        return Address(self.role, self.trace.lane, self.trace.key_seed, self.trace.key_offset_steps)


def frame_checksum(frame: Array) -> int:
    """Return the checksum of an observation's newest frame, as the agent sees it."""
    return zlib.crc32(np.ascontiguousarray(frame).data)


def reward_checksum(rewards: Array) -> int:
    """Return the checksum of rewards [T], as float32."""
    return zlib.crc32(np.ascontiguousarray(rewards, "<f4").data)


def num_checks(length_steps: int) -> int:
    """Return how many checks an episode has: one every so many steps, and one at its end."""
    return -(-length_steps // CHECK_EVERY_STEPS)


def encode_trace(trace: Trace) -> bytes:
    """Return everything about an episode but who played it when."""
    width = 1 if trace.actions.max(initial=0) < 256 else 2 if trace.actions.max() < 65_536 else 4
    actions = trace.actions.astype(_ACTION_TYPES[width]).tobytes()
    parts = [
        zlib.compress(actions, 9),
        trace.checks.astype("<u4").tobytes(),
        b"" if trace.values is None else zlib.compress(trace.values.astype("<f2").tobytes(), 6),
    ]
    meta = {
        "lane": trace.lane,
        "seed": trace.key_seed,
        "seed_offset_steps": trace.key_offset_steps,
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
    """Return the payload of a block: an encoded trace with its role and time put in front."""
    text = json.dumps(played, separators=(",", ":"), allow_nan=False).encode()
    return _META_LENGTH.pack(len(text)) + text + trace


def decode_episode(payload: bytes, *, steps: int, with_parts: bool = True) -> RecordedEpisode:
    """Return the episode that a block holds; RecordingError where it can't be one, before anything large is made.

    Without its parts it has no actions, checks and values: to list thousands, nothing need be unpacked.
    """
    try:
        played, rest = _take_meta(payload)
        meta, rest = _take_meta(rest)
        return RecordedEpisode(
            role=_text(played, "role"),
            steps=steps,
            unix_s=_number(played, "unix_s"),
            trace=_decode_trace(meta, rest, with_parts=with_parts),
            has_values=_count(meta, "values_per_step") > 0,
            evaluation=None if played.get("evaluation") is None else _count(played, "evaluation"),
            weights_steps=None if played.get("weights_steps") is None else _count(played, "weights_steps"),
        )
    except (KeyError, TypeError, ValueError, IndexError, zlib.error, struct.error, RecursionError) as error:
        raise RecordingError(f"no recorded episode: {error}") from error


def _decode_trace(meta: dict[str, Any], body: bytes, *, with_parts: bool) -> Trace:
    length, offset, begin = (_count(meta, key) for key in ("length_steps", "seed_offset_steps", "actions_from"))
    width, per_step, checks_from = (_count(meta, key) for key in ("action_bytes", "values_per_step", "checks_from"))
    num_actions = offset + length - begin
    if (seed := _count(meta, "seed")) >= 2**31:
        raise RecordingError(f"key seed {seed}")
    if not 1 <= length <= num_actions <= MAX_ACTIONS or width not in _ACTION_TYPES:
        raise RecordingError(f"{num_actions} actions of {width} bytes for {length} steps")
    if length * per_step * 2 > MAX_VALUES_BYTES:
        raise RecordingError(f"{per_step} values for each of {length} steps")
    sizes = meta["sizes"]
    if len(sizes) != 3 or any(not isinstance(size, int) or size < 0 for size in sizes) or sum(sizes) != len(body):
        raise RecordingError("its parts do not add up")
    if sizes[1] != 8 * (num_checks(length) - checks_from):
        raise RecordingError(f"{sizes[1]} bytes of checks for {length} steps")
    trace = Trace(
        lane=_count(meta, "lane"),
        key_seed=seed,
        key_offset_steps=offset,
        length_steps=length,
        total_reward=_number(meta, "return"),
        is_truncated=bool(meta["truncated"]),
        actions_from=begin,
        actions=np.zeros(0, _ACTION_TYPES[width]),
        checks_from=checks_from,
        checks=np.zeros((0, 2), "<u4"),
    )
    if not with_parts:
        return trace
    packed, checks, values = body[: sizes[0]], body[sizes[0] : sizes[0] + sizes[1]], body[sizes[0] + sizes[1] :]
    actions = _inflate(packed, num_actions * width)
    if zlib.crc32(actions) != _count(meta, "actions_crc32"):
        raise RecordingError("its actions are not those that were recorded")
    return replace(
        trace,
        actions=np.frombuffer(actions, trace.actions.dtype),
        checks=np.frombuffer(checks, "<u4").reshape(-1, 2),
        values=np.frombuffer(_inflate(values, length * per_step * 2), "<f2").reshape(length, per_step)
        if per_step
        else None,
    )


def _take_meta(data: bytes) -> tuple[dict[str, Any], bytes]:
    (length,) = _META_LENGTH.unpack_from(data)
    if length > min(MAX_META_BYTES, len(data) - _META_LENGTH.size):
        raise RecordingError(f"a description of {length} bytes")
    meta = json.loads(data[_META_LENGTH.size : _META_LENGTH.size + length])
    if not isinstance(meta, dict):
        raise RecordingError("a description that is no object")
    return meta, data[_META_LENGTH.size + length :]


def _inflate(data: bytes, size: int) -> bytes:
    """Decompress exactly `size` bytes, and never more."""
    inflater = zlib.decompressobj()
    content = inflater.decompress(data, size + 1)
    if len(content) != size or not inflater.eof:
        raise RecordingError(f"{len(content)} bytes where {size} were compressed")
    return content


def _count(meta: dict[str, Any], key: str) -> int:
    value = meta[key]
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise RecordingError(f"{key} is {value!r}")
    return value


def _number(meta: dict[str, Any], key: str) -> float:
    value = meta[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise RecordingError(f"{key} is {value!r}")
    return float(value)


def _text(meta: dict[str, Any], key: str) -> str:
    value = meta[key]
    if not isinstance(value, str) or len(value) > 100:
        raise RecordingError(f"{key} is {value!r}")
    return value

"""Encodes and decodes one recorded episode, the payload of a block; docs/recordings.md describes the bytes.

An episode is the `length_steps` that its lane played from `seed_offset_steps` after a seeded reset. Playing it again
takes all actions since that reset: the record holds those from step `actions_from` on, earlier records of the same
role, lane and seed hold those before. If `actions_from` is 0, no other record is needed.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

import msgspec
import numpy as np

from redline.types import Array

EPISODE = 2  # kind of block
CHECK_EVERY_STEPS = 64
MAX_ACTIONS = 16_000_000  # of one record: weeks of play
MAX_DESCRIPTION_BYTES = 64 * 1024
MAX_VALUES_BYTES = 256 * 1024**2

_DESCRIPTION_LENGTH = struct.Struct("<I")
_ACTION_TYPES = {1: "<u1", 2: "<u2", 4: "<u4"}

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
DescriptionT = TypeVar("DescriptionT")


class RecordingError(ValueError):
    """Bytes that are not a recorded episode; the message says why."""


@dataclass(frozen=True)
class Address:
    """Where an episode began; unique within a run."""

    role: str  # "actor", "greedy" or "policy"
    lane: int
    reset_seed: int
    seed_offset_steps: int


@dataclass(frozen=True)
class Trace:
    """Everything needed to play an episode again and to check it."""

    lane: int
    reset_seed: int
    seed_offset_steps: int  # steps from the seeded reset to the episode's first
    length_steps: int
    total_reward: float  # unclipped
    is_truncated: bool  # cut by a limit
    actions_from: int  # steps from the seeded reset to the first of `actions`
    actions: Array  # [seed_offset_steps + length_steps − actions_from]
    checks_from: int  # number of the first check that was made
    checks: Array  # [C, 2] uint32: checksum of the frame, and of rewards and actions since the check before
    checks_actions: bool = True  # False in recordings of older versions, which check rewards only
    values: Array | None = None  # [length_steps, A] float16: Q-values or logits before each action; NaN: none

    @property
    def end_steps(self) -> int:
        """Steps from the seeded reset to the episode's end."""
        return self.seed_offset_steps + self.length_steps


class Played(msgspec.Struct, frozen=True):
    """The first description of a record: when and by whom an episode was played."""

    role: Annotated[str, msgspec.Meta(max_length=100)]
    unix_s: float
    evaluation: Count | None = None  # number of its evaluation
    weights_steps: Count | None = None  # steps of the run that trained the weights, if not the newest


class Header(msgspec.Struct, frozen=True):
    """The second description of a record: a trace without its parts."""

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
    checks_actions: bool = False

    @property
    def end_steps(self) -> int:
        """Steps from the seeded reset to the episode's end."""
        return self.seed_offset_steps + self.length_steps


def frame_checksum(frame: Array) -> int:
    """Return the checksum of a frame that the agent sees."""
    return zlib.crc32(np.ascontiguousarray(frame).data)


def stretch_checksum(rewards: Array, actions: Array | None) -> int:
    """Return the checksum of the rewards [T] and actions [T] of some steps; older recordings leave the actions out."""
    checksum = zlib.crc32(np.ascontiguousarray(rewards, "<f4").data)
    return checksum if actions is None else zlib.crc32(np.ascontiguousarray(actions, "<u4").data, checksum)


def num_checks(length_steps: int) -> int:
    """Return the number of checks of an episode: one every CHECK_EVERY_STEPS, and one at its end."""
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
        "checks_actions": trace.checks_actions,
    }
    text = json.dumps(meta, separators=(",", ":"), allow_nan=False).encode()
    return b"".join([_DESCRIPTION_LENGTH.pack(len(text)), text, *parts])


def encode_episode(trace: bytes, **played: object) -> bytes:
    """Return the payload of a block: `played` (role, time, …) and an encoded trace."""
    text = json.dumps(played, separators=(",", ":"), allow_nan=False).encode()
    return _DESCRIPTION_LENGTH.pack(len(text)) + text + trace


def decode_header(payload: bytes) -> tuple[Played, Header, bytes]:
    """Return the descriptions of a block's episode and its packed parts, or raise RecordingError."""
    try:
        played, rest = _take_description(payload, Played)
        header, parts = _take_description(rest, Header)
    except (ValueError, struct.error, msgspec.MsgspecError, RecursionError) as error:
        raise RecordingError(f"no recorded episode: {error}") from error
    length, num_actions = header.length_steps, header.end_steps - header.actions_from
    if not 1 <= length <= num_actions <= MAX_ACTIONS:
        raise RecordingError(f"no recorded episode: {num_actions} actions for {length} steps")
    if length * header.values_per_step * 2 > MAX_VALUES_BYTES:
        raise RecordingError(f"no recorded episode: {header.values_per_step} values for each of {length} steps")
    if sum(header.sizes) != len(parts) or header.sizes[1] != 8 * (num_checks(length) - header.checks_from):
        raise RecordingError(f"no recorded episode: parts of {header.sizes} bytes for {length} steps")
    return played, header, parts


def decode_trace(payload: bytes) -> Trace:
    """Return the episode of a block, or raise RecordingError before anything large is allocated."""
    _, header, parts = decode_header(payload)
    length, per_step = header.length_steps, header.values_per_step
    values_at = header.sizes[0] + header.sizes[1]
    actions = _inflate(parts[: header.sizes[0]], (header.end_steps - header.actions_from) * header.action_bytes)
    if zlib.crc32(actions) != header.actions_crc32:
        raise RecordingError("no recorded episode: its actions are not those that were recorded")
    values: Array | None = None
    if per_step:
        values = np.frombuffer(_inflate(parts[values_at:], length * per_step * 2), "<f2").reshape(length, per_step)
    return Trace(
        lane=header.lane,
        reset_seed=header.seed,
        seed_offset_steps=header.seed_offset_steps,
        length_steps=length,
        total_reward=header.total_reward,
        is_truncated=header.truncated,
        actions_from=header.actions_from,
        actions=np.frombuffer(actions, _ACTION_TYPES[header.action_bytes]),
        checks_from=header.checks_from,
        checks=np.frombuffer(parts[header.sizes[0] : values_at], "<u4").reshape(-1, 2),
        checks_actions=header.checks_actions,
        values=values,
    )


def _take_description(data: bytes, kind: type[DescriptionT]) -> tuple[DescriptionT, bytes]:
    (length,) = _DESCRIPTION_LENGTH.unpack_from(data)
    end = _DESCRIPTION_LENGTH.size + length
    if length > MAX_DESCRIPTION_BYTES or end > len(data):
        raise RecordingError(f"a description of {length} bytes")
    return msgspec.json.decode(data[_DESCRIPTION_LENGTH.size : end], type=kind), data[end:]


def _inflate(data: bytes, size: int) -> bytes:
    """Decompress exactly `size` bytes, and never more."""
    inflater = zlib.decompressobj()
    try:
        content = inflater.decompress(data, size + 1)
    except zlib.error as error:
        raise RecordingError(f"no recorded episode: {error}") from error
    if len(content) != size or not inflater.eof:
        raise RecordingError(f"no recorded episode: {len(content)} bytes where {size} were compressed")
    return content

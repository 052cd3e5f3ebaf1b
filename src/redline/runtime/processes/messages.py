"""Messages from a process to its supervisor, and episodes from an actor to the learner.

Messages are lines of JSON through a pipe, which the reader never waits for. An episode is a letter of bytes through the
rings: four numbers, and its trace if it is recorded.
"""

from __future__ import annotations

import json
import os
import struct
import weakref
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from multiprocessing.reduction import DupFd
from typing import Any

from redline.envs.atari import SEED_INTERVAL_STEPS
from redline.episodes.episode import num_checks
from redline.jsonl import as_json_value
from redline.runtime.actor import Episode
from redline.runtime.config import Job
from redline.types import EnvSpec

READ_BYTES = 1 << 16
LARGEST_BYTES = 1024**2  # of a letter: holds Atari's longest episode with the values of all 18 actions
SHORT_BYTES = 1_024  # holds a short episode, or a long one's header and description

_LETTER = struct.Struct("<dqqq")  # return, length, key seed, key offset

Message = dict[str, Any]


def row_of(episode: Episode) -> dict[str, Any]:
    """Return an episode as plain JSON."""
    trace = None if episode.trace is None else b64encode(episode.trace).decode("ascii")
    return {**vars(episode), "trace": trace}


def episode_of(row: Mapping[str, Any]) -> Episode:
    """Return the episode of a row by `row_of`."""
    return Episode(**{**row, "trace": None if row["trace"] is None else b64decode(row["trace"])})


class Outbox:
    """The sending end: `send` returns when the pipe has taken the message."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.close = weakref.finalize(self, os.close, descriptor)

    def send(self, kind: str, **content: object) -> None:
        """Send a message; a lost supervisor is no error, since this process ends with it."""
        data = json.dumps(as_json_value({"kind": kind, **content})).encode() + b"\n"
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except BrokenPipeError:
            return

    def __reduce__(self) -> tuple[Callable[..., Outbox], tuple[Any, ...]]:
        """Let the process that is being started have it."""
        return _attach, (DupFd(self._descriptor),)


def _attach(descriptor: Any) -> Outbox:
    return Outbox(descriptor.detach())


class Inbox:
    """The supervisor's end; a line that a dying sender left unfinished is dropped."""

    def __init__(self) -> None:
        self.descriptor, sending = os.pipe()
        os.set_blocking(self.descriptor, False)
        self.outbox = Outbox(sending)
        self.close = weakref.finalize(self, os.close, self.descriptor)
        self._rest = b""

    def receive(self) -> list[Message]:
        """Return the messages that have arrived, without waiting."""
        while True:
            try:
                data = os.read(self.descriptor, READ_BYTES)
            except BlockingIOError:
                break
            if not data:
                break
            self._rest += data
        *lines, self._rest = self._rest.split(b"\n")
        return [json.loads(line) for line in lines]


# Letters


def encode_letter(episode: Episode) -> bytes:
    """Return an episode as bytes; its lane is the ring's."""
    numbers = episode.total_reward, episode.length_steps, episode.reset_seed, episode.seed_offset_steps
    return _LETTER.pack(*numbers) + (episode.trace or b"")


def decode_letter(letter: bytes, lane: int) -> Episode:
    """Return the episode of a letter by `encode_letter`."""
    total_reward, length_steps, reset_seed, seed_offset_steps = _LETTER.unpack_from(letter)
    return Episode(lane, total_reward, length_steps, reset_seed, seed_offset_steps, letter[_LETTER.size :] or None)


def mail_bytes(job: Job, spec: EnvSpec, *, depth: int) -> int:
    """Return the size of a lane's mailbox: two of the largest letters, or the short episodes of a full ring."""
    if job.recording.is_off:
        return 2 * depth * _LETTER.size
    longest = -(-job.env.max_episode_frames // spec.frames_per_step)
    # a record holds the actions since the record before it, or since the key
    actions = longest if job.recording.record == "all" else SEED_INTERVAL_STEPS + longest
    packed = actions * (1 if spec.num_actions <= 256 else 4)
    if job.recording.record_values:
        packed += longest * spec.num_actions * 2
    packed += packed // 1_000  # zlib makes what it can't compress a little larger
    largest = min(SHORT_BYTES + 8 * num_checks(longest) + packed, LARGEST_BYTES)
    return 2 * max(largest, depth // 2 * SHORT_BYTES)

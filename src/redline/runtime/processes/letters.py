"""The letter that carries an episode through the rings: a few numbers, and its trace if it is recorded."""

import struct

from redline.envs.atari import SEED_INTERVAL_STEPS
from redline.recordings.episode import num_checks
from redline.runtime.actor import Episode
from redline.runtime.job import Job
from redline.types import EnvSpec

LARGEST_BYTES = 1024**2  # holds Atari's longest episode with the values of all 18 actions
SHORT_BYTES = 1_024  # holds a short episode, or a long one's header and description

_HEADER = struct.Struct("<dqqq")  # return, length, key seed, key offset


def encode_letter(episode: Episode) -> bytes:
    """Return an episode as bytes; its lane is the ring's."""
    numbers = episode.total_reward, episode.length_steps, episode.reset_seed, episode.seed_offset_steps
    return _HEADER.pack(*numbers) + (episode.trace or b"")


def decode_letter(letter: bytes, lane: int) -> Episode:
    """Return the episode that `encode_letter` made a letter of."""
    total_reward, length_steps, reset_seed, seed_offset_steps = _HEADER.unpack_from(letter)
    return Episode(lane, total_reward, length_steps, reset_seed, seed_offset_steps, letter[_HEADER.size :] or None)


def mail_bytes(job: Job, spec: EnvSpec, *, depth: int) -> int:
    """Return the bytes that a lane's letters have room in: two of the largest, or short episodes in a ring so deep."""
    if job.recording.is_off:
        return 2 * depth * _HEADER.size
    longest = -(-job.env.max_episode_frames // spec.frames_per_step)
    # a record holds the actions since the record before it, or since the key
    actions = longest if job.recording.record == "all" else SEED_INTERVAL_STEPS + longest
    packed = actions * (1 if spec.num_actions <= 256 else 4)
    if job.recording.record_values:
        packed += longest * spec.num_actions * 2
    packed += packed // 1_000  # zlib makes what it can't compress a little larger
    largest = min(SHORT_BYTES + 8 * num_checks(longest) + packed, LARGEST_BYTES)
    return 2 * max(largest, depth // 2 * SHORT_BYTES)

"""Letters carry whole episodes, and every lane has room for the largest that a job can have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from redline.envs.catalog import env_spec
from redline.envs.config import EnvConfig
from redline.errors import UserError
from redline.experience.backing import MARGIN_BYTES
from redline.experience.shared_lanes import BY_EPISODE, STEP_BY_STEP
from redline.recordings.episode import Trace, encode_trace, num_checks
from redline.recordings.tracing import RecordingConfig
from redline.runtime.actor import Episode
from redline.runtime.job import Job
from redline.runtime.processes import shared_parts
from redline.runtime.processes.letters import LARGEST_BYTES, decode_letter, encode_letter, mail_bytes

ATARI = Job(env=EnvConfig("ALE/Breakout-v5"))
SPEC = replace(env_spec(ATARI.env), num_actions=18)
STEPS = 27_000  # of Atari's longest episode


def longest_episode(*, actions: int = STEPS, has_values: bool) -> Episode:
    """Return the longest episode of a game with all actions, of which nothing can be compressed."""
    rng = np.random.default_rng(0)
    trace = Trace(
        lane=1_023,
        reset_seed=2**31 - 1,
        seed_offset_steps=actions - STEPS,
        length_steps=STEPS,
        total_reward=-0.1 - 0.2,
        is_truncated=True,
        actions_from=0,
        actions=rng.integers(0, 256, actions, np.uint8),
        checks_from=0,
        checks=rng.integers(0, 2**32, (num_checks(STEPS), 2), np.uint32),
        values=rng.integers(0, 2**16, (STEPS, 18), np.uint16).view(np.float16) if has_values else None,
    )
    return Episode(3, trace.total_reward, STEPS, trace.reset_seed, trace.seed_offset_steps, encode_trace(trace))


def room_of(job: Job, depth: int = STEP_BY_STEP.depth) -> int:
    """Return the bytes of the largest letter that a lane has room for."""
    return mail_bytes(job, SPEC, depth=depth) // 2


@pytest.mark.parametrize("trace", [None, b"x", bytes(range(256))])
def test_an_episode_comes_out_of_its_letter_as_it_was(trace: bytes | None) -> None:
    episode = Episode(7, float("-inf"), 108_000, 2**31 - 1, 12_345, trace)
    assert decode_letter(encode_letter(episode), 7) == episode


@pytest.mark.parametrize(("record", "actions"), [("all", STEPS), ("10", 10_000 + STEPS), ("best", 10_000 + STEPS)])
def test_the_longest_episode_of_atari_has_room_and_little_more(record: str, actions: int) -> None:
    job = replace(ATARI, recording=RecordingConfig(record=record))
    letter = encode_letter(longest_episode(actions=actions, has_values=False))
    assert len(letter) <= room_of(job) <= len(letter) + 2_000


def test_the_longest_episode_of_atari_has_room_with_the_values_of_all_actions() -> None:
    job = replace(ATARI, recording=RecordingConfig(record_values=True))
    letter = encode_letter(longest_episode(has_values=True))
    assert len(letter) <= room_of(job) <= LARGEST_BYTES


def test_episodes_without_end_do_not_take_memory_without_end() -> None:
    endless = replace(ATARI, env=replace(ATARI.env, max_episode_frames=10**12))
    assert room_of(endless) == LARGEST_BYTES


def test_a_ring_full_of_short_episodes_has_room_for_all_their_letters() -> None:
    trace = Trace(7, 2**31 - 1, 0, 1, 1.5, False, 0, np.array([17], np.uint8), 0, np.ones((1, 2), np.uint32))
    recorded = encode_letter(Episode(7, 1.5, 1, 2**31 - 1, 0, encode_trace(trace)))
    episodes = BY_EPISODE.depth // 2  # of one step and one first frame
    assert episodes * len(recorded) <= room_of(ATARI, BY_EPISODE.depth)
    off = replace(ATARI, recording=RecordingConfig(record="off"))
    bare = encode_letter(Episode(7, 1.5, 1, 2**31 - 1, 0))
    assert episodes * len(bare) <= room_of(off, BY_EPISODE.depth) < 100_000


def test_rings_are_refused_if_the_letters_have_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    job = replace(ATARI, topology="async", num_envs=1_024)
    monkeypatch.setattr(shared_parts, "available_bytes", lambda: MARGIN_BYTES + 1_000_000_000)
    shared_parts.check_rings(job, SPEC)
    with pytest.raises(UserError, match=r"need 2\.\d+ GB .* fewer envs, or --record off"):
        shared_parts.check_rings(replace(job, recording=RecordingConfig(record_values=True)), SPEC)

"""Messages: whole or not at all, in order, and nobody hangs because the other end does or is gone."""

from __future__ import annotations

import os
import select
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from child_work import PATIENCE_S, StartChild, look_until, send_large, send_many

from redline.envs.catalog import env_spec
from redline.envs.config import EnvConfig
from redline.episodes.episode import Trace, encode_trace, num_checks
from redline.episodes.tracing import RecordingConfig
from redline.errors import UserError
from redline.replay.backing import MARGIN_BYTES
from redline.replay.shared_lanes import BY_EPISODE, STEP_BY_STEP
from redline.runtime.actor import Episode
from redline.runtime.config import Job
from redline.runtime.processes import shared
from redline.runtime.processes.process_pool import Inbox, Message
from redline.runtime.processes.shared import LARGEST_BYTES, decode_letter, encode_letter, mail_bytes


def received(inbox: Inbox, count: int) -> list[Message]:
    """Return so many messages, however many looks that takes."""
    messages: list[Message] = []

    def have_come() -> bool:
        messages.extend(inbox.receive())
        return len(messages) >= count

    look_until(have_come)
    return messages


def is_full(descriptor: int) -> bool:
    """Tell whether a pipe takes nothing more at present."""
    return not select.select([], [descriptor], [], 0.0)[1]


def test_a_message_comes_as_it_was_sent() -> None:
    inbox = Inbox()
    episodes = [Episode(1, float("inf"), 3, 4, 5, b"\ntrace"), Episode(2, -1.5, 3, 4, 5, is_truncated=True)]
    inbox.outbox.send("saved", path=Path("a/b"), steps=np.int64(7), episodes=episodes)
    (message,) = inbox.receive()
    assert msgspec.convert(message.pop("episodes"), list[Episode]) == episodes
    assert message == {"kind": "saved", "path": "a/b", "steps": 7}


def test_an_inbox_without_messages_gives_none_at_once() -> None:
    inbox = Inbox()
    assert inbox.receive() == []
    inbox.outbox.send("first")
    assert inbox.receive() == [{"kind": "first"}]
    assert inbox.receive() == []


def test_messages_come_in_order_and_more_than_a_pipe_holds(start_child: StartChild) -> None:
    inbox = Inbox()
    child = start_child(send_many, inbox.outbox, 2_000)
    look_until(lambda: is_full(inbox.outbox._descriptor))  # the sender waits
    inbox.outbox.close()
    assert [message["number"] for message in received(inbox, 2_000)] == list(range(2_000))
    child.join(PATIENCE_S)
    assert child.exitcode == 0
    assert inbox.receive() == []  # the end of the pipe is no message


def test_a_message_larger_than_a_pipe_comes_whole(start_child: StartChild) -> None:
    inbox = Inbox()
    child = start_child(send_large, inbox.outbox, 1_000_000)
    looks = [inbox.receive()]  # while it is being sent: no part of it
    while not looks[-1]:
        looks.append(inbox.receive())
    assert [len(messages) for messages in looks] == [0] * (len(looks) - 1) + [1]
    assert looks[-1] == [{"kind": "large", "text": "ä" * 1_000_000}]
    child.join(PATIENCE_S)
    assert child.exitcode == 0


@pytest.mark.parametrize("cut", [1, 7, 8, 9, 18])
def test_a_part_is_no_message_until_its_end_comes(cut: int) -> None:
    data = msgspec.msgpack.encode({"kind": "torn"})
    data = len(data).to_bytes(8, "little") + data
    inbox = Inbox()
    inbox.outbox.send("whole")
    os.write(inbox.outbox._descriptor, data[:cut])
    assert inbox.receive() == [{"kind": "whole"}]
    assert inbox.receive() == []
    os.write(inbox.outbox._descriptor, data[cut:] + data[:cut])
    assert inbox.receive() == [{"kind": "torn"}]
    inbox.outbox.close()  # its sender did not live to end the second
    assert inbox.receive() == []


def test_a_sender_that_is_killed_in_a_message_leaves_no_part_of_it(start_child: StartChild) -> None:
    inbox = Inbox()
    child = start_child(send_large, inbox.outbox, 1_000_000)
    look_until(lambda: is_full(inbox.outbox._descriptor))
    child.kill()
    child.join()
    inbox.outbox.close()
    assert inbox.receive() == []
    assert inbox.receive() == []


def test_a_supervisor_that_is_gone_is_no_error(start_child: StartChild) -> None:
    inbox = Inbox()
    outbox = inbox.outbox
    children = [start_child(send_large, outbox, 1_000_000)]
    look_until(lambda: is_full(outbox._descriptor))
    inbox.close()  # in the midst of a message
    children.append(start_child(send_many, outbox, 10))
    outbox.send("anybody there?")
    for child in children:
        child.join(PATIENCE_S)
    assert [child.exitcode for child in children] == [0, 0]


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
    episode = Episode(7, float("-inf"), 108_000, 2**31 - 1, 12_345, trace, is_truncated=trace is None)
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
    endless = replace(ATARI, env=replace(ATARI.env, max_episode_frames=2**31 - 1))
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
    monkeypatch.setattr(shared, "available_bytes", lambda: MARGIN_BYTES + 1_000_000_000)
    shared.check_rings(job, SPEC)
    with pytest.raises(UserError, match=r"need 2\.\d+ GB .* fewer envs, or --record off"):
        shared.check_rings(replace(job, recording=RecordingConfig(record_values=True)), SPEC)

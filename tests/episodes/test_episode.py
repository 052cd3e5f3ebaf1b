"""The bytes of a recorded episode: there and back, and never believed further than they can be checked."""

import json
import struct
import zlib
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from redline.episodes.episode import (
    Played,
    RecordingError,
    Trace,
    decode_header,
    decode_trace,
    encode_episode,
    encode_trace,
    num_checks,
)
from redline.types import Array


def make_trace(*, length: int = 130, before: int = 7, actions: Array | None = None, values: bool = False) -> Trace:
    rng = np.random.default_rng(length)
    return Trace(
        lane=3,
        reset_seed=123,
        seed_offset_steps=1_007,
        length_steps=length,
        total_reward=-2.5,
        is_truncated=False,
        actions_from=1_007 - before,
        actions=rng.integers(6, size=before + length) if actions is None else actions,
        checks_from=0,
        checks=rng.integers(2**32, size=(num_checks(length), 2), dtype=np.uint32),
        values=rng.normal(size=(length, 6)).astype(np.float16) if values else None,
    )


def payload_of(trace: Trace) -> bytes:
    return encode_episode(encode_trace(trace), role="greedy", unix_s=5.0, evaluation=2, weights_steps=900)


def assert_same(found: Trace, trace: Trace) -> None:
    for name in ("actions", "checks", "values"):
        np.testing.assert_array_equal(getattr(found, name), getattr(trace, name))
    empty = {name: np.zeros(0) for name in ("actions", "checks", "values")}
    assert str(replace(found, **empty)) == str(replace(trace, **empty))


@pytest.mark.parametrize("values", [False, True])
@pytest.mark.parametrize("length", [1, 63, 64, 65, 1000])
def test_an_episode_comes_back_as_it_was(length: int, values: bool) -> None:
    trace = make_trace(length=length, values=values)
    assert_same(decode_trace(payload_of(trace)), trace)
    played, header, _ = decode_header(payload_of(trace))
    assert played == Played("greedy", 5.0, evaluation=2, weights_steps=900)
    assert (header.lane, header.seed, header.length_steps) == (trace.lane, trace.reset_seed, length)
    assert header.values_per_step == (6 if values else 0)


@pytest.mark.parametrize("largest", [255, 256, 65_535, 65_536])
def test_actions_of_large_games_come_back(largest: int) -> None:
    trace = make_trace(length=3, before=0, actions=np.array([0, largest, 1]))
    assert decode_trace(payload_of(trace)).actions.tolist() == [0, largest, 1]


def test_a_thousand_random_actions_take_a_few_hundred_bytes() -> None:
    assert len(payload_of(make_trace(length=1_000, before=0))) < 900


def test_the_start_of_a_payload_is_no_episode() -> None:
    payload = payload_of(make_trace(values=True))
    for length in range(len(payload)):
        with pytest.raises(RecordingError):
            decode_trace(payload[:length])


@given(st.data())
def test_whatever_the_bytes_are_there_is_one_clear_error_or_an_episode(data: st.DataObject) -> None:
    payload = bytearray(payload_of(make_trace(length=70)))
    for _ in range(data.draw(st.integers(1, 4))):
        payload[data.draw(st.integers(0, len(payload) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = decode_trace(bytes(payload))
    except RecordingError:
        pass
    else:
        assert len(found.actions) == found.end_steps - found.actions_from


def lie(payload: bytes, *, parts: bytes | None = None, **changes: object) -> bytes:
    """Return the payload with other numbers in its second description, and with other parts."""
    first = 4 + struct.unpack_from("<I", payload)[0]
    length = struct.unpack_from("<I", payload, first)[0]
    meta = json.loads(payload[first + 4 : first + 4 + length]) | changes
    text = json.dumps(meta).encode()
    parts = payload[first + 4 + length :] if parts is None else parts
    return payload[:first] + struct.pack("<I", len(text)) + text + parts


@pytest.mark.parametrize(
    "changes",
    [
        {"length_steps": 2**62},
        {"length_steps": 10**9, "seed_offset_steps": 0, "actions_from": 0},
        {"values_per_step": 2**40},
        {"action_bytes": 3},
        {"sizes": [2**60, 0, 0]},
        {"sizes": [-1, 1, 0]},
        {"lane": -1},
        {"return": "much"},
        {"actions_from": 2_000},
        {"checks_from": 5},
    ],
)
def test_numbers_that_lie_are_refused_before_anything_large_is_made(changes: dict[str, object]) -> None:
    with pytest.raises(RecordingError):
        decode_trace(lie(payload_of(make_trace()), **changes))


def test_a_bomb_is_not_unpacked() -> None:
    payload = payload_of(make_trace(length=64, before=0))
    bomb = zlib.compress(bytes(50_000_000), 9)
    with pytest.raises(RecordingError, match="where 64 were compressed"):
        decode_trace(lie(payload, parts=bomb + bytes(8), sizes=[len(bomb), 8, 0]))


def test_an_action_that_was_changed_is_noticed_even_if_the_block_is_right() -> None:
    trace = make_trace(length=64, before=0)
    actions = trace.actions.astype(np.uint8)
    actions[10] ^= 1
    packed = zlib.compress(actions.tobytes(), 9)
    with pytest.raises(RecordingError, match="not those that were recorded"):
        decode_trace(lie(payload_of(trace), parts=packed + bytes(8), sizes=[len(packed), 8, 0]))

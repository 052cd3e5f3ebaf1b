"""Adapters of peers deliver real pairs of states: a peer that returns anything else would be measured for nothing."""

import warnings
from collections.abc import Iterable

import numpy as np
import pytest
import torch
from stamped_game import STACK, Stack, read, stamped_game, true_pairs

from redline.bench.replay_speed import Sampling, filled_memory
from replay_memories import PEERS, Peer, transitions
from replay_peers import measurement

PLAYED = stamped_game()
PAIRS = true_pairs(PLAYED)
ENDED_STATES = {state for (state, _), done in PAIRS.items() if done}
Pairs = set[tuple[Stack, Stack]]


def sampled_pairs(batches: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> Pairs:
    pairs: Pairs = set()
    for state, next_state in batches:
        assert state.shape == next_state.shape == (32, STACK, *PLAYED.spec.frame_shape)
        assert state.dtype == next_state.dtype == torch.uint8
        pairs |= set(zip(read(state), read(next_state), strict=True))
    return pairs


def filled(name: str) -> Pairs:
    peer = PEERS[name]
    pytest.importorskip(peer.module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # theirs
        memory = peer.fill(PLAYED)
        return sampled_pairs(memory.sample(32) for _ in range(400))


@pytest.mark.parametrize("name", ["stable_baselines3", "cpprb", "torchrl"])
def test_every_pair_was_seen_and_every_pair_seen_can_come(name: str) -> None:
    assert filled(name) == set(PAIRS)


def test_optimized_sb3_is_right_within_episodes() -> None:
    pairs = filled("stable_baselines3_optimized")
    assert {pair for pair in pairs if pair[0] not in ENDED_STATES} == {pair for pair, done in PAIRS.items() if not done}
    # its next state after an end is the next episode's first, as documented; the done flag masks it
    assert all(
        next_state[:3] == (0, 0, 0)
        for state, next_state in pairs
        if state in ENDED_STATES and (state, next_state) not in PAIRS
    )


def test_tianshou_is_right_within_episodes_but_for_its_padding() -> None:
    last_steps = {(len(PLAYED.steps) * 2 + lane * 1_000_000) for lane in range(1, PLAYED.lanes + 1)}

    def as_tianshou_pads(stack: Stack) -> Stack:
        first = next(number for number in stack if number)
        return tuple(number or first for number in stack)

    expected = {(as_tianshou_pads(a), as_tianshou_pads(b)) for (a, b), done in PAIRS.items() if not done}
    # a lane's newest step has no next frame yet, and an ended one none at all: its own state comes in its place
    expected = {(a, a if b[-1] in last_steps else b) for a, b in expected}
    expected |= {(as_tianshou_pads(state), as_tianshou_pads(state)) for state in ENDED_STATES}
    assert filled("tianshou") == expected


@pytest.mark.parametrize("codec", ["raw", "zstd", "lz4"])
@pytest.mark.parametrize("prefetch", [0, 4])
def test_ours_delivers_pairs_that_were_seen(codec: str, prefetch: int) -> None:
    memory = filled_memory(PLAYED, codec=codec)
    sampling = Sampling(memory, prioritized=False, prefetch=prefetch)
    try:
        pairs: Pairs = set()
        for _ in range(100):
            sampling(1)
            assert sampling.last is not None
            pairs |= sampled_pairs([sampling.last])
    finally:
        sampling.close()
        memory.close()
    assert pairs <= set(PAIRS)
    assert len(pairs) > 0.9 * len(PAIRS)


def test_bytes_are_those_of_the_frames_kept() -> None:
    frame_bytes = PLAYED.first_frames[0].nbytes
    for name, peer in PEERS.items():
        if peer.missing or name == "cpprb":  # measured by resident memory, which such a small game does not move
            continue
        per_transition = peer.fill(PLAYED).num_bytes / PLAYED.num_transitions
        assert 0 <= per_transition - peer.frames_per_transition * frame_bytes < 40, name


def test_a_missing_peer_names_the_command_that_installs_it() -> None:
    absent = Peer("no_such_module", "no-such-package", "", 1, lambda played: pytest.fail("never filled"))
    assert absent.missing is not None
    assert "make setup EXTRAS=bench" in absent.missing


def test_stacks_are_padded_with_zeros_and_go_on_frame_by_frame() -> None:
    previous = None
    for step in transitions(stamped_game(num_steps=50)):
        assert np.array_equal(step.state[:, 1:], step.next_state[:, :-1])
        if previous is not None:
            goes_on = ~previous.done
            assert np.array_equal(step.state[goes_on], previous.next_state[goes_on])
            assert not step.state[previous.done, : STACK - 1].any()
        previous = step


@pytest.mark.parametrize(("slowest", "passed"), [(1.1, True), (0.9, False), (None, None)])
def test_ours_must_be_faster_than_every_peer(slowest: float | None, passed: bool | None) -> None:
    rate = {"uniform": {"off": {"median": 500.0}}}
    result = {
        "config": {"games": ["pong"], "transitions_per_game": 1_000, "batch_size": 32},
        "bytes_per_transition": {"pong": 97.0, "mean": 97.0, "worst": 97.0},
        "batches_per_s": {"raw": rate, "zstd": rate},
        "batches_per_s_worst_game": {"game": "pong", "zstd": rate},
        "goals": {"zstd_batches_per_s": {"met": True}},
        "duration_s": 1.0,
    }
    fast = {"batches_per_s": {"median": 1.0}, "ours_raw_over_it": {"median": 2.0}}
    other = {"batches_per_s": None}
    if slowest is not None:
        other = {"batches_per_s": {"median": 1.0}, "ours_raw_over_it": {"median": slowest}}
    found = measurement(result, {"fast": fast, "other": other})
    assert (found.name, found.passed) == ("replay-bench", passed)

"""The board: what one process shows, the others see; and a process that waits says for what, and that it lives."""

from __future__ import annotations

import time

import numpy as np
import pytest
from child_work import PATIENCE_S, StartChild, answer_board, play_when_it_waits, stop_when_it_waits

from redline.runtime.processes import board as board_module
from redline.runtime.processes.board import EVALUATOR, FIRST_ACTOR, LEARNER, WAITS, Board, Place, mean_ages


def never() -> bool:
    return False


def waited(board: Board, index: int) -> dict[str, float]:
    """Return the waits of a place that are not 0."""
    return {name: seconds for name, seconds in zip(WAITS, board.waited_s[index].tolist(), strict=True) if seconds}


def test_what_one_process_shows_another_sees(start_child: StartChild) -> None:
    board = Board(3)
    child = start_child(answer_board, board, FIRST_ACTOR + 1)
    board.answer_sync(4, is_safe=False)
    board.answer_sync(5, is_safe=True)
    board.show_progress(steps=1_000, updates=70)
    board.show_evaluation(number=3, steps=900, mean=12.5)
    board.order_save()
    board.order_save()
    board.bells[FIRST_ACTOR + 1].ring()
    learner = Place(board, LEARNER)
    assert learner.wait_until(lambda: "envs" in waited(board, FIRST_ACTOR + 1), on="actors", timeout_s=PATIENCE_S)
    assert board.steps.tolist() == [0, 0, 0, 16, 0]
    assert board.age_updates[:, :2].tolist() == [[0, 0], [0, 0], [0, 0], [10, 1], [0, 0]]
    board.stop()
    child.join(PATIENCE_S)
    assert child.exitcode == 0  # it saw what was shown here
    assert np.flatnonzero(board.beat_s).tolist() == [LEARNER, FIRST_ACTOR + 1]
    assert board.beat_s[FIRST_ACTOR + 1] <= time.monotonic()


def test_nothing_is_ordered_and_nothing_shown_at_first() -> None:
    board = Board(1)
    assert not board.is_stopped
    assert (board.saves_ordered, board.sync_answered, board.sync_failed) == (0, 0, 0)
    assert (board.run_steps, board.run_updates, board.evaluation) == (0, 0, (0, 0, 0.0))


def test_a_wait_counts_for_what_it_waited() -> None:
    board = Board(1)
    place = Place(board, FIRST_ACTOR)
    assert not place.wait_until(never, on="learner", timeout_s=0.1)
    once = board.waited_s[FIRST_ACTOR, WAITS.index("learner")]
    assert 0.09 < once < PATIENCE_S
    assert not place.wait_until(never, on="learner", timeout_s=0.1)
    assert not place.wait_until(never, on="envs", timeout_s=0.05)
    shares = waited(board, FIRST_ACTOR)
    assert shares.keys() == {"learner", "envs"}
    assert shares["learner"] > once + 0.09
    assert 0.04 < shares["envs"] < PATIENCE_S
    assert waited(board, LEARNER) == waited(board, EVALUATOR) == {}


def test_what_is_true_already_is_not_waited_for() -> None:
    board = Board(1)
    assert Place(board, LEARNER).wait_until(lambda: True, on="actors")
    board.stop()
    assert Place(board, LEARNER).wait_until(lambda: True, on="actors")
    assert waited(board, LEARNER) == {}


def test_a_process_that_waits_shows_that_it_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_module, "BEAT_INTERVAL_S", 0.01)
    board = Board(1)
    beats: list[float] = []

    def note_beat() -> bool:
        beats.append(float(board.beat_s[LEARNER]))
        return False

    begun_s = time.monotonic()
    Place(board, LEARNER).wait_until(note_beat, on="actors", timeout_s=0.3)
    assert beats[0] == 0.0
    assert len(set(beats)) == len(beats) > 3  # a new sign of life between two looks
    assert begun_s < beats[1] < beats[-1] <= time.monotonic()
    assert 0.29 < board.waited_s[LEARNER].sum() <= time.monotonic() - begun_s  # each moment is counted once


def test_a_wait_ends_by_the_ring_of_another_process(start_child: StartChild, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_module, "BEAT_INTERVAL_S", 10 * PATIENCE_S)  # nothing but a ring ends it in time
    board = Board(1)
    place = Place(board, EVALUATOR)
    place.beat()
    start_child(play_when_it_waits, board, EVALUATOR)
    begun_s = time.monotonic()
    assert place.wait_until(lambda: bool(board.steps[EVALUATOR + 1]), on="actors")
    assert time.monotonic() - begun_s < PATIENCE_S


def test_a_wait_ends_when_the_run_does(start_child: StartChild, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_module, "BEAT_INTERVAL_S", 10 * PATIENCE_S)
    board = Board(1)
    place = Place(board, FIRST_ACTOR)
    place.beat()
    start_child(stop_when_it_waits, board, FIRST_ACTOR)
    begun_s = time.monotonic()
    assert not place.wait_until(never, on="learner")
    assert time.monotonic() - begun_s < PATIENCE_S
    assert not place.wait_until(never, on="learner", timeout_s=PATIENCE_S)  # nor does one begin
    assert time.monotonic() - begun_s < PATIENCE_S


def test_a_beat_may_announce_silence() -> None:
    board = Board(1)
    Place(board, LEARNER).beat(500.0)
    assert 400.0 < board.beat_s[LEARNER] - time.monotonic() < 500.1


def test_a_block_that_waits_is_counted_also_when_it_fails() -> None:
    board = Board(1)

    def fail_slowly() -> None:
        with Place(board, FIRST_ACTOR).waiting("envs"):
            time.sleep(0.05)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        fail_slowly()
    assert waited(board, FIRST_ACTOR).keys() == {"envs"}
    assert board.waited_s[FIRST_ACTOR].sum() > 0.04


def test_the_age_of_weights_is_how_many_updates_they_lag_behind() -> None:
    board = Board(1)
    place = Place(board, FIRST_ACTOR)
    board.show_progress(steps=1, updates=10)
    for weights_updates in (10, 7, 12):  # newer than what the learner has shown: as young as can be
        place.acted_with(weights_updates)
    assert board.age_updates[FIRST_ACTOR, :2].tolist() == [3, 3]


def test_mean_ages_are_those_between_two_readings() -> None:
    board = Board(2)
    board.show_progress(steps=1, updates=10)
    first, second = Place(board, FIRST_ACTOR), Place(board, FIRST_ACTOR + 1)
    first.acted_with(0)
    second.acted_with(5)
    before = board.age_updates.copy()
    for weights_updates in (8, 9):
        first.acted_with(weights_updates)
    means = mean_ages(before, board.age_updates.copy())
    assert means[FIRST_ACTOR] == 1.5
    assert np.isnan(means[[LEARNER, EVALUATOR, FIRST_ACTOR + 1]]).all()  # nobody acted there

"""The sheet has the size it should have, and shows the very pixels that are stored."""

import numpy as np
import pytest
from known_memory import frame_of, make_memory
from PIL import Image

from redline.cli.saved_replay import draw_transitions
from redline.episodes.overlay import AMBER, BACKGROUND
from redline.episodes.sheet import DrawnTransition, draw_transition_sheet, plan_transition_sheet
from redline.replay import ReplayMemory
from redline.types import Array

NAMES = ("NOOP", "UP", "DOWN")


def draw(memory: ReplayMemory, count: int = 5, seed: int = 0) -> list[DrawnTransition]:
    return draw_transitions(memory, count, np.random.default_rng(seed))


def sheet_of(samples: list[DrawnTransition]) -> Array:
    return np.asarray(draw_transition_sheet(samples, title="a run", subtitle="how full", action_names=NAMES))


def shown_frame(samples: list[DrawnTransition], sample: int, place: int) -> Array:
    strip, tiles = plan_transition_sheet(samples)
    left, top = tiles.corner(sample)
    left += strip.left(place)
    return sheet_of(samples)[top : top + strip.frame_height, left : left + strip.frame_width]


def test_each_transition_is_drawn_once_and_in_order() -> None:
    samples = draw(make_memory(), 16)
    assert [(sample.lane, sample.number) for sample in samples] == [(lane, n) for lane in (0, 1) for n in range(8)]
    assert len(draw(make_memory(), 100)) == 16


def test_the_draw_depends_on_the_seed_alone() -> None:
    memory = make_memory()
    places = [[(sample.lane, sample.number) for sample in draw(memory, 6, seed)] for seed in (3, 3, 4)]
    assert places[0] == places[1] != places[2]


def test_what_is_drawn_is_what_was_experienced() -> None:
    first, second, third, fourth = draw(make_memory(), 16)[:4]
    frames = [frame_of(0, time, (6, 5), "uint8") for time in range(6)]
    assert np.array_equal(third.frames, np.stack(frames[:4]))
    assert (third.action, third.reward, third.ending, third.step) == (2, 1.0, "terminated", 2)
    assert first.is_seen.tolist() == [False, False, True, True]
    assert second.is_seen.tolist() == [False, True, True, True]
    # the next episode begins with the fifth frame that the lane showed
    assert np.array_equal(fourth.frames[2:], np.stack(frames[4:6]))


def test_the_sheet_shows_the_stored_pixels() -> None:
    samples = draw(make_memory(), 16)
    strip, _ = plan_transition_sheet(samples)
    scale = strip.frame_height // 6
    assert (strip.frame_height, strip.frame_width) == (6 * scale, 5 * scale)
    for index, sample in enumerate(samples):
        for place in np.flatnonzero(sample.is_seen).tolist():
            shown = shown_frame(samples, index, place)[::scale, ::scale]
            assert np.array_equal(shown, np.repeat(sample.frames[place][:, :, None], 3, axis=2))


def test_what_was_before_the_episode_is_no_picture() -> None:
    samples = draw(make_memory(), 16)
    assert (shown_frame(samples, 0, 0)[0] == BACKGROUND).all()


def test_the_sheet_has_the_planned_size() -> None:
    samples = draw(make_memory((84, 84)), 7)
    # seven samples: two columns of four; frames twice their size, K + 1 = 4 of them, 2 gaps and the words
    width = 2 * (4 * 168 + 2 * 8 + 250) + 44 + 2 * 28
    height = 96 + 30 + 4 * 168 + 3 * 18 + 28
    assert plan_transition_sheet(samples)[1].size == (width, height)
    assert sheet_of(samples).shape == (height, width, 3)


def test_colour_pictures_keep_their_colours() -> None:
    samples = draw(make_memory((3, 6, 5)), 3)
    scale = plan_transition_sheet(samples)[0].frame_height // 6
    shown = shown_frame(samples, 0, 3)[::scale, ::scale]
    assert np.array_equal(shown, np.moveaxis(samples[0].frames[3], 0, -1))


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_other_numbers_of_channels_are_grey(channels: int) -> None:
    samples = draw(make_memory((channels, 6, 5)), 3)
    scale = plan_transition_sheet(samples)[0].frame_height // 6
    shown = shown_frame(samples, 1, 3)[::scale, ::scale]
    grey = samples[1].frames[3].mean(axis=0).astype(np.uint8)
    assert np.array_equal(shown, np.repeat(grey[:, :, None], 3, axis=2))


@pytest.mark.parametrize("length", [1, 4, 128])
def test_vectors_become_bars(length: int) -> None:
    samples = draw(make_memory((length,), "float32", stack=1), 16)
    assert plan_transition_sheet(samples)[0].frame_height <= 336
    assert not np.array_equal(shown_frame(samples, 0, 1), shown_frame(samples, 7, 1))


def test_values_that_are_no_numbers_are_drawn_all_the_same() -> None:
    (sample,) = draw(make_memory((4,), "float32", stack=1), 1)
    sample.frames[:] = [np.nan, np.inf, -np.inf, 0.0]
    assert sheet_of([sample]).size


def test_an_ending_is_written_in_its_own_colour() -> None:
    samples = draw(make_memory((84, 84)), 16)
    ended = [index for index, sample in enumerate(samples) if sample.ending]
    assert len(ended) == 4
    (strip, tiles), sheet = plan_transition_sheet(samples), sheet_of(samples)
    for index in range(16):
        left, top = tiles.corner(index)
        words = sheet[top : top + 168, left + strip.left(3) - 250 : left + strip.left(3)]
        assert (words == AMBER).all(axis=2).any() == (index in ended)


def test_no_transitions_make_a_sheet_that_says_so() -> None:
    sheet = draw_transition_sheet([], title="a run", subtitle="empty", action_names=NAMES)
    assert isinstance(sheet, Image.Image)
    assert (np.asarray(sheet) == AMBER).all(axis=2).any()

"""What is told beside a picture: the game's own pixels stay as they are, and the panel says what was recorded."""

from collections.abc import Generator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from short_runs import record_run

from redline.envs.config import EnvConfig
from redline.episodes.library import open_library
from redline.episodes.overlay import (
    AMBER,
    BACKGROUND,
    CHOSEN,
    DIMMED,
    GREEN,
    HEAD,
    ROW,
    TARGET_HEIGHT,
    About,
    Overlay,
    about_episode,
    enlarge,
    enlarged,
    iterate_grid,
    plan_grid,
    shown_values,
    usual_scale,
)
from redline.episodes.replaying import Picture, iterate_pictures
from redline.types import Array

NAMES = ("NOOP", "FIRE", "RIGHT", "LEFT", "RIGHTFIRE", "LEFTFIRE")


def about(names: tuple[str, ...] = NAMES, values: str | None = "q") -> About:
    return About("episode 7 · greedy", "at step 1,000 of the run", 100, names, values, (-1.0, 1.0))


def picture(
    action: int | None = 2, values: list[float] | None = None, *, shape: tuple[int, int] = (210, 160), step: int = 50
) -> Picture:
    image = np.random.default_rng(step).integers(256, size=(*shape, 3), dtype=np.uint8)
    thought = None if values is None else np.array(values, np.float32)
    return Picture(step, image, 1.0, -3.0, action, thought)


def has(colour: tuple[int, int, int], area: Array) -> bool:
    return bool((area == colour).all(axis=-1).any())


@pytest.mark.parametrize("scale", [1, 2, 3])
@pytest.mark.parametrize("shape", [(210, 160), (85, 83)])
def test_the_games_own_pixels_stay_as_they_are(scale: int, shape: tuple[int, int]) -> None:
    seen = picture(values=[0.1, 0.2, 0.9, 0.0, -0.5, 0.3], shape=shape)
    drawn = Overlay(about(), scale=scale).draw(seen)
    height, width = shape
    assert np.array_equal(drawn[: height * scale : scale, : width * scale : scale], seen.image)
    assert np.array_equal(drawn[: height * scale, : width * scale], enlarge(seen.image, scale))
    assert drawn.shape[0] % 2 == drawn.shape[1] % 2 == 0
    assert drawn.shape[1] > width * scale


def test_the_chosen_action_and_the_highest_value_are_marked() -> None:
    drawn = Overlay(about(), scale=1).draw(picture(action=1, values=[0.1, 0.2, 0.9, 0.0, -0.5, 0.3]))
    rows = [drawn[HEAD + place * ROW : HEAD + (place + 1) * ROW, 160:] for place in range(6)]
    assert [has(CHOSEN, row) for row in rows] == [place == 1 for place in range(6)]
    assert [has(AMBER, row) for row in rows] == [place == 1 for place in range(6)]
    assert [has(GREEN, row) for row in rows] == [place == 2 for place in range(6)]


def test_a_longer_bar_is_a_higher_value() -> None:
    values = [-1.0, -0.5, 0.0, 0.25, 0.5, 1.0]
    drawn = Overlay(about(), scale=1).draw(picture(values=values))
    bars = []
    for place in range(6):
        row = drawn[HEAD + place * ROW + ROW // 2, 160:]
        bars.append(int(((row == (86, 122, 190)).all(-1) | (row == GREEN).all(-1)).sum()))
    assert bars[0] > bars[1] > bars[3] < bars[4] < bars[5]


def test_the_panel_says_that_nothing_was_thought() -> None:
    shown = Overlay(about(), scale=1)
    assert not np.array_equal(shown.draw(picture(values=None)), shown.draw(picture(values=[0.0] * 6)))
    assert shown.draw(picture(values=None)).shape == shown.draw(picture(values=[0.0] * 6)).shape


def test_preferences_are_shown_as_probabilities() -> None:
    logits = np.log(np.array([0.5, 0.3, 0.2], np.float32)) + 80.0
    assert shown_values(logits, "logits") == pytest.approx([0.5, 0.3, 0.2], abs=1e-5)
    assert shown_values(logits, "q") is logits


@pytest.mark.parametrize("count", [1, 3, 18, 40])
def test_any_number_of_actions_finds_room(count: int) -> None:
    names = tuple(f"ACTION {place}" for place in range(min(count, 24)))
    drawn = Overlay(about(names), scale=1).draw(picture(action=count - 1, values=[0.5] * count))
    # nothing touches the lower or the right edge
    assert (drawn[-4:, 160:] == BACKGROUND).all()
    assert (drawn[:, -4:] == BACKGROUND).all()


def test_words_fit_into_the_panel_whatever_they_are() -> None:
    long = About(
        "episode 123456789 · some-other-role", "at step 50,000,000,000 of the run", 10**9, NAMES, "q", (0.0, 1e4)
    )
    seen = Picture(10**9, picture().image, -12_345.0, 9_876_543.25, 4, np.full(6, -65_504.0, np.float32))
    drawn = Overlay(long, scale=1).draw(seen)
    assert (drawn[:, -4:] == BACKGROUND).all()


def test_names_from_a_file_are_tamed(tmp_path: Path) -> None:
    record_run(tmp_path, EnvConfig(id="redline/Catch-v0"), episodes=1, values="q")
    library = open_library(tmp_path)
    (entry,) = library.entries
    for told, expected in [
        (["\x1b[31mred" + "x" * 100, "left", "right"], (" [31mred" + "x" * 8, "left", "right")),
        (["up"], ("up", "1", "2")),
    ]:
        library.settings[0].action_names[:] = told
        assert about_episode(library, entry, name="episode 1").action_names == expected


def test_the_range_of_values_is_the_episodes_own(tmp_path: Path) -> None:
    for kind in ("q", "logits"):
        (trace,) = record_run(tmp_path / kind, EnvConfig(id="redline/Catch-v0"), episodes=1, values=kind)
        library = open_library(tmp_path / kind)
        found = about_episode(library, library.entries[0], name="episode 1")
        assert trace.values is not None
        own = (min(float(trace.values.min()), 0.0), max(float(trace.values.max()), 0.0))
        assert found.values == kind
        assert found.value_range == (own if kind == "q" else (0.0, 1.0))
        assert found.title == "episode 1 · actor"


def test_pictures_are_enlarged_by_whole_numbers() -> None:
    scales = [usual_scale(height, target=TARGET_HEIGHT) for height in (210, 250, 84, 400, 1_000, 4)]
    assert scales == [3, 2, 7, 1, 1, 16]
    small = picture(shape=(2, 3))
    assert np.array_equal(enlarged(small, scale=2, target=100)[::2, ::2], small.image)
    assert enlarged(small, scale=None, target=20).shape == (20, 30, 3)


def film(length: int, start: int) -> Generator[Picture, None, None]:
    for step in range(length + 1):
        image = np.full((40, 30, 3), start + step, np.uint8)
        yield Picture(step, image, 1.0, float(step), None if step == length else 0, None)


def test_episodes_side_by_side_end_when_they_end() -> None:
    lengths = (2, 5, 3)
    abouts = [about(values=None) for _ in lengths]
    films = [film(length, 100 * place) for place, length in enumerate(lengths)]
    frames = list(iterate_grid(abouts, films, [partial(enlarged, scale=1, target=0)] * 3))
    assert len(frames) == 6
    tiles = plan_grid([np.zeros((40, 30, 3), np.uint8)] * 3)
    size = [side + side % 2 for side in tiles.size]
    assert {frame.shape for frame in frames} == {(*size[::-1], 3)}
    assert all(side % 2 == 0 for side in size)
    for time, frame in enumerate(frames):
        for place, length in enumerate(lengths):
            left, top = tiles.corner(place)
            tile = frame[top : top + 40, left : left + 30]
            value = 100 * place + min(time, length)
            assert (tile == (value if time <= length else int(value * DIMMED))).all()
        left, top = tiles.corner(0)
        assert has(AMBER, frame[top + 40 : top + 86, left : left + 30]) == (time > 2)  # "ended" below it


def test_a_whole_episode_keeps_its_size(tmp_path: Path) -> None:
    record_run(tmp_path, EnvConfig(id="pong", max_episode_frames=80), episodes=1, values="logits")
    library = open_library(tmp_path)
    (entry,) = library.entries
    overlay = Overlay(about_episode(library, entry, name="episode 1"), scale=None)
    shapes = {overlay.draw(one).shape for one in iterate_pictures(library, entry)}
    assert len(shapes) == 1
    assert shapes.pop()[0] == 630

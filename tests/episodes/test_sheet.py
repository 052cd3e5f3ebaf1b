"""A contact sheet of an episode: the pictures that it should hold, pixel for pixel, where it says."""

from pathlib import Path

import numpy as np
import pytest
from short_runs import record_run

from redline.envs.config import EnvConfig
from redline.episodes.library import open_library
from redline.episodes.overlay import BACKGROUND, about_episode
from redline.episodes.replaying import Picture, iterate_pictures
from redline.episodes.sheet import Collected, draw_sheet, evenly_spaced, plan_sheet


def test_pictures_are_evenly_spaced_from_the_first_to_the_last() -> None:
    assert evenly_spaced(23) == list(range(24))
    assert evenly_spaced(5) == [0, 1, 2, 3, 4, 5]
    assert evenly_spaced(1_000, 5) == [0, 250, 500, 750, 1_000]
    spaced = evenly_spaced(1_234)
    assert len(set(spaced)) == 24
    assert set(np.diff(spaced)) == {53, 54}


@pytest.mark.parametrize("scale", [None, 1, 2])
def test_the_sheet_holds_the_games_own_pixels(scale: int | None, tmp_path: Path) -> None:
    record_run(tmp_path, EnvConfig(id="pong", max_episode_frames=200), episodes=1)
    library = open_library(tmp_path)
    (entry,) = library.entries
    collected = Collected(evenly_spaced(entry.header.length_steps))
    passed = list(collected.passing(iterate_pictures(library, entry)))
    assert [picture.step for picture in passed] == list(range(51))
    assert [picture.step for picture in collected.pictures] == evenly_spaced(50)
    about = about_episode(library, entry, name="episode 1")
    sheet = np.asarray(draw_sheet(collected.pictures, about, title="pong", subtitle="episode 1", scale=scale))
    used = scale or 1
    geometry = plan_sheet(collected.pictures, used)
    assert sheet.shape[1] >= geometry.size[0]
    assert sheet.shape[0] == geometry.size[1]
    for place, picture in enumerate(collected.pictures):
        left, top = geometry.corner(place)
        assert np.array_equal(sheet[top : top + 210 * used : used, left : left + 160 * used : used], picture.image)
    assert (sheet[:, -10:][10:] == BACKGROUND).all()  # nothing is cut off on the right


def test_a_short_episode_of_small_pictures_has_room_for_its_words(tmp_path: Path) -> None:
    record_run(tmp_path, EnvConfig(id="redline/Catch-v0"), episodes=1)
    library = open_library(tmp_path)
    (entry,) = library.entries
    pictures: list[Picture] = list(iterate_pictures(library, entry))
    about = about_episode(library, entry, name="episode 1")
    title = "a title that is far longer than two small pictures beside each other are wide"
    sheet = draw_sheet(pictures[-2:], about, title=title, subtitle="", scale=1)
    assert (np.asarray(sheet)[10:, -10:] == BACKGROUND).all()
    assert sheet.width > 2 * 84 + 100

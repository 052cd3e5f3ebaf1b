"""Videos hold the pictures that they were given, and are there whole or not at all."""

import os
import sys
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import pytest
from PIL import Image, ImageSequence
from short_runs import record_run, screens_of_a_bare_emulator

from redline.envs.config import EnvConfig
from redline.episodes import video
from redline.episodes.library import open_library
from redline.episodes.replaying import iterate_pictures
from redline.episodes.video import durations_ms, write_video
from redline.errors import UserError
from redline.types import Array

FIFTEEN = Fraction(15)


def decoded(path: Path) -> tuple[Array, Fraction]:
    with av.open(str(path)) as container:
        (stream,) = container.streams.video
        assert stream.codec_context.name == "h264"
        assert stream.codec_context.pix_fmt == "yuv420p"
        rate = stream.average_rate
        assert rate is not None
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(stream)]), rate


def moving(count: int, height: int = 40, width: int = 60) -> list[Array]:
    pictures = []
    for place in range(count):
        picture = np.zeros((height, width, 3), np.uint8)
        picture[:, :] = (30, 60, 120)
        picture[10:20, place : place + 10] = (220, 180, 40)
        pictures.append(picture)
    return pictures


def test_frames_of_an_mp4_are_the_screens_of_a_fresh_emulator(tmp_path: Path) -> None:
    (trace,) = record_run(tmp_path, EnvConfig(id="ALE/Breakout-v5", max_episode_frames=400), episodes=1)
    library = open_library(tmp_path)
    (entry,) = library.entries
    target = tmp_path / "breakout.mp4"
    pictures = (picture.image for picture in iterate_pictures(library, entry))
    written = write_video(target, pictures, pictures_per_s=FIFTEEN, count=trace.length_steps + 1)
    assert (written.pictures, written.width, written.height) == (trace.length_steps + 1, 160, 210)
    assert written.size_bytes == target.stat().st_size

    screens = screens_of_a_bare_emulator(trace, game="breakout", sticky=0.25)
    frames, rate = decoded(target)
    assert rate == 15
    assert frames.shape == (trace.length_steps + 1, 210, 160, 3)
    differences = np.abs(frames.astype(np.int16) - np.stack(screens)).mean(axis=(1, 2, 3))
    assert differences.max() < 2.0
    # and each frame is nearer to its own screen than to the others', where these differ at all
    own = np.abs(frames[40].astype(np.int16) - screens[40]).mean()
    other = np.abs(frames[40].astype(np.int16) - screens[0]).mean()
    assert own < other


def test_odd_sides_are_padded(tmp_path: Path) -> None:
    pictures = moving(5, height=41, width=61)
    written = write_video(tmp_path / "odd.mp4", pictures, pictures_per_s=Fraction(60, 7), count=5)
    assert (written.width, written.height) == (62, 42)
    frames, rate = decoded(tmp_path / "odd.mp4")
    assert rate == Fraction(60, 7)
    assert frames.shape == (5, 42, 62, 3)
    assert np.abs(frames[:, :40, :60].astype(np.int16) - np.stack(pictures)[:, :40, :60]).mean() < 3.0


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_nobody_can_prepare_the_name_of_a_temporary_file(suffix: str, tmp_path: Path) -> None:
    target, victim = tmp_path / f"video{suffix}", tmp_path / "victim"
    victim.write_text("untouched")
    (tmp_path / f".video{suffix}.tmp").symlink_to(victim)
    write_video(target, moving(3), pictures_per_s=FIFTEEN, count=3)
    assert target.stat().st_size
    assert victim.read_text() == "untouched"


def test_what_a_kill_left_is_removed_a_day_later(tmp_path: Path) -> None:
    abandoned, being_written = (tmp_path / f".redline-{digit * 16}.tmp" for digit in "01")
    abandoned.write_bytes(b"half a video")
    os.utime(abandoned, (yesterday_s := time.time() - 90_000, yesterday_s))
    being_written.write_bytes(b"another process is here")
    write_video(tmp_path / "video.gif", moving(3), pictures_per_s=FIFTEEN, count=3)
    assert {path.name for path in tmp_path.iterdir()} == {being_written.name, "video.gif"}


def test_a_gif_holds_the_games_own_pixels(tmp_path: Path) -> None:
    (trace,) = record_run(tmp_path, EnvConfig(id="pong", max_episode_frames=160), episodes=1)
    library = open_library(tmp_path)
    pictures = [picture.image for picture in iterate_pictures(library, library.entries[0])]
    write_video(tmp_path / "pong.gif", iter(pictures), pictures_per_s=FIFTEEN, count=len(pictures))
    expected = [one for place, one in enumerate(pictures) if not place or (one != pictures[place - 1]).any()]
    with Image.open(tmp_path / "pong.gif") as image:
        shown, durations = [], []
        for frame in ImageSequence.Iterator(image):
            shown.append(np.asarray(frame.convert("RGB")))
            durations.append(frame.info["duration"])
    assert len(shown) == len(expected)  # a picture like the one before prolongs it
    assert all(np.array_equal(*pair) for pair in zip(shown, expected, strict=True))
    assert sum(durations) == pytest.approx(1000 * len(pictures) / 15, abs=10)
    assert trace.length_steps == 40


def test_pictures_of_a_gif_keep_time_in_hundredths_of_a_second() -> None:
    durations = durations_ms(FIFTEEN, 15)
    assert set(durations) == {60, 70}
    assert sum(durations) == 1000
    assert durations_ms(Fraction(50), 3) == [20, 20, 20]


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_what_is_interrupted_leaves_nothing_behind(suffix: str, error: type[BaseException], tmp_path: Path) -> None:
    def pictures() -> Iterator[Array]:
        yield from moving(20)
        raise error

    target = tmp_path / f"film{suffix}"
    with pytest.raises(error):
        write_video(target, pictures(), pictures_per_s=FIFTEEN, count=40)
    assert list(tmp_path.iterdir()) == []
    target.write_bytes(b"an older one")
    with pytest.raises(error):
        write_video(target, pictures(), pictures_per_s=FIFTEEN, count=40)
    assert [path.name for path in tmp_path.iterdir()] == [target.name]
    assert target.read_bytes() == b"an older one"


@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_a_full_disk_is_told_and_leaves_nothing_behind(suffix: str, small_disk: Path) -> None:
    noise = np.random.default_rng(0).integers(256, size=(40, 200, 200, 3), dtype=np.uint8)
    with pytest.raises(UserError, match="no space left on device"):
        write_video(small_disk / f"film{suffix}", iter(noise), pictures_per_s=FIFTEEN, count=40)
    assert list(small_disk.iterdir()) == []


def test_without_the_encoder_the_command_that_installs_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(UserError) as told:
        write_video(tmp_path / "film.mp4", moving(2), pictures_per_s=FIFTEEN, count=2)
    assert "pip install av" in str(told.value)
    assert "make setup EXTRAS=video" in str(told.value)
    assert "\n" not in str(told.value)
    assert list(tmp_path.iterdir()) == []
    write_video(tmp_path / "film.gif", moving(2), pictures_per_s=FIFTEEN, count=2)


def test_a_gif_beyond_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(video, "MAX_GIF_PIXELS", 10_000)
    with pytest.raises(UserError, match=r"5 pictures of 60 × 40 is too large .* use --out film.mp4"):
        write_video(tmp_path / "film.gif", moving(5), pictures_per_s=FIFTEEN, count=5)
    assert list(tmp_path.iterdir()) == []


def test_targets_that_can_not_be_are_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "folder.mp4").mkdir()
    for name, message in [
        ("film.avi", r"end its name with \.mp4 or \.gif"),
        ("film", r"end its name with \.mp4 or \.gif"),
        ("folder.mp4", "is a folder"),
        ("nowhere/film.mp4", "there is no folder"),
    ]:
        with pytest.raises(UserError, match=message):
            write_video(tmp_path / name, moving(2), pictures_per_s=FIFTEEN, count=2)

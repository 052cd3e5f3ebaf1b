"""What a page shows of recorded episodes and videos, and where it points."""

import re
from pathlib import Path
from urllib.parse import unquote

import pytest
from made_runs import episode, facts, reading, write_run

from redline.episodes.episode import EPISODE
from redline.report.page import Page, build_page
from redline.report.run_files import load_runs
from redline.report.run_page import VideoFile, find_recordings, find_videos
from redline.report.run_summary import summarise
from redline.runs.blocks import BlockWriter

TITLE = "Recorded episodes and videos"
SETTING = 1  # kind of block


@pytest.fixture
def run(tmp_path: Path) -> Path:
    readings = [reading(float(at_s)) for at_s in (1, 2, 3)]
    return write_run(tmp_path / "runs" / "run", facts(), metrics=readings, episodes=[episode(1.0, 1.0)])


def record(run: Path, count: int, *, file: str = "episodes.rec") -> None:
    with BlockWriter(run / "recordings" / file) as blocks:
        blocks.append(SETTING, 0, b"{}")
        for number in range(count):
            blocks.append(EPISODE, number, b"an episode")


def make_videos(run: Path, *names: str, size_bytes: int = 1_500) -> None:
    (run / "videos").mkdir(exist_ok=True)
    for name in names:
        (run / "videos" / name).write_bytes(b"0" * size_bytes)


def page_of(run: Path, folder: Path | None = None) -> Page:
    [files] = load_runs([run])
    return build_page([(files, summarise(files))], None, unix_s=0.0, folder=folder)


def links(page: Page) -> list[str]:
    return re.findall(r'<a href="([^#"]+)"', page.html)


def test_a_run_without_recordings_has_no_such_part(run: Path) -> None:
    page = page_of(run)
    assert TITLE not in page.html
    assert "run-1-recordings" not in page.html
    assert "media-src" not in page.html


def test_recorded_episodes_are_counted_and_the_commands_given(run: Path) -> None:
    record(run, 3)
    record(run, 2, file="played.rec")
    record(run, 7, file="episodes.lost.rec")  # of a past that a resume has undone
    assert find_recordings(run).num_episodes == 5
    page = page_of(run)
    assert f"<h2>{TITLE}</h2>" in page.html
    assert "5 episodes are recorded in " in page.html
    for command in ("episodes {} --recorded", "play {} --episode best --out best.mp4", "play {} --verify"):
        assert f"<code>redline {command.format(run)}</code>" in page.html
    assert '<a href="#run-1-recordings">recordings</a>' in page.html


def test_a_damaged_or_foreign_file_of_recordings_is_told_of(run: Path) -> None:
    record(run, 3)
    path = run / "recordings" / "episodes.rec"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    assert find_recordings(run).num_episodes == 2
    path.write_bytes(b"<b>something else</b> entirely, and long enough")
    assert "No episode is recorded. There may be more: " in page_of(run).html
    assert "is not a file of recordings" in page_of(run).html


NAMES = {
    "best_step1200_return-3_episode17.mp4": ("best", "17", 1_200, -3.0),
    "best_step1300_return17.5_episode18_overlay.mp4": ("best", "18", 1_300, 17.5),
    "checkpoint2000_step1900_return21_episode40.mp4": ("checkpoint", "40", 1_900, 21.0),
    "step0_return0_episodep2.gif": ("", "p2", 0, 0.0),
    "best_step123456_return17.mp4": ("best", None, 123_456, 17.0),
    "checkpoint7_step7_return-21.mp4": ("checkpoint", None, 7, -21.0),
    "grid.mp4": ("", None, None, None),
    "step1_return1e+20_episode3.mp4": ("", None, None, None),
    "best_stepx_return1.mp4": ("", None, None, None),
}


@pytest.mark.parametrize("name", NAMES)
def test_a_name_tells_what_a_video_shows(run: Path, name: str) -> None:
    make_videos(run, name)
    kind, identity, steps, value = NAMES[name]
    assert find_videos(run) == [VideoFile(run / "videos" / name, kind=kind, episode=identity, steps=steps, value=value)]


def test_videos_are_linked_from_wherever_the_page_lies(run: Path, tmp_path: Path) -> None:
    make_videos(run, *NAMES)
    for folder in (tmp_path, tmp_path / "elsewhere" / "deep", run.parent, run / "videos"):
        folder.mkdir(parents=True, exist_ok=True)
        found = links(page_of(run, folder))
        assert {(folder / unquote(link)).resolve() for link in found} == {run / "videos" / name for name in NAMES}
        assert not any(link.startswith("/") for link in found)


def test_the_newest_ones_play_in_the_page(run: Path, tmp_path: Path) -> None:
    make_videos(run, *NAMES, size_bytes=600_000)
    page = page_of(run, tmp_path)
    best, checkpoint = re.findall(r"<video [^>]*>", page.html)
    assert 'controls preload="none"' in best
    assert 'src="./runs/run/videos/best_step123456_return17.mp4"' in best
    assert 'src="./runs/run/videos/checkpoint2000_step1900_return21_episode40.mp4"' in checkpoint
    assert "Best episode so far: return 17 at step 123,456" in page.html
    assert "media-src data: 'self' file:; " in page.html


def test_without_videos_of_a_training_the_best_other_one_plays(run: Path) -> None:
    make_videos(run, "grid.mp4", "step40_return-7_episode2.mp4", "step90_return-9_episode5.mp4")
    page = page_of(run)
    assert len(re.findall(r"<video ", page.html)) == 1
    assert "Best of these videos: return −7 at step 40" in page.html


def test_small_videos_are_inside_the_page(run: Path, tmp_path: Path) -> None:
    make_videos(run, *NAMES)
    page = page_of(run, tmp_path)
    assert re.findall(r'<video [^>]*src="(data:video/mp4;base64,)', page.html) == ["data:video/mp4;base64,"] * 2
    assert "media-src data:; " in page.html


def test_moving_pictures_need_no_player(run: Path) -> None:
    make_videos(run, "best_step5_return1_episode1.gif")
    page = page_of(run)
    assert "<video" not in page.html
    assert '<img alt="Best episode so far: return 1 at step 5" src="data:image/gif;base64,' in page.html
    assert "media-src" not in page.html
    assert len(links(page)) == 1


def test_a_hostile_name_stays_a_name(run: Path, tmp_path: Path) -> None:
    names = ['"><script>alert(1)<', "javascript:alert(1)", "a b%20c#d?e", "best_step1_return1_episode1'\"><b>"]
    make_videos(run, *(f"{name}.mp4" for name in names))
    page = page_of(run, tmp_path)
    assert "<script>alert" not in page.html
    assert "'\"><b>" not in page.html
    assert {unquote(link) for link in links(page)} == {f"./runs/run/videos/{name}.mp4" for name in names}
    beside = page_of(run, run / "videos")
    assert all(link.startswith("./") for link in links(beside))


def test_other_files_links_and_pipes_are_no_videos(run: Path, tmp_path: Path) -> None:
    make_videos(run, "best_step5_return1_episode1.mp4", ".hidden.tmp", "notes.txt", "half.mp4.part")
    (run / "videos" / "outside.mp4").symlink_to(tmp_path)
    (run / "videos" / "folder.mp4").mkdir()
    assert [video.path.name for video in find_videos(run)] == ["best_step5_return1_episode1.mp4"]


def test_of_very_many_the_newest_are_listed(run: Path) -> None:
    make_videos(run, *(f"step{number}_return1_episode{number}.mp4" for number in range(250)))
    page = page_of(run)
    found = links(page)
    assert len(found) == 100
    assert "step249_return1_episode249.mp4" in found[0]
    assert "The newest 100 of 250 videos" in page.html

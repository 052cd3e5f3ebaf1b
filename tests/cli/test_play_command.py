"""`redline play` as a user runs it, on runs that were really trained: videos, sheets, and the policy."""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image
from played_runs import RECORDINGS, Answer
from short_runs import screens_of_a_bare_vector

from redline.cli import play_videos
from redline.cli.main import BAD_INPUT, DONE, FAILED, main
from redline.episodes.episode import Address, Trace
from redline.episodes.library import open_library
from redline.jsonl import RecordWriter, read_records
from redline.runs.directory import RunDirectory
from redline.types import Array

Output = pytest.CaptureFixture[str]

pytestmark = pytest.mark.usefixtures("elsewhere")


def decoded(path: Path) -> Array:
    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def test_the_video_shows_what_a_fresh_emulator_shows(pong: Path, answer: Answer) -> None:
    found = answer(pong, "--episode", "7", "--out", "seven.mp4")
    (episode,) = found["episodes"]
    video = found["video"]
    assert (episode["id"], episode["length_steps"]) == ("7", 20)
    assert (video["path"], video["width"], video["height"]) == ("seven.mp4", 160, 210)
    assert (video["pictures"], video["pictures_per_s"]) == (21, 15.0)
    library = open_library(pong)
    row = read_records(pong / "episodes.jsonl")[6]
    entry = library.find(Address(row["role"], row["lane"], row["seed"], row["seed_offset_steps"]))
    assert entry is not None
    assert entry.address.seed_offset_steps > 0  # so the episodes before it were played, too
    traces = [library.load(part) for part in library.chain(entry)]
    expected = np.stack(screens_of_a_bare_vector(traces, max_frames=80)[-1])
    frames = decoded(Path("seven.mp4"))
    assert frames.shape == expected.shape
    assert np.abs(frames.astype(np.int16) - expected).mean(axis=(1, 2, 3)).max() < 2.0


def test_without_a_name_the_best_goes_into_the_runs_videos(
    pong: Path, copy: Callable[[Path], Path], capsys: Output
) -> None:
    run = copy(pong)
    capsys.readouterr()
    assert main(["play", str(run)]) == DONE
    out, err = capsys.readouterr()
    assert err == ""
    (video,) = (run / "videos").iterdir()
    best = max(row["return"] for row in read_records(run / "episodes.jsonl"))
    assert f"_return{best:.10g}_" in video.name
    assert "21 pictures of 160 × 210, 15 per second" in out
    assert str(video) in out
    assert main(["play", "--plain", "--episode", "worst", str(run), "--overlay", "--scale", "2"]) == DONE
    assert len(list((run / "videos").glob("*_overlay_x2.mp4"))) == 1


def test_overlay_grid_sheet_and_gif(pong: Path, answer: Answer) -> None:
    found = answer(pong, "--episode", "last", "--overlay", "--scale", "1", "--out", "o.gif", "--sheet", "s.png")
    assert found["video"]["height"] > 210
    assert found["video"]["width"] > 160 + 200
    assert found["sheet"] == "s.png"
    with Image.open("s.png") as sheet:
        assert sheet.format == "PNG"
        assert sheet.width > 6 * 160
    found = answer(pong, "--grid", "2", "--out", "grid.mp4")
    assert len(found["episodes"]) == 2
    assert found["episodes"][0]["id"] == "1"  # from the first to the last
    assert decoded(Path("grid.mp4")).shape[0] == 21
    found = answer(pong, "--grid", "2,best,4", "--overlay", "--scale", "1", "--out", "grid.mp4")
    assert [one["id"] for one in found["episodes"]][::2] == ["2", "4"]
    found = answer(pong, "--sheet", "only.png")
    assert found["video"] is None
    assert sorted(path.name for path in Path().iterdir()) == ["grid.mp4", "o.gif", "only.png", "s.png"]


def test_other_envs_are_shown_as_the_agent_sees_them(catch: Path, answer: Answer) -> None:
    found = answer(catch, "--episode", "last", "--out", "catch.mp4")
    assert (found["video"]["pictures"], found["video"]["width"], found["video"]["height"]) == (12, 84, 84)


def test_videos_of_the_best_are_made_once(
    pong: Path, copy: Callable[[Path], Path], answer: Answer, capsys: Output
) -> None:
    run = copy(pong)
    # the sixth beats all before it, the eighth the sixth, the ninth nobody
    rows = read_records(run / "episodes.jsonl")
    (run / "episodes.jsonl").unlink()
    with RecordWriter(run / "episodes.jsonl") as writer:
        for place, row in enumerate(rows):
            writer.write(row | {"return": {5: 40.0, 7: 50.0, 8: 45.0}.get(place, 0.0)})
    found = answer(run, "--videos", "best")
    assert [(one["id"], one["made"]) for one in found["videos"]] == [("1", True), ("6", True), ("8", True)]
    names = sorted(path.name for path in (run / "videos").iterdir())
    assert len(names) == 3
    assert any(name.startswith(f"best_step{rows[7]['steps']}_return50_") for name in names)
    assert [one["made"] for one in answer(run, "--videos", "best")["videos"]] == [False] * 3
    assert main(["play", str(run), "--videos", "best", "--plain"]) == DONE
    assert "0 videos made, 3 existed already" in capsys.readouterr().out


def test_videos_at_checkpoints_prefer_greedy_episodes(pong: Path, copy: Callable[[Path], Path], answer: Answer) -> None:
    run = copy(pong)
    steps = play_videos.checkpoint_steps(run)
    assert steps[-1] == 200
    found = answer(run, "--videos", "checkpoints")
    assert [one["why"] for one in found["videos"]] == [f"at checkpoint {at:,}" for at in steps if at >= 40]
    assert found["videos"][-1]["role"] == "greedy"
    assert all(Path(one["path"]).name.startswith("checkpoint") for one in found["videos"])


def test_hostile_events_are_no_checkpoints(pong: Path, copy: Callable[[Path], Path]) -> None:
    run = copy(pong)
    with RecordWriter(run / "events.jsonl") as writer:
        for steps in (1e300, -5, "many", None, [1], True):
            writer.write({"event": "checkpoint", "steps": steps})
    assert play_videos.checkpoint_steps(run) == play_videos.checkpoint_steps(pong)


def test_the_policy_plays_afresh_and_is_recorded(pong: Path, copy: Callable[[Path], Path], answer: Answer) -> None:
    run = copy(pong)
    before = (run / RECORDINGS).read_bytes()
    found = answer(
        run, "--policy", "--seed", "3", "--episodes", "2", "--overlay", "--out", "policy.mp4", "--episode", "p2"
    )
    assert [one["id"] for one in found["played"]] == ["p1", "p2"]
    assert {one["role"] for one in found["played"]} == {"policy"}
    assert found["video"]["pictures"] == found["played"][1]["length_steps"] + 1
    assert (run / RECORDINGS).read_bytes() == before
    checked = answer(run, "--verify")
    assert checked["verified"] == checked["episodes"] == len(open_library(pong).entries) + 2
    again = answer(run, "--policy", "--seed", "3", "--episodes", "2")
    assert [one["return"] for one in again["played"]] == [one["return"] for one in found["played"]]
    assert "video" not in again


def test_a_run_that_is_training_can_be_watched(pong: Path, copy: Callable[[Path], Path], answer: Answer) -> None:
    run = copy(pong)
    with RunDirectory.open(run):
        assert answer(run, "--verify", "--episode", "last")["verified"] == 1
        assert answer(run, "--sheet", "s.png")["sheet"] == "s.png"


def test_without_the_encoder_the_remedy_is_one_line(
    pong: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    for args in (["--out", "x.mp4"], [], ["--videos", "best"]):
        assert main(["play", str(pong), *args]) == BAD_INPUT
        err = capsys.readouterr().err
        assert "pip install av" in err
        assert err.count("\n") == 1
    assert main(["play", str(pong), "--out", "x.gif"]) == DONE


def test_ctrl_c_leaves_nothing_half(pong: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch) -> None:
    from redline.episodes import replaying

    real = replaying._values_at

    def interrupting(trace: Trace, number: int) -> Array | None:
        if number == 10 and threading.current_thread() is threading.main_thread():
            os.kill(os.getpid(), signal.SIGINT)
        return real(trace, number)

    monkeypatch.setattr(replaying, "_values_at", interrupting)
    capsys.readouterr()
    assert main(["play", str(pong), "--out", "x.mp4", "--sheet", "x.png", "--json"]) == FAILED
    out, err = capsys.readouterr()
    assert "SIGINT" in json.loads(out)["error"]
    assert err.count("\n") == 1
    assert list(Path().iterdir()) == []


def test_bad_input_is_one_line_with_a_remedy(pong: Path, tmp_path: Path, refused: Any) -> None:
    run = str(pong)
    Path("file").write_text("")
    Path("link.mp4").symlink_to("file")
    Path("link.png").symlink_to("file")
    for args, message in [
        ([run, "--out", "link.mp4"], "link.mp4 is a link"),
        ([run, "--sheet", "link.png"], "link.png is a link"),
        ([], "play needs a run directory"),
        (["--verify"], "play needs a run directory"),
        (["--episode", "best"], "play needs a run directory"),
        (["nowhere"], "nowhere is not a run directory"),
        (["file"], "file is not a run directory"),
        ([run, "--episode", "4711"], "there is no episode '4711'"),
        ([run, "--episode", "p9"], "there is no episode 'p9'"),
        ([run, "--verify", "--episode", "4711"], "there is no episode '4711'"),
        ([run, "--epsiode", "1"], "did you mean --episode"),
        ([run, "--out", "x.avi"], "end its name with .mp4 or .gif"),
        ([run, "--out", "nowhere/x.mp4"], "there is no folder nowhere"),
        ([run, "--sheet", "x.jpg"], "use --sheet x.png"),
        ([run, "--sheet", "nowhere/x.png"], "nowhere does not exist"),
        ([run, "--scale", "0"], "scale is 0: use 1 to 16"),
        ([run, "--scale", "99"], "scale is 99"),
        ([run, "--grid", "1"], "a grid has 2 to 16 episodes"),
        ([run, "--grid", "2,nobody"], "there is no episode 'nobody'"),
        ([run, "--grid", ","], "a grid has 2 to 16 episodes"),
        ([run, "--grid", "3", "--episode", "1"], "leave out --episode"),
        ([run, "--videos", "worst"], "use best or checkpoints"),
        ([run, "--videos", "best", "--out", "x.mp4"], "leave out --out"),
        ([run, "--verify", "--out", "x.mp4"], "--verify only checks: leave out --out"),
        ([run, "--verify", "--policy"], "use one of them"),
        ([run, "--seed", "3"], "--seed go with --policy"),
        ([run, "--policy", "--episodes", "0"], "episodes is 0"),
        ([run, "--policy", "--checkpoint", "17"], "has no checkpoint 17"),
    ]:
        refused(["play", *args], message)
    assert {path.name for path in tmp_path.iterdir()} == {"file", "link.mp4", "link.png"}
    assert not (pong / "videos").exists()


def test_links_in_the_folder_of_videos_lead_nowhere(pong: Path, copy: Callable[[Path], Path], refused: Any) -> None:
    run, videos, victim = copy(pong), Path("outside"), Path("outside/file")
    videos.mkdir()
    victim.write_text("untouched")
    (run / "videos").symlink_to(videos.absolute())
    refused(["play", str(run)], "videos is a link, not a folder of Redline")
    assert [path.name for path in videos.iterdir()] == ["file"]


def test_a_policy_is_not_recorded_through_a_link(pong: Path, copy: Callable[[Path], Path], refused: Any) -> None:
    run, outside = copy(pong), Path("outside")
    (run / "recordings").rename(outside)
    before = sorted(path.name for path in outside.iterdir())
    (run / "recordings").symlink_to(outside.absolute())
    refused(["play", str(run), "--policy", "--episodes", "1"], "recordings is a link, not a folder of Redline")
    assert sorted(path.name for path in outside.iterdir()) == before


def test_a_policy_that_cannot_play_leaves_nothing(pong: Path, copy: Callable[[Path], Path], refused: Any) -> None:
    run = copy(pong)
    before = sorted(run.rglob("*"))
    refused(["play", str(run), "--policy", "--device", "nowhere"], "nowhere")
    assert sorted(run.rglob("*")) == before

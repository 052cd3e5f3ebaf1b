"""`redline play` as a user runs it, on runs that were really trained."""

import dataclasses
import json
import os
import shutil
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
from short_runs import screens_of_a_bare_vector

from redline.cli import play_videos
from redline.cli.main import BAD_INPUT, DONE, FAILED, main
from redline.episodes.episode import (
    EPISODE,
    Address,
    Trace,
    decode_header,
    decode_trace,
    encode_episode,
    encode_trace,
)
from redline.episodes.library import open_library
from redline.episodes.setting import SETTING, Setting
from redline.jsonl import RecordWriter, read_records
from redline.runs.blocks import FILE_MAGIC, Block, encode_block, iterate_blocks
from redline.runs.directory import RunDirectory
from redline.types import Array

Output = pytest.CaptureFixture[str]
Folders = pytest.TempPathFactory
Answer = Callable[..., dict[str, Any]]

RECORDINGS = Path("recordings", "episodes.rec")


def train(log_dir: Path, *args: str) -> Path:
    """Train for a moment and return the run."""
    assert main(["train", *args, "--log-dir", str(log_dir), "--plain"]) == DONE
    (run,) = log_dir.glob("*/*/*")
    return run


@pytest.fixture(scope="module")
def pong(tmp_path_factory: Folders) -> Path:
    """Two lanes of Pong, cut after 20 steps: five episodes each, and two greedy ones."""
    args = ("--env", "pong", "--env.max-episode-frames", "80", "--network", "small", "--num-envs", "2")
    steps = ("--warmup-steps", "190", "--max-steps", "200", "--replay.capacity", "1000")
    more = ("--evaluate-every-steps", "100", "--evaluator.episodes", "1", "--record-values")
    return train(tmp_path_factory.mktemp("pong"), *args, *steps, *more)


@pytest.fixture(scope="module")
def catch(tmp_path_factory: Folders) -> Path:
    args = ("--env", "redline/Catch-v0", "--network", "small", "--num-envs", "4", "--max-steps", "100")
    return train(tmp_path_factory.mktemp("catch"), *args, "--warmup-steps", "96", "--replay.capacity", "1000")


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def copy(tmp_path: Path) -> Callable[[Path], Path]:
    """Return a run of one's own to do something to."""

    def copy(run: Path) -> Path:
        target = tmp_path / "copy" / run.name
        shutil.copytree(run, target)
        return target

    return copy


@pytest.fixture
def answer(capsys: Output) -> Answer:
    """Run `redline play … --json` and return the one object that is printed."""

    def answer(run: Path, *args: str, code: int = DONE) -> dict[str, Any]:
        capsys.readouterr()
        assert main(["play", str(run), "--json", *args]) == code
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        assert found["schema"] == 1
        return found

    return answer


def decoded(path: Path) -> Array:
    with av.open(str(path)) as container:
        return np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def rewrite(run: Path, change: Callable[[Trace], Trace], *, place: int) -> None:
    """Replace the trace of one recording, with checksums that fit: only a replay can tell."""
    written, seen = [FILE_MAGIC], 0
    for block in iterate_blocks(run / RECORDINGS):
        assert isinstance(block, Block)
        payload = block.payload
        if block.kind == EPISODE:
            if seen == place:
                played, trace = decode_header(payload)[0], decode_trace(payload)
                payload = encode_episode(encode_trace(change(trace)), role=played.role, unix_s=played.unix_s)
            seen += 1
        written.append(encode_block(block.kind, block.steps, payload))
    (run / RECORDINGS).write_bytes(b"".join(written))


def replace_setting(run: Path, **changes: object) -> None:
    """Let the recordings say something else of where they were made."""
    written = [FILE_MAGIC]
    for block in iterate_blocks(run / RECORDINGS):
        assert isinstance(block, Block)
        payload = block.payload
        if block.kind == SETTING:
            payload = Setting(**(json.loads(payload) | changes)).encode()
        written.append(encode_block(block.kind, block.steps, payload))
    (run / RECORDINGS).write_bytes(b"".join(written))


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 0x10
    path.write_bytes(content)


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


def test_all_recordings_of_a_run_come_back_bit_for_bit(pong: Path, catch: Path, answer: Answer, capsys: Output) -> None:
    for run, least in ((pong, 12), (catch, 8)):
        found = answer(run, "--verify")
        assert found["episodes"] == found["verified"] == len(open_library(run).entries) >= least
        assert found["steps"] == sum(row["length_steps"] for row in read_records(run / "episodes.jsonl"))
        assert (found["mismatches"], found["damages"], found["differences"]) == ([], [], [])
        assert found["torn_tail"] is None
        assert found["duration_s"] > 0.0
    assert answer(pong, "--verify", "--episode", "best")["episodes"] == 1
    assert main(["play", str(pong), "--verify"]) == DONE
    assert "episodes came back bit for bit" in capsys.readouterr().out


def test_one_other_action_is_found(pong: Path, copy: Callable[[Path], Path], answer: Answer, capsys: Output) -> None:
    run = copy(pong)

    def other_action(trace: Trace) -> Trace:
        actions = trace.actions.copy()
        actions[10:20] = np.where(actions[10:20] == 2, 3, 2)  # up for down moves the paddle
        return dataclasses.replace(trace, actions=actions)

    rewrite(run, other_action, place=0)
    found = answer(run, "--verify", code=FAILED)
    wrong = found["mismatches"][0]
    assert found["verified"] < found["episodes"]
    assert (wrong["id"], wrong["role"]) == ("1", "actor")
    assert {"lane", "seed", "seed_offset_steps"} <= wrong.keys()
    assert "differs" in wrong["what"]
    assert main(["play", str(run), "--verify", "--plain"]) == FAILED
    assert "episode 1 (actor, lane" in capsys.readouterr().out


def test_a_single_action_that_changes_nothing_else_is_found(
    pong: Path, copy: Callable[[Path], Path], answer: Answer
) -> None:
    run = copy(pong)

    def same_effect(trace: Trace) -> Trace:
        actions = trace.actions.copy()
        actions[-1] = {2: 4, 4: 2, 3: 5, 5: 3, 0: 1, 1: 0}[int(actions[-1])]  # with and without fire
        return dataclasses.replace(trace, actions=actions)

    rewrite(run, same_effect, place=0)
    (wrong,) = answer(run, "--verify", code=FAILED)["mismatches"][:1]
    assert "differs" in wrong["what"]


def test_a_forged_return_blames_no_other_episode(pong: Path, copy: Callable[[Path], Path], answer: Answer) -> None:
    run = copy(pong)
    rewrite(run, lambda trace: dataclasses.replace(trace, total_reward=trace.total_reward + 5.0), place=0)
    found = answer(run, "--verify", code=FAILED)
    assert [wrong["id"] for wrong in found["mismatches"]] == ["1"]
    assert "its return is" in found["mismatches"][0]["what"]
    assert found["verified"] == found["episodes"] - 1


def test_another_emulator_or_rom_is_said_plainly(
    pong: Path, copy: Callable[[Path], Path], answer: Answer, capsys: Output
) -> None:
    run = copy(pong)
    replace_setting(run, versions={"ale-py": "0.1.0", "gymnasium": "1.0"}, rom_sha256="0" * 64)
    found = answer(run, "--verify")
    assert len(found["differences"]) == 2
    assert "recorded with ale-py 0.1.0" in " ".join(found["differences"])
    assert "the ROM of pong differs" in " ".join(found["differences"])
    assert main(["play", str(run), "--sheet", "s.png", "--plain"]) == DONE
    err = capsys.readouterr().err
    assert "warning: recorded with ale-py 0.1.0" in err
    assert "warning: the ROM of pong differs" in err


def test_a_torn_tail_is_told_and_the_rest_verifies(
    pong: Path, copy: Callable[[Path], Path], answer: Answer, capsys: Output
) -> None:
    run = copy(pong)
    path = run / RECORDINGS
    path.write_bytes(path.read_bytes()[:-7])
    found = answer(run, "--verify")
    assert found["verified"] == found["episodes"] == len(open_library(pong).entries) - 1
    assert "torn by a crash; skipped" in found["torn_tail"]
    assert main(["play", str(run), "--verify", "--plain"]) == DONE
    assert "torn by a crash" in capsys.readouterr().err


def test_a_flipped_bit_is_a_damage(pong: Path, copy: Callable[[Path], Path], answer: Answer, capsys: Output) -> None:
    run = copy(pong)
    middle = (run / RECORDINGS).stat().st_size // 2
    flip(run / RECORDINGS, middle)
    found = answer(run, "--verify", code=FAILED)
    assert len(found["damages"]) == 1
    assert "are damaged" in found["damages"][0]
    assert found["episodes"] < len(open_library(pong).entries)
    # the rest can be watched, with a warning
    assert main(["play", str(run), "--episode", "1", "--sheet", "s.png", "--plain"]) == DONE
    assert "warning: episodes.rec" in capsys.readouterr().err


def test_an_episode_whose_past_is_damaged_is_refused(pong: Path, copy: Callable[[Path], Path], capsys: Output) -> None:
    run = copy(pong)
    library = open_library(run)
    later = next(entry for entry in library.entries if entry.header.actions_from > 0)
    before = library.before(later)
    assert before is not None
    flip(run / RECORDINGS, before.offset + 100)
    rows = read_records(run / "episodes.jsonl")
    beginnings = [Address(row["role"], row["lane"], row["seed"], row["seed_offset_steps"]) for row in rows]
    name = str(beginnings.index(later.address) + 1)
    capsys.readouterr()
    assert main(["play", str(run), "--episode", name, "--out", "x.mp4"]) == FAILED
    err = capsys.readouterr().err
    assert "is missing" in err.splitlines()[-1]
    assert not Path("x.mp4").exists()


def test_no_recordings_at_all_is_no_success(
    pong: Path, copy: Callable[[Path], Path], answer: Answer, capsys: Output
) -> None:
    run = copy(pong)
    shutil.rmtree(run / "recordings")
    found = answer(run, "--verify", code=FAILED)
    assert (found["episodes"], found["verified"]) == (0, 0)
    assert main(["play", str(run), "--verify"]) == FAILED
    assert "no episode is recorded" in capsys.readouterr().out
    assert main(["play", str(run)]) == BAD_INPUT
    err = capsys.readouterr().err
    assert "none is recorded" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"PK\x03\x04 something else entirely", "is no file of recordings"), (b"", "none is recorded")],
)
def test_foreign_files_are_refused_in_one_line(
    content: bytes, message: str, pong: Path, copy: Callable[[Path], Path], capsys: Output
) -> None:
    run = copy(pong)
    (run / RECORDINGS).write_bytes(content)
    capsys.readouterr()
    assert main(["play", str(run), "--out", "x.mp4"]) == BAD_INPUT
    err = capsys.readouterr().err
    assert message in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"options": {"frameskip": "x"}},
        {"options": {"frameskip": 0}},
        {"options": {"frameskip": 10**9}},
        {"options": {"img_height": 10**6, "img_width": 10**6}},
        {"options": {"stack_num": 10**9}},
        {"options": {"noop_max": 10**9}},
        {"num_actions": 6.5},
        {"game": "../../etc/passwd"},
        {"gymnasium_id": "antigravity:Joke-v0"},
    ],
)
def test_a_setting_that_no_run_has_is_a_damage(
    changes: dict[str, Any], pong: Path, copy: Callable[[Path], Path], capsys: Output
) -> None:
    run = copy(pong)
    replace_setting(run, **changes)
    capsys.readouterr()
    assert main(["play", str(run), "--verify"]) == FAILED
    out, err = capsys.readouterr()
    assert "nothing was checked" in out
    assert "no setting of recordings" in err.splitlines()[0]
    assert len(err.splitlines()) == 6  # of as many as there are episodes, the first
    assert "antigravity" not in sys.modules
    assert main(["play", str(run), "--sheet", "s.png"]) == BAD_INPUT


def test_a_seed_that_no_emulator_takes_is_a_damage(pong: Path, copy: Callable[[Path], Path], answer: Answer) -> None:
    run = copy(pong)
    rewrite(run, lambda trace: dataclasses.replace(trace, reset_seed=2**31), place=0)
    found = answer(run, "--verify", code=FAILED)
    assert "$.seed" in found["damages"][0]


def test_a_link_instead_of_recordings_is_refused(pong: Path, copy: Callable[[Path], Path], capsys: Output) -> None:
    run = copy(pong)
    (run / RECORDINGS).unlink()
    (run / RECORDINGS).symlink_to("/etc/passwd")
    assert main(["play", str(run), "--verify"]) == BAD_INPUT
    err = capsys.readouterr().err
    assert "can't be read" in err
    assert err.count("\n") == 1


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
    for args, message in [
        ([], "play needs a run directory"),
        (["--verify"], "play needs a run directory"),
        (["--episode", "best"], "play needs a run directory"),
        (["nowhere"], "nowhere is no run directory"),
        (["file"], "file is no run directory"),
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
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert not (pong / "videos").exists()

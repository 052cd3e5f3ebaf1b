"""`redline replay inspect` as a user runs it."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from played_runs import content, train
from safetensors.numpy import save as encode_arrays

from redline.cli.main import BAD_INPUT, DONE, main
from redline.cli.saved_replay import draw_transitions, read_replay
from redline.episodes.sheet import plan_transition_sheet
from redline.replay import take_snapshot
from redline.replay.sampler import PrioritizedSampler
from redline.runs.checkpoints import CheckpointStore
from redline.runs.directory import LOCK_NAME, RunDirectory
from redline.types import Handles

pytestmark = pytest.mark.usefixtures("elsewhere")

SMALL = ("--num-envs", "4", "--max-steps", "400", "--warmup-steps", "396", "--replay.capacity", "1000")


@pytest.fixture(scope="module")
def catch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("catch"), "--env", "redline/Catch-v0", *SMALL, "--network", "small")


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("cartpole"), "--env", "CartPole-v1", *SMALL)


def test_the_numbers_are_those_of_the_run(catch: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = content(catch)
    assert main(["replay", "inspect", str(catch), "--out", "sheet.png", "--json"]) == DONE
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert err == ""
    assert (found["schema"], found["checkpoint_steps"], found["skipped"]) == (1, 400, [])
    assert (found["fill"]["transitions"], found["fill"]["capacity"]) == (400, 1_000)
    # an episode of Catch lasts 11 steps: nine of them ended in each of four lanes
    assert (found["endings"]["episodes"], found["endings"]["terminated"]) == (36, 36)
    assert found["endings"]["mean_length_steps"] == 11.0
    assert found["step_range"] == [0, 10]
    counts = found["rewards"]["counts"]
    assert counts["0"] == 400 - 36
    assert counts.get("1", 0) + counts.get("-1", 0) == 36
    assert sum(found["actions"]) == 400
    assert found["storage"]["codec"] == "zstd"
    assert 0 < found["storage"]["frame_bytes_per_transition"] < 500
    assert found["priorities"] is None
    assert [path.name for path in tmp_path.iterdir()] == ["sheet.png"]
    assert content(catch) == before


def test_the_sheet_holds_the_pixels_of_the_memory(catch: Path) -> None:
    assert main(["replay", "inspect", str(catch), "--out", "sheet.png", "--samples", "5", "--seed", "7"]) == DONE
    memory = read_replay(catch, steps=None, progress=lambda share: None).memory
    samples = draw_transitions(memory, 5, np.random.default_rng(7))
    strip, tiles = plan_transition_sheet(samples)
    sheet = np.asarray(Image.open("sheet.png"))
    assert sheet.shape == (tiles.size[1], tiles.size[0], 3)
    for index, sample in enumerate(samples):
        left, top = tiles.corner(index)
        left += strip.left(4)  # the frame that follows
        assert np.array_equal(sheet[top : top + 168 : 2, left : left + 168 : 2, 0], sample.frames[4])


def test_text_says_what_is_held_and_where_the_sheet_is(cartpole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["replay", "inspect", str(cartpole)]) == DONE
    out = capsys.readouterr().out
    for text in ("400 of 1,000 transitions (40%)", "terminated", "drawn uniformly", "mean return", "step in episode"):
        assert text in out
    assert f"contact sheet of 12 transitions: replay-{cartpole.name}.png" in out
    with Image.open(f"replay-{cartpole.name}.png") as sheet:
        assert sheet.format == "PNG"


def test_an_earlier_checkpoint_can_be_chosen(catch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    steps = sorted(int(path.name) for path in (catch / "checkpoints").iterdir())
    assert len(steps) >= 2
    assert main(["replay", "inspect", str(catch), "--checkpoint", str(steps[0]), "--json"]) == DONE
    found = json.loads(capsys.readouterr().out)
    assert found["checkpoint_steps"] == found["fill"]["transitions"] == steps[0]


def test_a_run_that_is_being_written_is_read_all_the_same(catch: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with RunDirectory.open(catch):
        assert (catch / LOCK_NAME).exists()
        assert main(["replay", "inspect", str(catch), "--json"]) == DONE
    assert json.loads(capsys.readouterr().out)["fill"]["transitions"] == 400


def test_a_damaged_checkpoint_is_skipped_and_named(
    catch: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "copy"
    shutil.copytree(catch, run)
    with (run / "checkpoints" / "400" / "arrays.safetensors").open("r+b") as file:
        file.seek(-5, 2)
        file.write(b"?")
    assert main(["replay", "inspect", str(run), "--json"]) == DONE
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["checkpoint_steps"] < 400
    assert "checkpoint 400 skipped" in found["skipped"][0]
    assert "warning: checkpoint 400 skipped" in err
    assert main(["replay", "inspect", str(run), "--checkpoint", "400"]) == BAD_INPUT
    err = capsys.readouterr().err
    assert "does not have the sha256 that was written" in err
    assert err.count("\n") == 1


def test_damaged_frames_are_never_shown(catch: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "copy"
    shutil.copytree(catch, run)
    for segment in (run / "replay").iterdir():
        segment.write_bytes(bytes(segment.stat().st_size))
    assert main(["replay", "inspect", str(run), "--json"]) == DONE
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert found["checkpoint_steps"] == 400
    assert "transitions of checkpoint 400 are damaged, or older than such" in found["skipped"][0]
    assert found["skipped"][0] in err
    assert found["fill"]["transitions"] < 100  # those that were still being written


@pytest.mark.parametrize("codec", ["raw", "lz4"])
def test_memories_of_other_codecs_are_read_too(codec: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = train(tmp_path / "runs", "--env", "redline/Catch-v0", *SMALL, "--replay.codec", codec, "--network", "small")
    capsys.readouterr()
    assert main(["replay", "inspect", str(run), "--json"]) == DONE
    storage = json.loads(capsys.readouterr().out)["storage"]
    assert storage["codec"] == codec
    # a raw frame of 84 × 84, and a final one for every 11 transitions, more or less
    assert (storage["frame_bytes_per_transition"] > 7_056) == (codec == "raw")


def test_bad_input_is_one_line_with_a_remedy(catch: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    run = str(catch)
    for args, message in [
        ([], "replay needs a subject, inspect"),
        (["--json"], "replay needs a subject, inspect"),
        (["inspct", run], "did you mean inspect"),
        (["inspect"], "inspect needs a run directory"),
        (["inspect", "--samples", "3"], "inspect needs a run directory"),
        (["inspect", "nowhere"], "nowhere is not a run directory"),
        (["inspect", "file"], "file is not a run directory"),
        (["inspect", run, "--checkpoint", "17"], "has no checkpoint 17: it has"),
        (["inspect", run, "--checkpoint", "-1"], "has no checkpoint -1"),
        (["inspect", run, "--samples", "0"], "samples is 0: use 1 to 200"),
        (["inspect", run, "--seed", "-1"], "seed is -1"),
        (["inspect", run, "--sampels", "3"], "did you mean --samples"),
        (["inspect", run, "--out", "nowhere/sheet.png"], "cannot write the sheet"),
        (["inspect", run, "--out", "file/sheet.png"], "cannot write the sheet"),
        (["inspect", run, "--out", "."], "is a folder"),
        (["inspect", run, "--out", f"{run}/sheet.png"], "inside the run, which is only read"),
    ]:
        assert main(["replay", *args]) == BAD_INPUT, args
        err = capsys.readouterr().err
        assert message in err
        assert err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_run_without_a_valid_checkpoint_is_refused(
    catch: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "copy"
    shutil.copytree(catch, run, ignore=shutil.ignore_patterns("checkpoints"))
    assert main(["replay", "inspect", str(run)]) == BAD_INPUT
    assert "no valid checkpoint" in capsys.readouterr().err


def test_a_full_disk_leaves_no_half_sheet(catch: Path, small_disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (small_disk / "ballast").write_bytes(bytes(1024 * 1024 - 16 * 1024))
    assert main(["replay", "inspect", str(catch), "--out", str(small_disk / "sheet.png")]) == BAD_INPUT
    assert "cannot write the sheet" in capsys.readouterr().err
    assert [path.name for path in small_disk.iterdir()] == ["ballast"]


def test_priorities_are_read_where_the_run_has_them(
    catch: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "copy"
    shutil.copytree(catch, run)
    memory = read_replay(run, steps=None, progress=lambda share: None).memory
    sampler = PrioritizedSampler(memory, alpha=0.5, epsilon=1e-6)
    handles = Handles(lane=np.full(100, 1), number=np.arange(100))
    sampler.draw(np.random.default_rng(0), 1, beta=1.0)  # all transitions enter, with priority 1
    sampler.update(handles, np.full(100, 3.0))
    with RunDirectory.open(run) as directory, CheckpointStore(directory) as store:
        replay = take_snapshot(memory, store.segments.append)
        arrays = {f"replay.{name}": rows for name, rows in replay.arrays.items()}
        arrays |= {f"sampler.{name}": rows for name, rows in sampler.state().items()}
        files = {"arrays.safetensors": encode_arrays(arrays)}
        store.save(steps=500, files=files, state={}, replay=replay.manifest)
    assert main(["replay", "inspect", str(run), "--json"]) == DONE
    found = json.loads(capsys.readouterr().out)["priorities"]
    assert found == pytest.approx({"min": 1.0, "mean": (300 * 1.0 + 100 * 3.0) / 400, "max": 3.0}, abs=1e-4)
    assert main(["replay", "inspect", str(run), "--plain"]) == DONE
    assert "priorities       min 1, mean 1.5, max 3" in capsys.readouterr().out

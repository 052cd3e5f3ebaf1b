"""`redline play --verify`: recordings come back bit for bit, and what is damaged or forged is found."""

import dataclasses
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from played_runs import RECORDINGS, Answer

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
from redline.jsonl import read_records
from redline.runs.blocks import FILE_MAGIC, Block, encode_block, iterate_blocks

Output = pytest.CaptureFixture[str]

pytestmark = pytest.mark.usefixtures("elsewhere")


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
    assert "cut by a crash; skipped" in found["torn_tail"]
    assert main(["play", str(run), "--verify", "--plain"]) == DONE
    assert "cut by a crash" in capsys.readouterr().err


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
    [(b"PK\x03\x04 something else entirely", "is not a file of recordings"), (b"", "none is recorded")],
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

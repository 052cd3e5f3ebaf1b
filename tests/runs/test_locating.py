"""Which run a user means: a run directory, the newest in a folder of runs, or the last one."""

import os
from pathlib import Path

import pytest

from redline.errors import UserError
from redline.runs.locating import locate_run
from redline.runs.manifest import RUN_JSON


def make_run(folder: Path, *, begun_unix_s: int) -> Path:
    folder.mkdir(parents=True)
    (folder / RUN_JSON).write_text("{}")
    os.utime(folder / RUN_JSON, (begun_unix_s, begun_unix_s))
    return folder


def test_a_folder_of_runs_means_the_one_that_began_last(tmp_path: Path) -> None:
    newest = make_run(tmp_path / "pong" / "dqn" / "a", begun_unix_s=200)
    older = make_run(tmp_path / "pong" / "ppo" / "b", begun_unix_s=100)
    assert locate_run(str(older)) == older
    assert locate_run(str(tmp_path / "pong" / "ppo")) == older
    assert locate_run(str(tmp_path)) == newest


def test_last_is_the_newest_where_runs_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "elsewhere" / "a", begun_unix_s=300)
    make_run(tmp_path / "runs" / "pong" / "dqn" / "b", begun_unix_s=200)
    make_run(tmp_path / "runs" / "pong" / "dqn" / "c", begun_unix_s=100)
    assert locate_run("last") == Path("runs/pong/dqn/b")
    own = make_run(tmp_path / "last", begun_unix_s=1)  # a folder of that name is meant itself
    assert locate_run("last").resolve() == own


def test_what_is_no_run_is_left_to_its_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert locate_run("nowhere") == Path("nowhere")
    (tmp_path / "empty").mkdir()
    assert locate_run("empty") == Path("empty")
    with pytest.raises(UserError, match="there is no run in runs: redline train starts one"):
        locate_run("last")


def test_a_recording_of_foreign_code_does_not_hide_a_run(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", begun_unix_s=100)
    (tmp_path / "watched").mkdir()
    (tmp_path / "watched" / "hardware.jsonl").write_text("")
    assert locate_run(str(tmp_path)) == run
    assert locate_run(str(tmp_path / "watched")) == tmp_path / "watched"

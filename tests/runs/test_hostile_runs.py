"""Runs that somebody else put together: nothing outside a run is written to, and nothing altered is trusted."""

import json
import os
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from redline.errors import AlteredError, DamagedError, ForeignFileError, UserError
from redline.files import replace_file
from redline.runs.checkpoints import CheckpointStore
from redline.runs.directory import RunDirectory
from redline.runs.run_json import read_run_json, read_unaltered_run_json

FILES = [
    "metrics.jsonl",
    "episodes.jsonl",
    "events.jsonl",
    "hardware.jsonl",
    "metrics.lost.jsonl",
    "episodes.lost.jsonl",
    "run.lock",
]
RECORDINGS = ["recordings/episodes.rec", "recordings/episodes.lost.rec"]
FOLDERS = ["checkpoints", "replay", "recordings", "tensorboard"]


@pytest.fixture
def closed_run(tmp_path: Path) -> Path:
    with RunDirectory.create(tmp_path / "runs", game="pong", algorithm="dqn", seed=1) as run:
        run.write_run_json({"algorithm": "dqn", "config": {"returns": {"gamma": 0.99}, "seed": 1}})
        with CheckpointStore(run) as store:
            store.save(steps=0, files={}, state={})
    return run.path


def link(path: Path, outside: Path) -> None:
    path.symlink_to(outside)


def hard_link(path: Path, outside: Path) -> None:
    path.hardlink_to(outside)


def pipe(path: Path, outside: Path) -> None:
    os.mkfifo(path)


def folder(path: Path, outside: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize(
    ("name", "put"),
    [*product(FILES, [link, hard_link, pipe, folder]), *product(RECORDINGS, [link, hard_link])],
)
def test_run_with_something_else_in_place_of_a_file_is_refused(
    closed_run: Path, tmp_path: Path, name: str, put: Callable[[Path, Path], None]
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")
    path = closed_run / name
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    put(path, outside)
    with pytest.raises(ForeignFileError, match=f"{path} is a "):
        RunDirectory.open(closed_run)
    assert outside.read_bytes() == b"precious"


@pytest.mark.parametrize("put", [pipe, folder])
@pytest.mark.parametrize("name", RECORDINGS)
def test_run_goes_on_without_recordings_if_something_else_stands_there(
    closed_run: Path, tmp_path: Path, name: str, put: Callable[[Path, Path], None]
) -> None:
    (closed_run / name).parent.mkdir()
    put(closed_run / name, tmp_path)
    with RunDirectory.open(closed_run) as run:
        assert run.set_unreadable_recordings_aside() == []
        assert run.cut_records(0)["recordings"] == 0


@pytest.mark.parametrize("name", FOLDERS)
def test_run_with_a_link_in_place_of_a_folder_is_refused(closed_run: Path, tmp_path: Path, name: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    if (closed_run / name).exists():
        (closed_run / name).rename(tmp_path / "moved")
    (closed_run / name).symlink_to(outside)
    with pytest.raises(ForeignFileError, match="is a link, not a folder of Redline"):
        RunDirectory.open(closed_run)
    assert list(outside.iterdir()) == []


def test_folder_on_another_file_system_is_refused(small_disk: Path, tmp_path: Path) -> None:
    replay = small_disk / "replay"
    replay.mkdir()
    with RunDirectory.create(tmp_path, game="pong", algorithm="dqn", seed=1) as run:
        run.write_run_json({})
    (run.path / "replay").symlink_to(replay)
    with pytest.raises(ForeignFileError):
        RunDirectory.open(run.path)


def test_link_to_a_run_is_that_run(closed_run: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(closed_run)
    with RunDirectory.open(tmp_path / "latest") as run:
        assert run.path == closed_run.resolve()


def test_temporary_files_have_names_that_nobody_can_prepare(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")
    target = tmp_path / "page.html"
    (tmp_path / ".page.html.tmp").symlink_to(outside)
    replace_file(target, [b"new"])
    assert (target.read_bytes(), outside.read_bytes()) == (b"new", b"precious")


def test_what_a_killed_writer_left_is_removed_by_the_next(closed_run: Path) -> None:
    left = closed_run / ".redline-0123456789abcdef.tmp"
    left.write_bytes(b"half")
    RunDirectory.open(closed_run).close()
    assert not left.exists()


def test_link_in_place_of_a_checkpoint_under_way_is_removed_and_its_target_stays(
    closed_run: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (closed_run / "checkpoints" / ".saving-5").symlink_to(outside)
    with RunDirectory.open(closed_run) as run, CheckpointStore(run) as store:
        store.save(steps=5, files={}, state={})
        assert store.newest_valid().steps == 5
    assert (outside / "deep").is_dir()


# run.json decides how a run goes on


def alter(run: Path, old: str, new: str) -> None:
    path = run / "run.json"
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_flipped_digit_of_run_json_is_noticed_named_and_can_be_undone(closed_run: Path) -> None:
    alter(closed_run, "0.99", "0.91")
    with pytest.raises(AlteredError, match=r"returns.gamma 0.99 → 0.91.*cp .*checkpoints/0/run.copy.json") as refused:
        read_unaltered_run_json(closed_run)
    assert "--accept-changes" in str(refused.value)
    (closed_run / "run.json").write_bytes((closed_run / "checkpoints" / "0" / "run.copy.json").read_bytes())
    assert read_unaltered_run_json(closed_run)["config"]["returns"]["gamma"] == 0.99


def test_readers_that_only_show_a_run_read_an_altered_one(closed_run: Path) -> None:
    alter(closed_run, "0.99", "0.91")
    assert read_run_json(closed_run)["config"]["returns"]["gamma"] == 0.91


def without_checksum(path: Path) -> None:
    content = json.loads(path.read_text())
    del content["sha256"]
    path.write_text(json.dumps(content))


def test_run_json_of_a_version_without_checksums_is_trusted(closed_run: Path) -> None:
    without_checksum(closed_run / "run.json")
    (closed_run / "checkpoints" / "0" / "run.copy.json").unlink()
    assert read_unaltered_run_json(closed_run)["algorithm"] == "dqn"


def test_removing_the_checksum_removes_no_check(closed_run: Path) -> None:
    without_checksum(closed_run / "run.json")
    with pytest.raises(AlteredError, match="restore it with"):
        read_unaltered_run_json(closed_run)


def test_damage_while_a_run_trains_does_not_reach_its_copies(closed_run: Path) -> None:
    alter(closed_run, "0.99", "0.91")
    with RunDirectory.open(closed_run) as run, CheckpointStore(run) as store:
        store.save(steps=5, files={}, state={})
    with pytest.raises(AlteredError, match=r"returns.gamma 0.99 → 0.91.*checkpoints/5/run.copy.json"):
        read_unaltered_run_json(closed_run)


def test_run_json_that_was_only_written_in_another_layout_is_unaltered(closed_run: Path) -> None:
    content = json.loads((closed_run / "run.json").read_text())
    (closed_run / "run.json").write_text(json.dumps(dict(reversed(content.items()))))
    assert read_unaltered_run_json(closed_run)["algorithm"] == "dqn"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("config", []),
        ("config", "x"),
        ("config", None),
        ("resumes", 5),
        ("resumes", {}),
        ("resumes", "abc"),
        ("resumes", [5]),
        ("resumes", [{"host": "x"}]),
        ("resumes", [{"versions": None}]),
        ("resumes", None),
        ("host", "x"),
        ("versions", [1]),
        ("device", 5),
        ("algorithm", None),
    ],
)
def test_field_of_the_wrong_kind_is_named(closed_run: Path, key: str, value: object) -> None:
    content = json.loads((closed_run / "run.json").read_text())
    (closed_run / "run.json").write_text(json.dumps(content | {key: value}))
    with pytest.raises(DamagedError, match=rf"is damaged: Expected .* at \$\.{key}.*restore it with: cp "):
        read_run_json(closed_run)


def test_escapes_of_run_json_never_reach_a_terminal(closed_run: Path) -> None:
    content = json.loads((closed_run / "run.json").read_text())
    escape = "\x1b[2J"
    content |= {"device": f"cpu{escape}", "versions": {f"torch{escape}": escape}, "notes": [escape]}
    (closed_run / "run.json").write_text(json.dumps(content))
    assert "\x1b" not in repr(read_run_json(closed_run)).replace("\\x1b", "\x1b")


@pytest.mark.parametrize("put", [link, pipe, folder])
def test_what_is_no_file_is_never_replaced_by_one(tmp_path: Path, put: Callable[[Path, Path], None]) -> None:
    target = tmp_path / "page.html"
    put(target, tmp_path / "elsewhere")
    with pytest.raises(ForeignFileError):
        replace_file(target, [b"page"])
    assert target.is_symlink() or not target.is_file()


@pytest.mark.parametrize("moment", [1e300, -1e300, 1e15])
def test_lock_of_an_impossible_host_and_moment_is_told_in_plain_text(closed_run: Path, moment: float) -> None:
    with RunDirectory.open(closed_run):
        holder = {"schema": 1, "pid": 1, "host": "far\x1b[31m", "locked_unix_s": moment}
        (closed_run / "run.lock").write_text(json.dumps(holder))
        with pytest.raises(UserError, match="is in use by process 1 on far") as refused:
            RunDirectory.open(closed_run)
    assert "\x1b" not in str(refused.value)

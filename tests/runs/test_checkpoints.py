import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from redline.errors import CheckpointError, DamagedError, UserError
from redline.jsonl import read_records
from redline.runs.checkpoints import CheckpointStore
from redline.runs.directory import RunDirectory
from redline.runs.manifest import encode_manifest, load_checkpoint, newest_valid

DRIVER = Path(__file__).with_name("kill_driver.py")
WEIGHTS = "weights.safetensors"


def save(store: CheckpointStore, steps: int, *, score: float | None = None, content: str = "old") -> Path:
    chunk = store.segments.append(f"{content} chunk {steps}".encode() * 50)
    return store.save(
        steps=steps,
        files={WEIGHTS: f"{content} weights {steps}".encode() * 50, "optimizer.safetensors": b"o" * 99},
        state={"content": content, "rng": 2**100},
        replay={"lanes": [{"chunks": [chunk]}]},
        score=score,
    )


def saved_steps(store: CheckpointStore) -> list[str]:
    return sorted((path.name for path in store.path.iterdir()), key=lambda name: (len(name), name))


def test_checkpoint_comes_back_as_it_was_saved(store: CheckpointStore) -> None:
    path = save(store, 100, score=1.5)
    checkpoint = load_checkpoint(path)
    assert (checkpoint.steps, checkpoint.score) == (100, 1.5)
    assert checkpoint.state == {"content": "old", "rng": 2**100}
    assert checkpoint.files[WEIGHTS].read_bytes() == b"old weights 100" * 50
    assert checkpoint.replay is not None
    assert store.segments.read(checkpoint.replay["lanes"][0]["chunks"][0]) == b"old chunk 100" * 50


def test_newest_is_by_number_and_not_by_name(store: CheckpointStore) -> None:
    for steps in (0, 900, 1000):
        save(store, steps)
    assert store.newest_valid().steps == 1000


def test_saving_the_same_steps_again_replaces_the_checkpoint(store: CheckpointStore) -> None:
    save(store, 100)
    save(store, 100, content="new")
    assert store.newest_valid().state["content"] == "new"
    assert saved_steps(store) == ["100"]


def test_state_that_json_would_alter_is_refused(store: CheckpointStore) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        store.save(steps=1, files={}, state={"epsilon": float("nan")})
    assert saved_steps(store) == []


@pytest.mark.parametrize("name", ["../weights", "a/b", "", ".hidden", "manifest.json", "state.json"])
def test_file_name_that_is_not_plain_is_refused(store: CheckpointStore, name: str) -> None:
    with pytest.raises(ValueError, match="cannot name a file of a checkpoint"):
        store.save(steps=1, files={name: b""}, state={})


def test_manifest_cannot_name_a_chunk_that_is_not_there(store: CheckpointStore) -> None:
    location = {**store.segments.append(b"chunk"), "length": 6}
    with pytest.raises(DamagedError, match="before its chunk"):
        store.save(steps=1, files={}, state={}, replay={"chunks": [location]})


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def flip_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def empty(path: Path) -> None:
    os.truncate(path, 0)


@pytest.mark.parametrize("damage", [truncate, flip_bit, empty, Path.unlink], ids=lambda damage: damage.__name__)
@pytest.mark.parametrize(
    "name",
    [
        "checkpoints/200/weights.safetensors",
        "checkpoints/200/optimizer.safetensors",
        "checkpoints/200/state.json",
        "checkpoints/200/manifest.json",
    ],
)
def test_damaged_file_makes_resume_use_the_older_checkpoint_and_say_so(
    run: RunDirectory, name: str, damage: Callable[[Path], None]
) -> None:
    for steps in (100, 200):
        with CheckpointStore(run) as store:  # a store each: two segments
            save(store, steps)
    damage(run.path / name)
    checkpoint = newest_valid(run.path)
    assert checkpoint.steps == 100
    [skipped] = checkpoint.skipped
    assert skipped.startswith("checkpoint 200 skipped: ")
    assert Path(name).name in skipped


@pytest.mark.parametrize("damage", [truncate, flip_bit, empty, Path.unlink], ids=lambda damage: damage.__name__)
def test_damaged_replay_is_listed_and_costs_no_checkpoint(run: RunDirectory, damage: Callable[[Path], None]) -> None:
    for steps in (100, 200):
        with CheckpointStore(run) as store:  # a store each: two segments
            save(store, steps)
    assert newest_valid(run.path).damaged_replay == ()
    damage(run.path / "replay" / "segment-000002.bin")
    checkpoint = newest_valid(run.path)
    assert (checkpoint.steps, checkpoint.skipped) == (200, ())
    assert {location["segment"] for location in checkpoint.damaged_replay} == {"segment-000002.bin"}


def test_every_flipped_bit_of_a_manifest_is_noticed(store: CheckpointStore) -> None:
    path = save(store, 100) / "manifest.json"
    content = path.read_bytes()
    for position in range(len(content)):
        path.write_bytes(content[:position] + bytes([content[position] ^ 4]) + content[position + 1 :])
        with pytest.raises(DamagedError):
            load_checkpoint(path.parent)


@pytest.mark.parametrize(
    "content",
    [
        b"[]",
        b'{"schema": 2}',
        b'{"schema": 1, "score": NaN}',
        b'{"schema": 1, "score": 1e999}',
        b'{"schema": 1, "replay": ' + b"[" * 100_000,
        encode_manifest(steps=100, score=None, files={}, replay=None),
        encode_manifest(steps=7, score=None, files={"state.json": {"bytes": 2}}, replay=None),
        encode_manifest(steps=100, score=None, files={"state.json": {"bytes": "2"}}, replay=None),
        encode_manifest(steps=100, score=None, files={"state.json": {}, "../../run.json": {}}, replay=None),
    ],
)
def test_manifest_that_no_store_wrote_is_damage(store: CheckpointStore, content: bytes) -> None:
    path = save(store, 100)
    (path / "manifest.json").write_bytes(content)
    with pytest.raises(DamagedError):
        load_checkpoint(path)


def test_link_in_place_of_a_file_is_damage(store: CheckpointStore, tmp_path: Path) -> None:
    path = save(store, 100)
    (path / WEIGHTS).rename(tmp_path / "elsewhere")
    (path / WEIGHTS).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DamagedError, match=WEIGHTS):
        load_checkpoint(path)


def test_run_without_a_valid_checkpoint_is_an_error(store: CheckpointStore) -> None:
    with pytest.raises(UserError, match="holds no valid checkpoint to resume from: none was ever completed"):
        store.newest_valid()
    flip_bit(save(store, 100) / WEIGHTS)
    with pytest.raises(UserError, match=r"holds no valid checkpoint .*weights\.safetensors does not have the sha256"):
        store.newest_valid()


def test_playing_needs_no_replay_and_no_lock(store: CheckpointStore) -> None:
    path = save(store, 100)
    shutil.rmtree(store.segments.folder)
    assert newest_valid(store.run.path, with_replay=False).path == path
    assert newest_valid(store.run.path).damaged_replay != ()


def test_prune_keeps_the_newest_three_and_the_best(store: CheckpointStore) -> None:
    for steps, score in ((1, None), (2, 3.0), (3, 3.0), (4, 1.0), (5, None), (6, float("nan")), (7, -1.0)):
        save(store, steps, score=score)
    assert sorted(store.prune()) == [1, 2, 4]
    assert saved_steps(store) == ["3", "5", "6", "7"]  # of two equals the newer is the best


def test_prune_deletes_segments_only_the_pruned_named(run: RunDirectory) -> None:
    for steps in range(1, 6):
        with CheckpointStore(run) as store:
            save(store, steps, score=10.0 if steps == 1 else 0.0)
            store.prune()
    assert sorted(path.name[-5] for path in store.segments.folder.iterdir()) == ["1", "3", "4", "5"]
    for path in store.path.iterdir():
        load_checkpoint(path)


def test_prune_goes_on_when_the_replay_was_removed(store: CheckpointStore) -> None:
    for steps in range(1, 6):
        save(store, steps)
    shutil.rmtree(store.segments.folder)
    assert sorted(store.prune()) == [1, 2]


def test_damaged_checkpoints_do_not_push_out_good_ones(store: CheckpointStore) -> None:
    for steps in (1, 2, 7, 8, 9):
        save(store, steps)
    for steps in (7, 8, 9):
        truncate(store.path / str(steps) / WEIGHTS)
    assert store.newest_valid().steps == 2
    save(store, 3)
    assert sorted(store.prune()) == [7, 8, 9]
    assert saved_steps(store) == ["1", "2", "3"]


def test_prune_with_nothing_readable_removes_nothing(store: CheckpointStore) -> None:
    truncate(save(store, 1) / "manifest.json")
    assert store.prune() == []
    assert saved_steps(store) == ["1"]


def test_rows_from_before_a_checkpoint_are_on_the_disk_with_it(store: CheckpointStore) -> None:
    store.run.episodes.write({"steps": 90, "return": 1.0})
    save(store, 100)
    store.run.episodes.write({"steps": 110, "return": 2.0})
    assert store.run.cut_records(store.newest_valid().steps)["episodes"] == 1
    store.run.episodes.write({"steps": 120, "return": 4.0})
    assert [row["return"] for row in read_records(store.run.path / "episodes.jsonl")] == [1.0, 4.0]


def killed_copies(action: str, run: Path, copies: Path) -> list[Path]:
    command = [sys.executable, str(DRIVER), action, str(run), str(copies)]
    number = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return [copies / str(copy) for copy in range(1, number + 1)]


@pytest.mark.parametrize(("action", "steps"), [("save", 200), ("save_same_steps", 100)])
def test_save_killed_at_any_call_leaves_the_old_or_the_new_checkpoint_whole(
    tmp_path: Path, action: str, steps: int
) -> None:
    with RunDirectory.create(tmp_path, game="pong", algorithm="dqn", seed=1) as run:
        run.write_run_json({})
        with CheckpointStore(run) as store:
            save(store, 100)
    copies = killed_copies(action, run.path, tmp_path / "copies")
    assert len(copies) > 12
    outcomes = []
    for copy in copies:
        before = newest_valid(copy)
        with RunDirectory.open(copy) as reopened, CheckpointStore(reopened) as store:
            checkpoint = store.newest_valid()
            assert (checkpoint.steps, checkpoint.state) == (before.steps, before.state)
            assert (checkpoint.steps, checkpoint.state["content"]) in ((100, "old"), (steps, "new"))
            assert checkpoint.skipped == ()
            assert set(saved_steps(store)) <= {"100", "200"}
            outcomes.append(checkpoint.state["content"])
            save(store, 300)
            store.prune()
            assert store.newest_valid().steps == 300
    # once the new one counts it always counts
    assert outcomes == sorted(outcomes, key=["old", "new"].index)
    assert set(outcomes) == {"old", "new"}


def test_prune_killed_at_any_call_leaves_only_whole_checkpoints(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, game="pong", algorithm="dqn", seed=1) as run:
        run.write_run_json({})
        for steps in range(1, 7):
            with CheckpointStore(run) as store:
                save(store, steps, score=-steps)
    copies = killed_copies("prune", run.path, tmp_path / "copies")
    assert len(copies) > 10
    for copy in copies:
        with RunDirectory.open(copy) as reopened, CheckpointStore(reopened) as store:
            assert {"1", "4", "5", "6"} <= set(saved_steps(store))
            for path in store.path.iterdir():
                load_checkpoint(path)
            store.prune()
            assert saved_steps(store) == ["1", "4", "5", "6"]
            assert len(list(store.segments.folder.iterdir())) == 4


def test_full_disk_during_a_save_leaves_the_last_checkpoint_untouched(small_disk: Path) -> None:
    with (
        RunDirectory.create(small_disk, game="pong", algorithm="dqn", seed=1) as run,
        CheckpointStore(run) as store,
    ):
        save(store, 100)
        for steps in (100, 200):
            with pytest.raises(CheckpointError, match=f"checkpoint {steps} is not saved: .*{small_disk} has .* free"):
                store.save(steps=steps, files={"a": bytes(400_000), "b": bytes(800_000)}, state={})
            assert saved_steps(store) == ["100"]
            assert store.newest_valid().state["content"] == "old"
        save(store, 200)
        assert store.newest_valid().steps == 200


FILE_SIZE_LIMITED = """
import resource, sys
from pathlib import Path
from redline.runs.checkpoints import CheckpointStore
from redline.runs.directory import RunDirectory
from redline.errors import CheckpointError

with RunDirectory.create(Path(sys.argv[1]), game="pong", algorithm="dqn", seed=1) as run, CheckpointStore(run) as store:
    run.write_run_json({})
    store.save(steps=100, files={"weights.safetensors": bytes(5_000)}, state={})
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    try:
        store.save(steps=200, files={"weights.safetensors": bytes(200_000)}, state={})
    except CheckpointError as error:
        sys.stdout.write(str(error))
    assert [path.name for path in store.path.iterdir()] == ["100"]
    assert store.newest_valid().steps == 100
    store.save(steps=200, files={"weights.safetensors": bytes(5_000)}, state={})
    assert store.newest_valid().steps == 200
"""


def test_save_cut_short_by_a_file_size_limit_leaves_the_last_checkpoint_untouched(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", FILE_SIZE_LIMITED, str(tmp_path)]
    result = subprocess.run(command, check=True, capture_output=True, text=True)
    assert "checkpoint 200 is not saved" in result.stdout
    assert "file too large" in result.stdout
    assert "ulimit -f" in result.stdout


def test_manifest_is_json_that_others_can_read(store: CheckpointStore) -> None:
    manifest = json.loads((save(store, 100, score=2.0) / "manifest.json").read_bytes())
    assert manifest["schema"] == 1
    assert set(manifest["files"]) == {WEIGHTS, "optimizer.safetensors", "state.json", "run.copy.json"}
    assert set(manifest["files"][WEIGHTS]) == {"bytes", "sha256"}
    assert set(manifest["replay"]["lanes"][0]["chunks"][0]) == {"segment", "offset", "length", "sha256"}

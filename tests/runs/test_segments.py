import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from redline.errors import CheckpointError, DamagedError
from redline.runs import segments
from redline.runs.segments import Location, SegmentStore, find_locations


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "replay"


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "MAX_SEGMENT_BYTES", 100)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_chunk_comes_back_through_json(folder: Path) -> None:
    with SegmentStore(folder) as store:
        first, second = store.append(b"first"), store.append(memoryview(b"second"))
        store.sync()
        assert second["offset"] == 5
        for location, data in ((first, b"first"), (second, b"second")):
            assert store.read(json.loads(json.dumps(location))) == data


def test_chunk_of_wide_elements_is_stored_as_bytes(folder: Path) -> None:
    with SegmentStore(folder) as store:
        location = store.append(memoryview(b"12345678").cast("I"))
        assert location["length"] == 8
        assert store.read(location) == b"12345678"


@pytest.mark.usefixtures("small_segments")
def test_segment_rolls_before_it_exceeds_the_limit(folder: Path) -> None:
    with SegmentStore(folder) as store:
        locations = [store.append(bytes([n]) * 40) for n in range(5)]
        assert [location["segment"][-5] for location in locations] == ["1", "1", "2", "2", "3"]
        assert [store.read(location) for location in locations] == [bytes([n]) * 40 for n in range(5)]
        assert max(path.stat().st_size for path in folder.iterdir()) <= 100


@pytest.mark.usefixtures("small_segments")
def test_chunk_larger_than_a_segment_is_refused(folder: Path) -> None:
    with SegmentStore(folder) as store, pytest.raises(ValueError, match="a segment holds 100"):
        store.append(bytes(101))


def test_reopened_store_starts_a_new_segment_and_removes_empty_ones(folder: Path) -> None:
    with SegmentStore(folder) as store:
        old = store.append(b"old")
    (folder / "segment-000007.bin").touch()
    with SegmentStore(folder) as store:
        assert names(folder) == ["segment-000001.bin"]
        new = store.append(b"new")
        assert new["segment"] == "segment-000002.bin"
        assert (store.read(old), store.read(new)) == (b"old", b"new")


def test_store_whose_segment_was_removed_starts_another(folder: Path) -> None:
    with SegmentStore(folder) as store:
        lost = store.append(b"first")
        shutil.rmtree(folder)
        assert not store.holds(lost)
        kept = store.append(b"second")
        assert store.holds(kept)
        assert store.read(kept) == b"second"


@pytest.mark.usefixtures("small_segments")
def test_collect_deletes_what_is_unnamed_but_nothing_the_next_manifest_may_name(folder: Path) -> None:
    with SegmentStore(folder) as store:
        chunks = [store.append(bytes(60)) for _ in range(4)]
        assert store.collect({chunks[1]["segment"]}) == [chunks[0]["segment"]]
        assert names(folder) == [chunk["segment"] for chunk in chunks[1:]]
    with SegmentStore(folder) as store:
        # after a reopen nobody remembers the locations of unnamed chunks
        assert store.collect({chunks[1]["segment"]}) == [chunk["segment"] for chunk in chunks[2:]]
        assert store.read(chunks[1]) == bytes(60)


def test_collect_never_deletes_the_open_segment(folder: Path) -> None:
    with SegmentStore(folder) as store:
        location = store.append(b"open")
        assert store.collect(set()) == []
        store.append(b"more")
        assert store.read(location) == b"open"


def test_altered_missing_and_truncated_chunks_are_damage(folder: Path) -> None:
    with SegmentStore(folder) as store:
        first, second = store.append(b"first"), store.append(b"second")
    path = folder / first["segment"]
    path.write_bytes(b"fiRst" + b"secon")
    with pytest.raises(DamagedError, match=r"chunk at 0 does not have the sha256"):
        store.read(first)
    with pytest.raises(DamagedError, match=r"ends at 10, before its chunk at 5 \+ 6"):
        store.read(second)
    path.unlink()
    with pytest.raises(DamagedError, match=r"segment-000001\.bin: no such file"):
        store.read(first)


@pytest.mark.parametrize(
    "change",
    [
        {"segment": "../run.json"},
        {"segment": "/etc/passwd"},
        {"segment": "segment-000001.bin/../../run.json"},
        {"segment": "segment-000001.bin\n"},
        {"segment": "segment-٠٠٠٠٠١.bin"},
        {"segment": None},
        {"offset": -1},
        {"length": -1},
        {"length": 10**15},
        {"length": "5"},
        {"offset": 0.0},
        {"sha256": None},
    ],
)
def test_location_that_no_store_made_is_refused(folder: Path, change: dict[str, object]) -> None:
    with SegmentStore(folder) as store:
        location = store.append(b"chunk")
    with pytest.raises(DamagedError):
        store.read({**location, **change})


def test_link_in_place_of_a_segment_is_refused(folder: Path, tmp_path: Path) -> None:
    with SegmentStore(folder) as store:
        location = store.append(b"chunk")
    secret = tmp_path / "secret"
    (folder / location["segment"]).rename(secret)
    (folder / location["segment"]).symlink_to(secret)
    with pytest.raises(DamagedError):
        store.read(location)


def test_locations_are_found_at_any_depth() -> None:
    place = Location(segment="segment-000001.bin", offset=0, length=1, sha256="")
    deep: object = {**place, "lane": 3}
    for _ in range(5_000):
        deep = [deep]
    assert list(find_locations({"lanes": [{"chunks": [place]}], "n": 1})) == [place]
    assert len(list(find_locations(deep))) == 1
    assert list(find_locations(None)) == []


FILE_SIZE_LIMITED = """
import sys
from pathlib import Path
from redline.errors import CheckpointError
from redline.runs.segments import SegmentStore

with SegmentStore(Path(sys.argv[1])) as store:
    first = store.append(b"a" * 600)
    try:
        store.append(b"b" * 600)
    except CheckpointError as error:
        sys.stdout.write(str(error))
    second = store.append(b"c" * 300)
    assert second["offset"] == 600
    assert store.read(first) == b"a" * 600
    assert store.read(second) == b"c" * 300
"""


def test_append_cut_short_by_a_file_size_limit_leaves_the_store_sound(folder: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", FILE_SIZE_LIMITED, str(folder)],
        check=True,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000)),
    )
    assert "file too large" in result.stdout
    assert "ulimit -f" in result.stdout
    assert (folder / "segment-000001.bin").stat().st_size == 900


def test_append_to_a_full_disk_names_the_mount_and_leaves_the_store_sound(small_disk: Path) -> None:
    with SegmentStore(small_disk / "replay") as store:
        first = store.append(os.urandom(600_000))
        with pytest.raises(CheckpointError, match=f"no space left on device; {small_disk} has 0.4 MB free"):
            store.append(bytes(600_000))
        second = store.append(b"fits")
        store.sync()
        assert second["offset"] == 600_000
        assert len(store.read(first)) == 600_000
        assert store.read(second) == b"fits"

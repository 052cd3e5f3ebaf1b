"""The room of a fleet: one run until it was measured, and then as many as fit, also after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from health_stage import HOLDER, SLOT
from redline.fleet import room
from redline.fleet.engines.local import LocalEngine
from redline.fleet.listing import Slot, Wishes, new_listing, write_listing
from redline.fleet.packing import Needs
from redline.fleet.room import Room
from redline.fleet.slots import SLOTS_JSONL, SlotStatus
from redline.jsonl import RecordWriter, read_records

GB = 10**9
SMALL = Needs(cores=1.0, memory_bytes=GB, disk_bytes=GB)
SLOTS = tuple(Slot(f"catch-dqn-s{seed}", "catch", "dqn", seed, {}) for seed in range(1, 7))


class Cluster(LocalEngine):
    def cores(self) -> int | None:
        return 12


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[Path, Needs]:
    """A machine of four cores; the returned runs have learnt long enough to tell what they take."""
    measured: dict[Path, Needs] = {}
    monkeypatch.setattr(room, "usable_cores", lambda: 4)
    monkeypatch.setattr(room, "available_bytes", lambda: 20 * GB)
    monkeypatch.setattr(room, "free_bytes", lambda folder: 100 * GB)
    monkeypatch.setattr(room, "measure_needs", lambda run, pid: measured.get(run))
    monkeypatch.setattr(room, "LOOK_S", 0.0)
    return measured


@pytest.fixture
def log(tmp_path: Path) -> Iterator[RecordWriter]:
    write_listing(tmp_path, new_listing("f", Wishes(), SLOTS, "redline fleet start"))
    with RecordWriter(tmp_path / SLOTS_JSONL) as writer:
        yield writer


def running(folder: Path, *names: str, slot: Slot = SLOT) -> list[SlotStatus]:
    return [SlotStatus(slot, "running", 1, folder / name, holder=HOLDER) for name in names]


def test_one_run_goes_alone_until_it_was_measured(
    tmp_path: Path, log: RecordWriter, machine: dict[Path, Needs]
) -> None:
    found = Room(tmp_path, LocalEngine(tmp_path), Wishes(), log)
    assert (found.concurrency, found.threads) == (1, 1)  # it has the threads that it will have beside others
    assert found.describe() == "the first run shows how many fit"
    assert found.update(running(tmp_path, "a"), slots=6) is None
    machine[tmp_path / "a"] = SMALL
    line = found.update(running(tmp_path, "a"), slots=6)
    assert line == found.describe()
    assert line == "4 side by side, 1 thread each: one run uses 1.0 of 4 cores, memory allows 18, disk 90"
    assert (found.concurrency, found.threads) == (4, 1)
    assert found.update(running(tmp_path, "a", "b"), slots=5) is None


def test_runs_side_by_side_do_not_tell_how_many_cores_one_uses(
    tmp_path: Path, log: RecordWriter, machine: dict[Path, Needs]
) -> None:
    machine |= {tmp_path / "a": SMALL, tmp_path / "b": SMALL}
    found = Room(tmp_path, LocalEngine(tmp_path), Wishes(), log)
    assert found.update(running(tmp_path, "a", "b"), slots=6) is None  # of a supervisor that is gone
    assert found.concurrency == 1
    assert found.update(running(tmp_path, "b"), slots=5) is not None


def test_a_kind_that_changes_nothing_is_not_told(tmp_path: Path, log: RecordWriter, machine: dict[Path, Needs]) -> None:
    machine |= {tmp_path / "a": SMALL, tmp_path / "b": SMALL}
    found = Room(tmp_path, LocalEngine(tmp_path), Wishes(), log)
    found.update(running(tmp_path, "a"), slots=6)
    other = Slot("pong-dqn-s1", "pong", "dqn", 1, {})
    assert found.update([*running(tmp_path, "a"), *running(tmp_path, "b", slot=other)], slots=6) is None
    assert len([row for row in read_records(tmp_path / SLOTS_JSONL) if "needs" in row]) == 2


def test_a_run_that_was_too_short_is_measured_when_it_is_over(
    tmp_path: Path, log: RecordWriter, machine: dict[Path, Needs]
) -> None:
    found = Room(tmp_path, LocalEngine(tmp_path), Wishes(), log)
    found.update(running(tmp_path, "a"), slots=6)
    machine[tmp_path / "a"] = SMALL
    assert found.update([], slots=5) is not None
    assert found.concurrency == 4


def test_the_next_supervisor_knows_what_was_measured(
    tmp_path: Path, log: RecordWriter, machine: dict[Path, Needs]
) -> None:
    machine[tmp_path / "a"] = SMALL
    before = Room(tmp_path, LocalEngine(tmp_path), Wishes(), log)
    before.update(running(tmp_path, "a"), slots=6)
    after = Room(tmp_path, LocalEngine(tmp_path), Wishes(), log)
    assert (after.concurrency, after.threads, after.describe()) == (4, 1, before.describe())
    rows = read_records(tmp_path / SLOTS_JSONL)
    assert after.update(running(tmp_path, "a"), slots=6) is None
    assert read_records(tmp_path / SLOTS_JSONL) == rows


def test_a_resume_with_other_wishes_counts_anew_with_what_was_measured(
    tmp_path: Path, log: RecordWriter, machine: dict[Path, Needs]
) -> None:
    machine[tmp_path / "a"] = SMALL
    Room(tmp_path, LocalEngine(tmp_path), Wishes(concurrency=1), log).update(running(tmp_path, "a"), slots=6)
    for asked, found in ((3, 3), (1, 1), (0, 4)):
        after = Room(tmp_path, LocalEngine(tmp_path), Wishes(concurrency=asked), log)
        assert after.update([], slots=6) == after.describe()
        assert after.concurrency == found
        assert after.update([], slots=6) is None


def test_another_kind_of_run_that_takes_more_leaves_less_room(
    tmp_path: Path, log: RecordWriter, machine: dict[Path, Needs]
) -> None:
    machine[tmp_path / "a"] = SMALL
    found = Room(tmp_path, LocalEngine(tmp_path), Wishes(), log)
    found.update(running(tmp_path, "a"), slots=6)
    large = Slot("pong-dqn-s1", "pong", "dqn", 1, {"replay.capacity": 1_000_000})
    machine[tmp_path / "b"] = Needs(cores=0.2, memory_bytes=8 * GB, disk_bytes=GB)  # beside others it gets less
    line = found.update([*running(tmp_path, "a"), *running(tmp_path, "b", slot=large)], slots=6)
    assert line == "2 side by side, 2 threads each: one run uses 1.0 of 4 cores, memory allows 2, disk 90"


def test_what_does_not_fit_is_told_with_what_would(
    tmp_path: Path, log: RecordWriter, machine: dict[Path, Needs]
) -> None:
    machine[tmp_path / "a"] = Needs(1.0, 30 * GB, GB, replay_bytes=29 * GB, replay_capacity=1_000_000)
    found = Room(tmp_path, LocalEngine(tmp_path), Wishes(), log)
    line = found.update(running(tmp_path, "a"), slots=6)
    assert line == "one run needs 30.0 GB, 20.0 GB is free: use --set replay.capacity=650000"
    assert found.concurrency == 1


def test_what_was_asked_begins_at_once_and_is_held_to_what_fits(
    tmp_path: Path, log: RecordWriter, machine: dict[Path, Needs]
) -> None:
    found = Room(tmp_path, LocalEngine(tmp_path), Wishes(concurrency=3), log)
    assert (found.concurrency, found.threads) == (3, 1)
    machine[tmp_path / "a"] = Needs(1.0, 9 * GB, GB)
    line = found.update(running(tmp_path, "a", "b"), slots=6)
    assert line == (
        "2 side by side, not 3 as asked, 2 threads each: one run uses 1.0 of 4 cores, memory allows 2, disk 90"
    )


def test_on_a_cluster_its_cores_count(tmp_path: Path, log: RecordWriter, machine: dict[Path, Needs]) -> None:
    machine[tmp_path / "a"] = SMALL
    found = Room(tmp_path, Cluster(tmp_path), Wishes(), log)
    assert found.update(running(tmp_path, "a"), slots=6) is None
    assert (found.concurrency, found.threads, found.describe()) == (
        12,
        1,
        "12 cores answer in the cluster, one for each run",
    )


def test_threads_do_not_depend_on_how_many_runs_are_left(tmp_path: Path, log: RecordWriter) -> None:
    found = Room(tmp_path, LocalEngine(tmp_path), Wishes(), log)
    found.update(running(tmp_path, "a"), slots=1)
    assert found.threads == 1


def test_a_damaged_row_is_as_none(tmp_path: Path, log: RecordWriter) -> None:
    for packing in ({"concurrency": "many"}, [], {"concurrency": 3, "threads": 1, "why": "so"}):
        log.write({"packing": packing, "kind": "x", "needs": {"cores": None}})
    found = Room(tmp_path, LocalEngine(tmp_path), Wishes(), log)
    assert found.concurrency == 1

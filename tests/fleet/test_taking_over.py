"""What a supervisor has waited for, the runner that it starts on another machine need not wait for again."""

from pathlib import Path
from typing import Any

import pytest

from redline.fleet import runner
from redline.fleet.lease import Holder, LeaseHeldError, Watcher, encode
from redline.fleet.place import Place
from redline.fleet.slots import SLOTS_JSONL
from redline.jsonl import encode_row

LOST = Holder("slot", 3, Place("elsewhere", "another boot", "pid:[1]"), 7, 0.0, beat=41)


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that machines share, in which one that is gone has left its lease."""
    monkeypatch.setattr("redline.fleet.lease.is_shared", lambda folder: True)
    (tmp_path / "leases" / "slot").mkdir(parents=True)
    (tmp_path / "leases" / "slot" / "000003.json").write_bytes(encode(LOST))
    return tmp_path


def watcher_after(fleet: Path, **row: Any) -> Watcher:
    rows = [{"slot": "slot", "state": "running", "epoch": 3, "beat": 12}, {"slot": "slot", **row}, {"slot": "other"}]
    (fleet / SLOTS_JSONL).write_bytes(b"".join(map(encode_row, rows)))
    watcher = Watcher(fleet)
    runner._trust_supervisor(fleet, "slot", watcher)
    return watcher


def test_holder_that_the_supervisor_found_silent_is_not_watched_again(fleet: Path) -> None:
    watcher = watcher_after(fleet, state="waiting", epoch=3, beat=41)
    assert runner._wait_until_free(fleet, "slot", watcher) == LOST


@pytest.mark.parametrize(
    "row",
    [
        {"state": "waiting", "epoch": 3, "beat": 40},  # it has beaten since
        {"state": "waiting", "epoch": 2, "beat": 41},
        {"state": "running", "epoch": 3, "beat": 41},
        {"state": "waiting", "epoch": 3},
    ],
)
def test_anybody_else_must_be_seen_to_be_silent(fleet: Path, row: dict[str, Any]) -> None:
    assert watcher_after(fleet, **row).is_alive(LOST)


def test_holder_that_beats_again_keeps_its_lease(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    holders = iter([LOST, Holder("slot", 3, LOST.place, 7, 0.0, beat=42)])
    monkeypatch.setattr(runner, "read_holder", lambda folder, slot: next(holders))
    with pytest.raises(LeaseHeldError, match="process 7 on elsewhere"):
        runner._wait_until_free(fleet, "slot", watcher_after(fleet, state="waiting", epoch=3, beat=41))

"""What a supervisor has waited for, the runner that it starts on another machine need not wait for again."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from redline.cli.fleet.supervising import refuse_second_supervisor
from redline.cli.main import FailureError
from redline.fleet import lease, runner
from redline.fleet.lease import Holder, Lease, LeaseHeldError, Watcher, encode, wait_until_free
from redline.fleet.place import Place
from redline.fleet.slots import SLOTS_JSONL, SUPERVISOR
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
    assert wait_until_free(fleet, "slot", watcher) == LOST


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
    monkeypatch.setattr(lease, "read_holder", lambda folder, slot: next(holders))
    with pytest.raises(LeaseHeldError, match="process 7 on elsewhere"):
        wait_until_free(fleet, "slot", watcher_after(fleet, state="waiting", epoch=3, beat=41))


def test_supervisor_of_a_lost_machine_has_a_successor_as_soon_as_it_was_silent_for_long_enough(
    fleet: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "TIMEOUT_S", 0.2)
    monkeypatch.setattr(lease, "LOOK_S", 0.02)
    lost = msgspec.structs.replace(LOST, slot=SUPERVISOR)
    (fleet / "leases" / SUPERVISOR).mkdir()
    (fleet / "leases" / SUPERVISOR / "000003.json").write_bytes(encode(lost))
    assert Watcher(fleet).is_alive(lost)
    refuse_second_supervisor(fleet)
    with Lease.take(fleet, SUPERVISOR, watcher=_having_waited(fleet)) as successor:
        assert successor.holder.epoch == 4
        with pytest.raises(FailureError, match="is supervised already: by process"):
            refuse_second_supervisor(fleet)


def _having_waited(fleet: Path) -> Watcher:
    watcher = Watcher(fleet)
    wait_until_free(fleet, SUPERVISOR, watcher)
    return watcher

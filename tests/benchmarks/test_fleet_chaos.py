"""The oracles of the chaos test can fail."""

import shutil
from pathlib import Path

import pytest

import fleet_chaos
from fleet_chaos import judge, measurement, parse
from redline.fleet.listing import Part, Wishes, make_slots, new_listing, write_listing
from redline.fleet.runner import run_folders
from redline.fleet.slots import SlotStatus, read_statuses
from redline.jsonl import encode_row


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fleet of one slot that counts as done, with one run."""
    listing = new_listing("test", Wishes(), make_slots([Part(("CartPole-v1",), ("ppo",), (1,), {})]), "start")
    run = tmp_path / "runs" / "cartpole-v1-ppo-s1" / "cartpole-v1" / "ppo" / "1-s1"
    weights = run / "checkpoints" / "30" / "weights.safetensors"
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"weights")
    write_listing(tmp_path, listing)
    (run / "events.jsonl").write_bytes(encode_row({"event": "start"}))
    (run / "episodes.jsonl").write_bytes(encode_row({"role": "actor"}) * 3)

    def done(folder: Path, listing_: object) -> list[SlotStatus]:
        (found,) = read_statuses(folder, listing)
        return [SlotStatus(found.slot, "done", 2, run_folders(folder, found.slot.name)[0], 30)]

    monkeypatch.setattr(fleet_chaos, "read_statuses", done)
    monkeypatch.setattr(fleet_chaos, "audit", lambda run: [])
    return tmp_path


def test_a_fleet_as_it_should_be_has_no_faults(fleet: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    faults, sums = judge(fleet, fleet)
    assert faults == []
    assert sums == {"done": 1, "attempts": 2, "steps": 30, "episodes": 3, "equal_weights": 1}
    options = parse(["--runs", "1", "--kills", "2"])
    assert measurement(options, [{"victim": "supervisor"}], [], sums, 1.0).passed


def test_a_run_that_was_trained_twice_is_a_fault(fleet: Path) -> None:
    (run,) = run_folders(fleet, "cartpole-v1-ppo-s1")
    shutil.copytree(run, run.with_name("2-s1"))
    assert "cartpole-v1-ppo-s1 was trained 2 times" in judge(fleet, fleet)[0]
    (run / "events.jsonl").write_bytes(encode_row({"event": "start"}) * 2)
    assert "cartpole-v1-ppo-s1: its run began 2 times" in judge(fleet, fleet)[0]


def test_other_weights_are_a_fault(fleet: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    truth = tmp_path_factory.mktemp("truth")
    shutil.copytree(fleet, truth, dirs_exist_ok=True)
    (run,) = run_folders(fleet, "cartpole-v1-ppo-s1")
    (run / "checkpoints" / "30" / "weights.safetensors").write_bytes(b"others")
    assert judge(fleet, truth)[0] == ["cartpole-v1-ppo-s1 ends with other weights than an undisturbed run"]


def test_a_lost_run_is_a_fault(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleet_chaos, "read_statuses", read_statuses)
    assert judge(fleet, fleet)[0] == ["cartpole-v1-ppo-s1 is lost: waiting ()"]
    options = parse([])
    assert measurement(options, [], ["lost"], judge(fleet, fleet)[1], 1.0).passed is False
